"""Training under DistributedDataParallel: the same model on every rank, in every mode DDP has."""

import contextlib
from datetime import timedelta

import pytest
import torch
from models import adamw, batch, network, sgd, train, weights, wrap
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic import NUQSGD, Codec, ErrorFeedback, Policy, Sign

CODECS = {
    "fp32": "fp32",
    "bf16": "bf16",
    "nuqsgd-4": NUQSGD(bits=4, bucket_size=256),
    "qsgd-4": laconic.QSGD(bits=4, bucket_size=256),
    "qsgdinf-8": laconic.QSGDInf(bits=8, bucket_size=256),
    "ef-sign": ErrorFeedback(Sign(bucket_size=256)),
    "nuqsgd-rans": Codec(NUQSGD(bits=4, bucket_size=256), laconic.RANS()),
    "dithered": laconic.Dithered(error=0.3),
    "rotated": laconic.Rotated(bits=4, bucket_size=256),
    "ef-nuqsgd-elias": Codec(ErrorFeedback(NUQSGD(bits=4, bucket_size=256)), laconic.Elias()),
}


def twenty_steps(group, codec):
    """On one batch per rank, so that first and last loss are of the same rows."""
    rank = torch.distributed.get_rank(group)
    model = wrap(group, CODECS[codec] if codec else None)
    losses = train(model, sgd(model), [0] * 20, rank)
    return weights(model), losses, laconic.stats(model) if codec else None


FEW = ("nuqsgd-4", "ef-sign")
"""Codecs that are tried on every number of ranks each time; the others on three."""
FITS = [(codec, size) for codec in CODECS for size in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("codec", "size"),
    [
        pytest.param(codec, size, marks=[] if size == 3 or codec in FEW else [pytest.mark.exhaustive])
        for codec, size in FITS
    ],
)
def test_parameters_are_identical_after_twenty_steps(pool, codec, size):
    ranks = pool.run(twenty_steps, size, codec=codec)
    assert all(torch.equal(ranks[0][0], other) for other, _, _ in ranks)
    first, last = (sum(losses[i] for _, losses, _ in ranks) / size for i in (0, -1))
    assert last < 0.8 * first
    stats = ranks[0][2]
    assert stats["steps"] == 20
    assert size == 1 or stats["bytes_sent"] > 0
    assert stats["nmse"] >= 0 or codec == "fp32"


def test_fp32_is_plain_ddp(pool):
    plain, ours = (pool.run(twenty_steps, 2, codec=codec)[0][0] for codec in (None, "fp32"))
    assert torch.allclose(plain, ours, atol=1e-5)


def in_mode(group, mode, make=sgd):
    """Ten steps in one of DDP's modes, in the metric of the optimizer that `make` makes; returns the weights."""
    rank = torch.distributed.get_rank(group)
    codec = NUQSGD(bits=4, bucket_size=256)
    if mode == "accumulate":
        model = wrap(group, codec, make=make)
        optimizer = model.optimizer
        for step in range(10):
            optimizer.zero_grad()
            x, y = batch(rank, step)
            with model.no_sync():
                torch.nn.functional.cross_entropy(model(x[:4]), y[:4]).backward()
            torch.nn.functional.cross_entropy(model(x[4:]), y[4:]).backward()
            optimizer.step()
        assert laconic.stats(model)["steps"] == 10
        return weights(model)
    if mode == "uneven inputs":
        model = wrap(group, codec, make=make, metric="tensor")
        with model.join():
            train(model, model.optimizer, range(4 + 3 * rank), rank)
        assert laconic.stats(model)["steps"] == 10
        return weights(model)
    if mode == "unused":
        net = network()
        net.register_module("extra", torch.nn.Linear(64, 64))
        forward = torch.nn.Sequential.forward
        net.forward = lambda x: forward(torch.nn.Sequential(*list(net)[:5]), x)
        model = wrap(group, codec, net=net, make=make, find_unused_parameters=True)
    elif mode in ("frozen after wrapping", "thawed after wrapping"):
        net = network()
        net[2].requires_grad_(mode == "frozen after wrapping")
        model = wrap(group, None, net=net, make=make, find_unused_parameters=True)
        net[2].requires_grad_(mode == "thawed after wrapping")
        policy = Policy(min_values=100, group_values=1000)
        laconic.compress(model, codec, optimizer=model.optimizer, policy=policy)
        net[2].requires_grad_(False)
    elif mode == "ignored":
        net = network()
        net.add_module("extra", torch.nn.Linear(64, 64))
        net.forward = lambda x: torch.nn.Sequential.forward(net[:5], x)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["extra.weight", "extra.bias"])
        model = wrap(group, codec, net=net, make=make)
    elif mode == "bf16":
        model = wrap(group, codec, net=network().to(torch.bfloat16), make=make)
        model.module.forward = lambda x, f=model.module.forward: f(x.to(torch.bfloat16)).float()
    elif mode == "warm-up":
        model = wrap(group, codec, policy=Policy(min_values=100, warmup_steps=5), make=make)
    elif mode == "everything compressed":
        model = wrap(group, codec, policy=Policy(min_values=0, min_dims=0, group_values=10**9), make=make)
    elif mode == "nothing compressed":
        model = wrap(group, codec, policy=Policy(min_values=10**9), make=make)
    elif mode == "small DDP buckets":
        model = wrap(group, codec, bucket_cap_mb=0.004, make=make)
    else:
        model = wrap(group, codec, make=make, **{mode: True})
    train(model, model.optimizer, range(10), rank)
    return weights(model)


