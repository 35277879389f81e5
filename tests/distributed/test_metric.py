"""The metric: what each optimizer's m is, what becomes of parameters without one, and what is divided by it."""

import copy

import pytest
import torch
from models import network

import laconic
from laconic import NUQSGD, Codec, Dithered, ErrorFeedback, Identity, Policy
from laconic.errors import InvalidOption
from laconic.exchange import AllGather, ScatterReduce
from laconic.training.choices import metric_for
from laconic.training.groups import make_groups

SHAPES = {"weight": (12, 40), "embedding": (64, 8), "late": (16, 16)}
SIZES = {"weight": 1.0, "embedding": 1e-3, "late": 1e-2}
EVERYTHING = Policy(min_values=0, min_dims=0)
DITHERED = Codec(Dithered(error=0.1))


def parameters() -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()}


def gradient(name: str, step: int) -> torch.Tensor:
    """Sizes differ from parameter to parameter and from row to row; of the embedding only the first rows are used."""
    generator = torch.Generator().manual_seed(100 * step + len(name))
    rows = SIZES[name] * torch.rand(SHAPES[name][0], 1, generator=generator)
    g = rows * torch.randn(SHAPES[name], generator=generator)
    return g * (torch.arange(len(g)) < 20)[:, None] if name == "embedding" else g


def take_steps(optimizer, ps, n_steps: int, start: int = 0) -> None:
    for step in range(start, start + n_steps):
        for name, p in ps.items():
            p.grad = gradient(name, step) if name != "late" else None
        optimizer.step()


def one_group(ps):
    (group,) = make_groups(ps.items(), EVERYTHING)
    return group


def found(metric, group) -> dict[str, torch.Tensor]:
    """m of each parameter."""
    ones = torch.ones(group.n_values)
    metric.scale(group).multiply(ones)
    return group.views(ones)


def adam(squares, beta=0.999):
    """Σ (1 − β) β^(t−i) g_i² / (1 − β^t)."""
    weights = [(1 - beta) * beta ** (len(squares) - 1 - i) for i in range(len(squares))]
    return sum(w * s for w, s in zip(weights, squares, strict=True)) / (1 - beta ** len(squares))


def amsgrad(squares, beta=0.999):
    so_far = [adam(squares[: t + 1]) * (1 - beta ** (t + 1)) for t in range(len(squares))]
    return torch.stack(so_far).amax(0) / (1 - beta ** len(squares))


def rmsprop(squares, alpha=0.99):
    return adam(squares, alpha) * (1 - alpha ** len(squares))


def adamax(squares, beta=0.999):
    u = torch.zeros_like(squares[0])
    for s in squares:
        u = torch.maximum(beta * u, s.sqrt() + 1e-8)
    return u.square()


OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}, adam),
    "adam, other beta": (torch.optim.Adam, {"betas": (0.9, 0.9)}, lambda squares: adam(squares, 0.9)),
    "adam, one by one": (torch.optim.Adam, {"foreach": False}, adam),
    "adam, foreach": (torch.optim.Adam, {"foreach": True}, adam),
    "adam, fused": (torch.optim.Adam, {"fused": True}, adam),
    "adamw": (torch.optim.AdamW, {}, adam),
    "amsgrad": (torch.optim.AdamW, {"amsgrad": True}, amsgrad),
    "nadam": (torch.optim.NAdam, {}, adam),
    "radam": (torch.optim.RAdam, {}, adam),
    "adamax": (torch.optim.Adamax, {}, adamax),
    "rmsprop": (torch.optim.RMSprop, {}, rmsprop),
    "rmsprop, centred": (torch.optim.RMSprop, {"centered": True}, rmsprop),
    "adagrad": (torch.optim.Adagrad, {}, lambda squares: sum(squares) / len(squares)),
    "adagrad, fused": (torch.optim.Adagrad, {"fused": True}, lambda squares: sum(squares) / len(squares)),
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_m_is_the_root_of_the_second_moment_with_a_floor(case):
    make, options, second_moment = OPTIMIZERS[case]
    ps = parameters()
    optimizer, group = make(ps.values(), **options), one_group(ps)
    metric = metric_for("auto", optimizer, ps, DITHERED)
    assert metric.scale(group) is None  # nothing is known before the first step: float32
    take_steps(optimizer, ps, 3)
    m, means = found(metric, group), {}
    for name in ("weight", "embedding"):
        v = second_moment([gradient(name, step).square() for step in range(3)])
        means[name] = v.mean()
        ratio = m[name] / torch.maximum(v, 0.01 * v.mean()).sqrt()
        assert 0.9999 < ratio.min() < 1.01, name
        assert 1.05 < ratio.max() < 1.0608, name  # the root is taken to within 6 %
    n = {name: ps[name].numel() for name in means}
    over_all = sum(n[name] * means[name] for name in means) / sum(n.values())
    assert torch.allclose(m["late"], torch.full((16, 16), 0.1 * float(over_all) ** 0.5), rtol=1e-4, atol=0)


