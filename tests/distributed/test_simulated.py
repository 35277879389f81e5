"""k simulated workers give, bit for bit, what k ranks give."""

import pytest
import torch
from models import batch, network, sgd, weights, wrap

import laconic
from laconic import NUQSGD, ErrorFeedback, Policy, Sign

CODECS = {"nuqsgd": NUQSGD(bits=4, bucket_size=256), "ef-sign": ErrorFeedback(Sign(bucket_size=256))}
POLICY = Policy(min_values=0, min_dims=0, group_values=1000)


def distributed(group, codec):
    rank = torch.distributed.get_rank(group)
    model = wrap(group, CODECS[codec], policy=POLICY, exchange="all_gather")
    optimizer = sgd(model)
    for step in range(5):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize("codec", CODECS)
def test_simulated_is_distributed(pool, codec):
    k = 3
    net = network()
    workers = laconic.SimulatedWorkers(net, CODECS[codec], k, policy=POLICY)
    optimizer = sgd(net)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the ranks: sums of gradients then run in the same order
    try:
        for step in range(5):
            data = [batch(worker, step) for worker in range(k)]
            workers.backward([lambda x=x, y=y: torch.nn.functional.cross_entropy(net(x), y) for x, y in data])
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(weights(net), pool.run(distributed, k, codec=codec)[0])
    assert workers.last.nmse > 0
    assert workers.last.bytes_sent > 0


def test_one_loss_a_worker():
    workers = laconic.SimulatedWorkers(network(), "nuqsgd", 4)
    with pytest.raises(ValueError, match="need 4 losses, one a worker, got 1"):
        workers.backward([lambda: torch.zeros(())])
    with pytest.raises(ValueError, match="n_workers must be at least 1, got 0"):
        laconic.SimulatedWorkers(network(), "nuqsgd", 0)