MODES = [
    "accumulate",
    "uneven inputs",
    "unused",
    "frozen after wrapping",
    "thawed after wrapping",
    "ignored",
    "static_graph",
    "gradient_as_bucket_view",
    "bf16",
    "warm-up",
    "everything compressed",
    "nothing compressed",
    "small DDP buckets",
]


@pytest.mark.parametrize("make", [sgd, adamw])
@pytest.mark.parametrize("mode", MODES)
def test_modes(pool, mode, make):
    a, b, c = pool.run(in_mode, 3, mode=mode, make=make)
    assert torch.isfinite(a).all()
    assert torch.equal(a, b)
    assert torch.equal(a, c)


@pytest.mark.parametrize("make", [sgd, adamw])
def test_ddp_s_own_buckets_do_not_matter(pool, make):
    """Groups are ours: whatever DDP's buckets, the same values are quantised together with the same random numbers."""
    modes = ("gradient_as_bucket_view", "small DDP buckets")
    large, small = (pool.run(in_mode, 2, mode=mode, make=make)[0] for mode in modes)
    assert torch.equal(large, small)


def two_models_and_a_subgroup(group):
    rank = torch.distributed.get_rank(group)
    a, b = wrap(group, "nuqsgd"), wrap(group, "ef-sign", net=network(seed=1))
    opt_a, opt_b = sgd(a), sgd(b)
    for step in range(5):
        x, y = batch(rank, step)
        opt_a.zero_grad(), opt_b.zero_grad()
        torch.nn.functional.cross_entropy(a(x) + b(x), y).backward()
        opt_a.step(), opt_b.step()
    return weights(a), weights(b)


def test_several_models_in_one_process(pool):
    ranks = pool.run(two_models_and_a_subgroup, 3)
    for i in range(2):
        assert all(torch.equal(ranks[0][i], other[i]) for other in ranks)


def with_scaler(group, broken_rank, codec, make):
    """Scaled losses in float16 fashion; one rank's gradient overflows at step 3."""
    rank = torch.distributed.get_rank(group)
    model = wrap(group, CODECS[codec], make=make)
    optimizer, scaler = model.optimizer, torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scales = []
    for step in range(6):
        x, y = batch(rank, step)
        if step == 3 and rank == broken_rank:
            x[0, 0] = torch.inf
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return weights(model), scales


@pytest.mark.parametrize(("codec", "make"), [("ef-sign", sgd), ("dithered", sgd), ("dithered", adamw)])
def test_a_loss_scaler_sees_every_rank_s_overflow(pool, codec, make):
    ranks = pool.run(with_scaler, 3, broken_rank=1, codec=codec, make=make)
    assert all(torch.equal(ranks[0][0], other) for other, _ in ranks)
    assert torch.isfinite(ranks[0][0]).all()
    assert all(scales == [2.0**10] * 3 + [2.0**9] * 3 for _, scales in ranks)