STATES = {
    "not the optimizer's": 1.0,
    "added later": None,
    "all zero": 1.0,
    "never used": None,
}


@pytest.mark.parametrize("case", STATES)
def test_parameters_without_a_second_moment(case):
    """A group of them alone goes in float32 while the optimizer holds them, and with m = 1 if it never does."""
    p = {"late": torch.nn.Parameter(torch.ones(16, 16))}
    other = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([other])
    metric, group = metric_for("auto", optimizer, p, DITHERED), one_group(p)
    assert metric.scale(group).parts == ()
    if case != "not the optimizer's":
        optimizer.add_param_group({"params": p.values()})
        p["late"].grad = torch.zeros(16, 16) if case == "all zero" else None
        optimizer.step()
    m = None if metric.scale(group) is None else found(metric, group)["late"].unique().item()
    assert m == STATES[case]


def test_rows_never_used_get_no_more_noise_than_the_floor():
    ps = parameters()
    optimizer, group = torch.optim.AdamW(ps.values()), one_group(ps)
    metric = metric_for("auto", optimizer, ps, DITHERED)
    take_steps(optimizer, ps, 5)
    flat = torch.cat([gradient(name, 9).reshape(-1) for name in group.names])
    scale, m = metric.scale(group), found(metric, group)
    exact = flat.clone()
    scale.divide(flat)
    rms = flat.square().mean().sqrt()
    result = AllGather().average(flat, DITHERED, laconic.Stream(seed=3)).value
    scale.multiply(result)
    error = group.views((result - exact).abs())
    half_step = rms * (12 * 0.1) ** 0.5 / 2
    for name in SHAPES:
        assert (error[name] <= m[name] * half_step * 1.001 + 1e-6 * exact.abs().max()).all(), name
    assert torch.equal(m["embedding"][20:], m["embedding"].min().expand(44, 8))


def test_floors_are_those_of_every_16th_step_and_saved():
    ps = parameters()
    optimizer, group = torch.optim.AdamW(ps.values()), one_group(ps)
    metric, floors = metric_for("auto", optimizer, ps, DITHERED), {}
    for step in range(1, 35):
        take_steps(optimizer, ps, 1, start=step)
        floors[step] = found(metric, group)["embedding"].min()
        resumed = metric_for("auto", optimizer, ps, DITHERED)
        resumed.load(metric.state())
        assert torch.equal(found(resumed, group)["weight"], found(metric, group)["weight"]), step
    changes = [step for step in range(2, 35) if floors[step] != floors[step - 1]]
    assert changes == [*range(2, 17), 32]


CODECS = {"nuqsgd": NUQSGD(bits=4, bucket_size=256), "dithered": Dithered(error=0.3), "bf16": Identity("bf16")}


@pytest.mark.parametrize("exchange", [AllGather(), ScatterReduce()], ids=lambda e: e.name)
@pytest.mark.parametrize("inner", CODECS)
def test_sent_and_kept_is_what_was_given(inner, exchange):
    """Law 4 in the gradient's units: error memory is divided by m and multiplied again."""
    ps = parameters()
    optimizer, group = torch.optim.AdamW(ps.values()), one_group(ps)
    metric = metric_for("auto", optimizer, ps, DITHERED)
    take_steps(optimizer, ps, 2)
    codec = Codec(ErrorFeedback(CODECS[inner]))
    memory = codec.new_memory(torch.empty(group.n_values))
    for step in range(2, 5):
        v = torch.cat([gradient(name, step).reshape(-1) for name in group.names])
        given, m = v + memory, torch.cat([found(metric, group)[name].reshape(-1) for name in group.names])
        way = exchange if inner != "bf16" else AllGather()
        sent = way.average(v, codec, laconic.Stream(step=step), memory=memory, out=v, scale=metric.scale(group)).value
        if exchange.name == "all_gather":
            assert ((sent + memory - given).abs() <= 1e-5 * (given.abs() + m * (given / m).abs().max())).all()
        assert bool((memory != 0).any())


