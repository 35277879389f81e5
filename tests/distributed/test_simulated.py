"""k simulated workers give, bit for bit, what k ranks give."""

import pytest
import torch
from models import adamw, batch, network, sgd, train, weights, wrap

import laconic
from laconic import NUQSGD, RANS, Codec, Dithered, ErrorFeedback, Policy, Rotated, Sign
from laconic.training.ddp import compressor_of

CODECS = {
    "nuqsgd": NUQSGD(bits=4, bucket_size=256),
    "ef-sign": ErrorFeedback(Sign(bucket_size=256)),
    "dithered": Dithered(bits=1.5),
    "rotated": Rotated(bits=3, bucket_size=256),
    "dithered-0.3": Dithered(error=0.3),
    "nuqsgd-rans": Codec(NUQSGD(bits=4, bucket_size=256), RANS()),
}
POLICIES = {
    "everything": Policy(min_values=0, min_dims=0, group_values=1000),
    "matrices": Policy(),
    "after three steps": Policy(warmup_steps=3),
    "nothing yet": Policy(warmup_steps=9),
}


METRICS = {
    "none": (sgd, "none"),
    "second moment": (adamw, "auto"),
    "tensor": (adamw, "tensor"),
    "model": (sgd, "auto"),
}


def distributed(group, codec, policy, metric):
    """Five steps; the weights, and what was counted in the last one."""
    rank, net = torch.distributed.get_rank(group), network()
    make, name = METRICS[metric]
    optimizer = make(net)
    options = {"policy": POLICIES[policy], "exchange": "all_gather", "error_every": 1}
    model = wrap(group, CODECS[codec], net=net, optimizer=optimizer, metric=name, **options)
    train(model, optimizer, range(5), rank)
    return weights(model), compressor_of(model).last


@pytest.mark.parametrize(
    ("codec", "policy", "metric"),
    [(codec, policy, "none") for codec in CODECS if codec != "dithered-0.3" for policy in POLICIES]
    + [(codec, "everything", metric) for codec in CODECS for metric in ("second moment", "tensor")]
    + [("dithered-0.3", "everything", "model")]
    + [("dithered-0.3", "after three steps", metric) for metric in METRICS if metric != "none"],
)
def test_simulated_is_distributed(pool, codec, policy, metric):
    k = 3  # 1/3 is no float: multiplying by it and dividing by 3 differ
    net = network()
    make, name = METRICS[metric]
    optimizer = make(net)
    policies = {"policy": POLICIES[policy], "optimizer": optimizer, "metric": name}
    workers = laconic.SimulatedWorkers(net, CODECS[codec], k, **policies)
    assert workers.metric.name == metric
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the ranks: sums of gradients then run in the same order
    try:
        for step in range(5):
            data = [batch(worker, step) for worker in range(k)]
            workers.backward([lambda x=x, y=y: torch.nn.functional.cross_entropy(net(x), y) for x, y in data])
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
    ranks = pool.run(distributed, k, codec=codec, policy=policy, metric=metric)
    assert torch.equal(weights(net), ranks[0][0])
    counted = [last for _, last in ranks]
    assert workers.last.n_exchanges == sum(last.n_exchanges for last in counted)
    assert workers.last.n_values == sum(last.n_values for last in counted) == k * weights(net).numel()
    assert workers.last.n_coded == sum(last.n_coded for last in counted)
    assert workers.last.code_bytes == sum(last.code_bytes for last in counted)
    assert (k - 1) * workers.last.bytes_sent == sum(last.bytes_sent for last in counted)
    assert workers.last.error == pytest.approx(sum(last.error for last in counted))
    assert workers.last.energy == pytest.approx(sum(last.energy for last in counted))
    assert (workers.last.energy > 0) == (policy != "nothing yet")


def images(worker: int) -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(worker))