class Writer:
    def __init__(self) -> None:
        self.rows = {}

    def add_scalar(self, tag, scalar_value, global_step):
        self.rows[tag] = (scalar_value, global_step)


def logged(group, codec, make):
    model = wrap(group, codec, error_every=100, make=make)
    train(model, model.optimizer, range(3), torch.distributed.get_rank(group))
    writer = Writer()
    laconic.log_stats(model, writer)
    return writer.rows, laconic.stats(model)


STATISTICS = {
    "sgd": ("nuqsgd", sgd, "NUQSGD(bits=4, bucket_size=512, p=0.5): asked for", "none: SGD takes"),
    "measured later": ("nuqsgd", adamw, "NUQSGD(bits=4, bucket_size=512, p=0.5): asked for", "second moment: AdamW"),
    "adamw": (laconic.Dithered(error=0.2), adamw, "Dithered(error=0.2): asked for", "second moment: AdamW divides"),
}


@pytest.mark.parametrize("case", STATISTICS)
def test_statistics(pool, case):
    codec, make, said, metric = STATISTICS[case]
    rows, stats = pool.run(logged, 2, codec=codec, make=make)[0]
    assert rows["laconic/ratio"] == (stats["ratio"], 3)
    assert 0 < stats["nmse"] < 1
    assert 0 < stats["bits"] < 32
    assert stats["values"] == sum(p.numel() for p in network().parameters())
    assert stats["codec"] == said
    assert stats["metric"].startswith(metric)
    assert not any("codec" in tag or "metric" in tag for tag in rows)


def counted(group, case):
    """Three steps of which each is measured, after a step that overflows or after a state of step 90 was loaded."""
    rank = torch.distributed.get_rank(group)
    model = wrap(group, "nuqsgd", error_every=1)
    if case == "overflow":
        (model(batch(rank, 0)[0]).sum() * torch.inf).backward()
    elif case == "resumed":
        laconic.load_state_dict(model, {**laconic.state_dict(model), "step": torch.tensor(90)})
    train(model, sgd(model), range(3), rank)
    return laconic.stats(model)


@pytest.mark.parametrize(("case", "steps"), [("overflow", 4), ("resumed", 93)])
def test_statistics_after(pool, case, steps):
    usual, found = (pool.run(counted, 2, case=name)[0] for name in ("usual", case))
    assert found["steps"] == steps
    for name in ("values", "bytes_sent", "bytes_received", "ratio"):
        assert found[name] == usual[name]
    assert found["nmse"] == pytest.approx(usual["nmse"], rel=0.2)


def compiled(group):
    return torch.compile(wrap(group, None))


def replicated(group):
    return torch.distributed._composable.replicate(network())


def called(name):
    """A model of a class of this name: that is what they are told by, without importing what defines them."""
    return type(name, (torch.nn.Linear,), {})(4, 4)


def hooked(group):
    """A model with a hook of PyTorch's, and laconic's refusal of it, which leaves nothing behind."""
    model = wrap(group, None)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    with contextlib.suppress(ValueError):
        laconic.compress(model, "nuqsgd")
    return model


