"""codec="auto": every rank chooses alike, says why, and trains with it."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic.exchange import Communicator
from laconic.planner import timing


def _train(group, n_steps=2):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    model = DistributedDataParallel(net, process_group=group)
    compressor = laconic.compress(model, "auto")
    torch.manual_seed(torch.distributed.get_rank(group))
    for _ in range(n_steps):
        model(torch.randn(4, 64)).square().sum().backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    option = compressor.plan.recommended.option
    found = {
        "option": option.label,
        "codec": repr(compressor.codec.quantizer),
        "exchange": compressor.exchange.name,
        "said": option.exchange,
        "cluster": compressor.plan.cluster.to_json(),
        "explained": compressor.plan.explain(),
        "gradient": gradient.tolist(),
        "steps": laconic.stats(model)["steps"],
    }
    compressor.close()
    return found


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_ranks_choose_alike(pool, size):
    first, *others = pool.run(_train, size)
    assert all(other == first for other in others)
    assert first["steps"] == 2
    assert first["exchange"] == first["said"]
    assert first["option"] in first["explained"]
    assert first["cluster"]["n_ranks"] == size


def _with_exchange(group):
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    laconic.compress(model, "auto", exchange="all_gather")


def test_an_exchange_beside_auto_is_refused(pool):
    good, (kind, message, _) = pool.outcomes(_with_exchange, 1)[0]
    assert not good
    assert kind == "ValueError"
    assert "leave exchange='all_gather' out" in message


def _clock(group):
    comm = Communicator.over(group)
    clock = timing.Stopwatch(comm, torch.device("cpu"))
    seen = clock.time(lambda: None, rounds=3)
    return {"slowest": clock.slowest([float(comm.rank), 1.0]), "rounds": list(seen.rounds)}


def test_times_are_the_slowest_ranks_on_every_rank(pool):
    first, *others = pool.run(_clock, 3)
    assert first["slowest"] == [2.0, 1.0]
    assert all(other == first for other in others)