def convolutions() -> torch.nn.Module:
    """Parameters in three layouts: channels last, transposed, and with gaps."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 12))
    net[2].weight = torch.nn.Parameter(torch.randn(288, 12).t())
    net[2].bias = torch.nn.Parameter(torch.randn(24)[::2])
    return net.to(memory_format=torch.channels_last)


def gradients(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.contiguous() for p in net.parameters()]


def convolved(group):
    net = convolutions()
    model = wrap(group, "nuqsgd", net=net, policy=POLICIES["everything"], exchange="all_gather")
    model(images(torch.distributed.get_rank(group))).square().sum().backward()
    return gradients(net)


def test_the_layout_of_parameters_is_no_matter(pool):
    net = convolutions()
    workers = laconic.SimulatedWorkers(net, "nuqsgd", 2, policy=POLICIES["everything"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        workers.backward([lambda x=x: net(x).square().sum() for x in (images(0), images(1))])
    finally:
        torch.set_num_threads(threads)
    for rank in pool.run(convolved, 2):
        assert all(torch.equal(a, b) for a, b in zip(rank, gradients(net), strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("metric", METRICS)
def test_the_default_dtype_is_no_matter(metric, dtype):
    """A network in float32 trains with the same bits whatever torch's default is."""
    found = []
    for default in (torch.float32, dtype):
        net = network()
        make, name = METRICS[metric]
        optimizer = make(net)
        data = [batch(worker, 0) for worker in range(2)]
        torch.set_default_dtype(default)
        try:
            workers = laconic.SimulatedWorkers(net, CODECS["dithered-0.3"], 2, optimizer=optimizer, metric=name)
            losses = [lambda net=net, x=x, y=y: torch.nn.functional.cross_entropy(net(x), y) for x, y in data]
            for _ in range(3):
                workers.backward(losses)
                optimizer.step()
            workers.prepare()
        finally:
            torch.set_default_dtype(torch.float32)
        found.append(weights(net))
    assert torch.equal(*found)


def test_what_no_worker_uses_has_no_gradient():
    """Else AdamW would decay it; so it is under DistributedDataParallel. What one worker uses has the average."""
    net = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    workers = laconic.SimulatedWorkers(net, "nuqsgd", 2)
    for _ in range(2):
        workers.backward([lambda: net[0](torch.ones(4)).sum(), lambda: (net[0](torch.ones(4)) + net[1].weight).sum()])
        assert [p.grad is None for p in net.parameters()] == [False, False, False, True, True, True]
    assert net[1].weight.grad.unique().tolist() == [0.5]


def test_float32_alone_has_a_ratio_of_one():
    net = network()
    workers = laconic.SimulatedWorkers(net, "nuqsgd", 2, policy=Policy(warmup_steps=1))
    workers.backward([lambda: net(torch.ones(20)).sum()] * 2)
    assert 0.98 < workers.last.ratio < 1


def test_one_loss_a_worker():
    workers = laconic.SimulatedWorkers(network(), "nuqsgd", 4)
    with pytest.raises(ValueError, match="need 4 losses, one per worker, got 1"):
        workers.backward([lambda: torch.zeros(())])
    for n_workers in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"n_workers must be a whole number, at least 1; got {n_workers}"):
            laconic.SimulatedWorkers(network(), "nuqsgd", n_workers)
    with pytest.raises(TypeError, match=r"each loss must be a function such as lambda: net.*; got Tensor"):
        workers.backward([torch.zeros(())] * 4)
    with pytest.raises(ValueError, match=r"policy: its codecs have 'head\*', which matches no parameter"):
        laconic.SimulatedWorkers(network(), "nuqsgd", 2, policy=Policy(codecs={"head*": None}))
    with pytest.raises(ValueError, match="seed must be a whole number from 0"):
        laconic.SimulatedWorkers(network(), "nuqsgd", 2, seed=-1)
    with pytest.raises(ValueError, match="Sequential has no parameters that require a gradient"):
        laconic.SimulatedWorkers(network().requires_grad_(False), "nuqsgd", 2)