MISTAKES = {
    "needs a model wrapped in DistributedDataParallel, got Sequential": lambda g: laconic.compress(network()),
    "got FullyShardedDataParallel; FSDP1 has no hook": lambda g: laconic.compress(called("FullyShardedDataParallel")),
    "got OptimizedModule; compress the model in Dist": lambda g: laconic.compress(compiled(g)),
    "got DataParallel; DataParallel sends nothing": lambda g: laconic.compress(torch.nn.DataParallel(network())),
    "replicate() hides its DistributedDataParallel": lambda g: laconic.compress(replicated(g)),
    "compress trainer.strategy.model from a callback": lambda g: laconic.compress(called("LightningModule")),
    "got int; call it as compress(DistributedDataParallel(model), ...)": lambda g: laconic.compress(7),
    "compressed already; call compress() once": lambda g: laconic.compress(wrap(g, "nuqsgd"), "nuqsgd"),
    "not compressed; call laconic.compress": lambda g: laconic.stats(network()),
    "optimizer: this Adam has none of the model's parameters; give the one that": lambda g: wrap(
        g, "nuqsgd", optimizer=torch.optim.Adam(network().parameters())
    ),
    "model must be a torch.nn.Module; got 3": lambda g: laconic.stats(3),
    "model must be a torch.nn.Module; got 'net'": lambda g: laconic.hook("net"),
    "optimizer must be one such as torch.optim.SGD(model.parameters()), got 'sgd'": lambda g: laconic.DPSGD(
        network(), "sgd", laconic.Ring()
    ),
    "policy: its codecs have 'module.*', which matches no parameter; names are such as '0.weight'": lambda g: wrap(
        g, "nuqsgd", policy=Policy(codecs={"module.*": None})
    ),
    "this model has a communication hook already, and DDP takes one": lambda g: laconic.compress(hooked(g)),
    "this SGD has none of the model's parameters": lambda g: laconic.ECDPSGD(
        network(), torch.optim.SGD(network().parameters()), laconic.Ring()
    ),
    "ECD-PSGD mixes models itself: give it the module inside, model.module": lambda g: laconic.ECDPSGD(
        wrap(g, None), torch.optim.SGD(network().parameters()), laconic.Ring()
    ),
    "unknown codec 'nuqsgd-four'; names are such as nuqsgd, nuqsgd-4": lambda g: wrap(g, "nuqsgd-four"),
    "unknown scheme 'nuq'": lambda g: laconic.compress(wrap(g, None), "nuq"),
    "policy: group_values must be a whole number, at least 1; got 0": lambda g: Policy(group_values=0),
    "policy: warmup_steps must be a whole number, at least 0; got 1.5": lambda g: Policy(warmup_steps=1.5),
    "policy: verify_every must be a whole number": lambda g: Policy(verify_every=-1),
    "codecs must be such as {'embed*': None}; got 'nuqsgd'": lambda g: Policy(codecs="nuqsgd"),
    "codecs: a pattern of names must be text such as 'embed*'; got 1": lambda g: Policy(codecs={1: "nuqsgd"}),
    "unknown scheme 'nuqs'": lambda g: Policy(codecs={"*": "nuqs"}),
    "error_every must be a whole number, at least 0; got -3": lambda g: wrap(g, "nuqsgd", error_every=-3),
    "seed must be a whole number from 0 to 9223372036854775807; got 0.5": lambda g: wrap(g, "nuqsgd", seed=0.5),
    "timeout must be a timedelta or seconds, above 0 and up to 1000000000; got '30'": lambda g: wrap(
        g, "nuqsgd", timeout="30"
    ),
    "1000000000; got -1": lambda g: wrap(g, "nuqsgd", timeout=-1),
    "1000000000; got inf": lambda g: wrap(g, "nuqsgd", timeout=float("inf")),
    "1000000000; got True": lambda g: laconic.DPSGD(network(), None, laconic.Ring(), timeout=True),
    "1000000000; got datetime.timedelta(days=999999999": lambda g: wrap(g, "nuqsgd", timeout=timedelta.max),
    "codec='auto' chooses the exchange, too; leave exchange='all_gather' out": lambda g: wrap(
        g, "auto", exchange="all_gather"
    ),
    "parameter bias is complex64, and only real numbers are exchanged": lambda g: wrap(
        g, "nuqsgd", net=torch.nn.Linear(64, 64, dtype=torch.complex64)
    ),
    "the gradient of 0.weight is sparse, and only dense ones are averaged; use sparse=False": lambda g: wrap(
        g, "nuqsgd", net=torch.nn.Sequential(torch.nn.Embedding(64, 64, sparse=True))
    ),
    "all_reduce sums values on the wire and cannot carry QSGDInf": lambda g: laconic.set_codec(
        wrap(g, "fp32", exchange="all_reduce"), "qsgdinf"
    ),
    "unknown scheme 'qsdg'": lambda g: laconic.hook(network(), "qsdg-4"),
    "unknown scheme 'auto'": lambda g: laconic.set_codec(wrap(g, "fp32"), "auto"),
}


def mistake(group, said):
    try:
        MISTAKES[said](group)
    except (TypeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_explained(pool, said):
    assert said in pool.run(mistake, 1, said=said)[0]
