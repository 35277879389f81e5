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


DEFAULTS = {
    "AdamW": ({}, "Dithered(error=0.1): few bits", "second moment: AdamW divides every coordinate by its root"),
    "SGD": ({}, "Dithered(error=0.3): few bits", "model: SGD takes every coordinate of the gradient as it is"),
    "Rprop": ({}, "Dithered(error=0.1): few bits", "tensor: how Rprop scales coordinates is not known"),
    None: ({}, "NUQSGD(bits=4, bucket_size=512, p=0.5): small buckets suit", "none: no optimizer was given"),
    "RMSprop": ({"metric": "none"}, "NUQSGD(bits=4, bucket_size=512, p=0.5): small buckets suit", "none: asked for"),
    "Adam": ({"codec": "bf16"}, "Identity(dtype='bf16'): asked for", "none: a float format loses"),
}


def _without_a_codec(group, name):
    net = torch.nn.Linear(64, 64)
    model = DistributedDataParallel(net, process_group=group)
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01) if name else None
    laconic.compress(model, optimizer=optimizer, **DEFAULTS[name][0])
    for _ in range(2):
        model(torch.ones(4, 64)).square().sum().backward()
    return laconic.stats(model)


@pytest.mark.parametrize("name", DEFAULTS)
def test_without_a_codec_the_optimizer_decides(pool, name):
    for stats in pool.run(_without_a_codec, 2, name=name):
        assert stats["codec"].startswith(DEFAULTS[name][1])
        assert stats["metric"].startswith(DEFAULTS[name][2])


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
    return {"slowest": clock.slowest([float(comm.rank), 1.0]), "rounds": seen}


def test_times_are_the_slowest_ranks_on_every_rank(pool):
    first, *others = pool.run(_clock, 3)
    assert first["slowest"] == [2.0, 1.0]
    assert all(other == first for other in others)