MESSAGES = {
    "unknown name": ({"metric": "adam"}, "metric must be one of auto, none, tensor, model; got 'adam'"),
    "several optimizers": ({"optimizer": []}, "optimizer must be one of torch.optim, got list; with several, leave it"),
    "one error": ({"metric": "model"}, "metric='model' needs a codec such as Dithered\\(error=0.3\\); got NUQSGD"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_mistakes_are_explained(case):
    options, message = MESSAGES[case]
    with pytest.raises((InvalidOption, TypeError), match=message):
        laconic.SimulatedWorkers(network(), "nuqsgd", 2, **options)


class Wrapper:
    """As Accelerate and Lightning wrap an optimizer."""

    def __init__(self, optimizer) -> None:
        self.optimizer = optimizer


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """As torch's: the state of some parameters only, in an optimizer inside."""

    def __init__(self, ps, kind) -> None:
        self.optim = kind(ps)
        super().__init__(self.optim.param_groups, {})


CHOICES = {
    "none": (lambda ps: None, Dithered(error=0.1), "none: no optimizer was given"),
    "adam": (torch.optim.Adam, NUQSGD(), "second moment: Adam divides every coordinate by its root"),
    "wrapped": (lambda ps: Wrapper(torch.optim.AdamW(ps)), Dithered(), "second moment: AdamW divides"),
    "sgd": (torch.optim.SGD, Dithered(error=0.3), "model: SGD takes every coordinate of the gradient as it is"),
    "sgd, bits": (torch.optim.SGD, Dithered(bits=1.5), "none: SGD takes every coordinate of the gradient as it is"),
    "sgd, nuqsgd": (torch.optim.SGD, NUQSGD(), "none: SGD takes every coordinate of the gradient as it is"),
    "unknown": (torch.optim.Rprop, NUQSGD(), "tensor: how Rprop scales coordinates is not known"),
    "sharded": (lambda ps: ZeroRedundancyOptimizer(ps, torch.optim.Adam), NUQSGD(), "tensor: ZeroRedundancyOptimizer"),
    "sharded sgd": (lambda ps: ZeroRedundancyOptimizer(ps, torch.optim.SGD), Dithered(), "model: ZeroRedundancy"),
    "float": (torch.optim.Adam, Identity("bf16"), "none: a float format loses the same share of every value"),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_choice_follows_the_optimizer_s_type_and_says_why(case):
    make, quantizer, said = CHOICES[case]
    net = network()
    metric = laconic.SimulatedWorkers(net, quantizer, 2, optimizer=make(net.parameters())).metric
    assert f"{metric.name}: {metric.reason}".startswith(said)


def test_one_error_for_the_model_is_one_step_for_all_groups():
    ps = parameters()
    groups = make_groups(ps.items(), Policy(min_values=0, group_values=1))
    metric = metric_for("model", None, ps, DITHERED)
    assert all(metric.codec(DITHERED, group) == DITHERED for group in groups)
    flats = {group: gradient(group.names[0], 0).reshape(-1) for group in groups}
    for group, flat in flats.items():
        metric.observe(group, flat)
    over_all = torch.cat(list(flats.values())).square().mean()
    for group, flat in flats.items():
        step = metric.codec(DITHERED, group).quantizer.steps(flat)[0]
        wanted = float(min(0.1 * over_all, 4.0 * flat.square().mean()))
        assert float(step.square() / 12) == pytest.approx(wanted, rel=0.1)
    before = copy.deepcopy(metric.state())
    metric.observe(groups[0], torch.full((groups[0].n_values,), torch.inf))  # a step that a loss scaler throws away
    assert metric.state() == before


OTHERS = (NUQSGD(), Dithered(bits=2.0), Dithered(error=0.1, bucket_size=512), Identity("bf16"))


@pytest.mark.parametrize("quantizer", [*OTHERS, *map(ErrorFeedback, OTHERS)], ids=repr)
def test_one_error_for_the_model_leaves_codecs_without_one_as_they_are(quantizer):
    """`Policy(codecs=...)` may name them for some parameters of a model that has `Dithered`."""
    ps = parameters()
    metric, group = metric_for("model", None, ps, DITHERED), one_group(ps)
    metric.observe(group, torch.ones(group.n_values))
    assert metric.codec(Codec(quantizer), group) == Codec(quantizer)
