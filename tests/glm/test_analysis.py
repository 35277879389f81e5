"""The nine terms: every measurement lies under its bound, and the iteration that is measured is the solver's."""

from dataclasses import replace
from functools import cache
from statistics import median

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from glm.tables import ALL_FAMILIES, FAMILIES, Case, plain, vectors
from laconic.glm import KNOBS, RECIPES, Family, Gaussian, Precision, Problem, State, begin, recipe, solve
from laconic.glm.analysis import Sample, take_sample
from laconic.glm.analysis.bounds import LARGEST, bound, propagate, term_bound
from laconic.glm.analysis.disturbances import Disturbance, half_ulp, known, largest, summed
from laconic.glm.analysis.iteration import follow, measured_term, outer_iteration
from laconic.kernels.formats import FORMATS

S, FORMAT_NAMES = 5, ("fp32", "fp16", "bf16")
CASES = [
    Case("gaussian", batch_size=4, alpha=0.0),
    Case("gaussian", batch_size=32, layout="sparse", weighted=True, gradient="sum"),
    Case("bernoulli", batch_size=4, layout="sparse", offset=True),
    Case("bernoulli", batch_size=1, intercept=False, weighted=True, schedule="cosine"),
    Case("multinomial3", batch_size=4, alpha=0.0, weighted=True),
    Case("multinomial5", batch_size=4, layout="sparse"),
    Case("poisson", batch_size=4, offset=True, weighted=True),
    Case("poisson", batch_size=4, intercept=False, schedule="invscaling"),
]


def state_of(case: Case, epochs: int) -> tuple[Problem, State]:
    """After some epochs in float64, or at the start."""
    problem, settings = case.problem(), case.options("sgd", max_iter=max(1, epochs), tol=None)
    return problem, solve(problem, settings).state if epochs else begin(problem, settings)


@cache
def sample_of(case: Case, epochs: int = 2, n_ranks: int = 3) -> Sample:
    problem, state = state_of(case, epochs)
    return take_sample(problem, case.options("ca_sgd", S), state, n_ranks)


@cache
def maps_of(sample: Sample, operand: str | None = None):
    return propagate(follow(sample, None if operand is None else FORMATS[operand]))


# --- rounding and derivatives -----------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.floats(-1e5, 1e5) | st.floats(-1e-3, 1e-3) | st.floats(-1e-40, 1e-40))
def test_half_a_unit_bounds_every_rounding(value):
    x = torch.tensor([value], dtype=torch.float64)
    for fmt in FORMATS.values():
        error = (fmt.round(x) - x).abs()
        assert bool(error <= half_ulp(x.abs(), fmt)), fmt
        assert bool(error <= known(x, fmt)), fmt
        assert bool(half_ulp(x.abs(), fmt) <= half_ulp(x.abs() * 2, fmt)), fmt


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.name != "fp64"], ids=lambda f: f.name)
def test_half_a_unit_is_the_unit_roundoff_where_numbers_are_normal(fmt):
    """At 1 the bound is u, but for what a detour over float32 adds; above the range there is none."""
    one = torch.ones(1, dtype=torch.float64)
    assert fmt.unit_roundoff <= float(half_ulp(one, fmt)) <= fmt.unit_roundoff * (1 + 2.0**-12)
    top = torch.tensor([largest(fmt)], dtype=torch.float64)
    assert bool(half_ulp(top, fmt).isfinite())
    assert bool(half_ulp(2 * top, fmt).isinf())
    assert float(known(top, fmt)) == 0


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_sum_over_ranks_is_bounded_in_any_order(name):
    fmt, g = FORMATS[name], torch.Generator().manual_seed(0)
    parts = torch.randn(5, 400, generator=g, dtype=torch.float64)
    limit = summed(parts, fmt)
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [3, 4, 1, 0, 2]):
        total = fmt.round(parts[order[0]])
        for p in order[1:]:
            total = fmt.round(total + fmt.round(parts[p]))
        assert bool(((total - parts.sum(0)).abs() <= limit).all())


STATED = [name for name, kind in ALL_FAMILIES.items() if type(kind).derivative_change is not Family.derivative_change]


@pytest.mark.parametrize("family", STATED)
def test_derivatives_change_by_no_more_than_their_bounds(family):
    """The Hessian is that of the loss; changes and remainders lie under their bounds, far from z and near it."""
    kind, g = ALL_FAMILIES[family], torch.Generator().manual_seed(1)
    c = kind.n_outputs
    z = 3 * torch.randn(200, c, generator=g, dtype=torch.float64)
    y = torch.arange(200.0, dtype=torch.float64) % 2
    hessian = kind.hessian(z, y)
    assert torch.allclose(Family.hessian(kind, z, y), hessian, atol=1e-12)
    for i in range(3):
        exact = torch.autograd.functional.hessian(lambda t, i=i: kind.loss(t[None], y[i : i + 1])[0], z[i])
        assert torch.allclose(hessian[i], exact, atol=1e-12)
    for size in (1e-6, 1e-2, 1.0, 5.0):
        t = size * (2 * torch.rand(200, c, generator=g, dtype=torch.float64) - 1)
        change = kind.derivative(z + t, y) - kind.derivative(z, y)
        rest = change - (hessian @ t[:, :, None])[:, :, 0]
        noise = 1e-14 * (1 if kind.kernel_code in (0, 1, 2) else (z.abs() + t.abs()).exp())
        assert bool((change.abs() <= kind.derivative_change(z, y, t.abs()) + noise).all())
        assert bool((rest.abs() <= kind.derivative_remainder(z, y, t.abs()) + noise).all())


def test_a_family_without_bounds_is_refused():
    class Unbounded(Gaussian):
        name = "unbounded"
        derivative_remainder = Family.derivative_remainder

    sample = replace(sample_of(CASES[0]), family=Unbounded())
    with pytest.raises(ValueError, match="the family 'unbounded' states no bounds of its derivatives"):
        term_bound(propagate(follow(sample)), "residual", FORMATS["bf16"])


# --- the iteration ----------------------------------------------------------------------------------------------------

ODD = Precision(data="fp16", margin="bf16", recurrence="tf32", residual="bf16", update="fp8-e4m3", weights="fp16")


@pytest.mark.parametrize("name", [*RECIPES, ODD], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_measured_is_what_the_solver_does(case, name):
    """On one rank, bit for bit: the first block of a fit."""
    precision = recipe(name)
    problem = case.problem(precision.format("data").storage)
    problem = replace(problem, family=plain(problem.family))
    settings = case.options("ca_sgd", S, recipe=precision, max_iter=1, tol=None)
    state = begin(problem, settings)
    sample = take_sample(case.problem(), settings, state, n_ranks=1)
    solved = solve(problem, settings, state=state, callbacks=[lambda progress: True]).state
    assert solved.iteration == sample.n_batches
    found, w = outer_iteration(sample, precision), vectors(solved)["x"].double()
    if case.layout == "sparse":  # columns that are zero in all rows come last
        assert float(found.norm()) == pytest.approx(float(w.norm()), rel=1e-12)
    else:
        assert torch.equal(found, w)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_unrounded_run_is_the_iteration_in_float64(case):
    sample = sample_of(case)
    path, found = follow(sample), outer_iteration(sample, recipe("fp64"))
    ends = torch.cat([path.weights[-1], path.shrink[-1] * sample.idle], 1)
    assert float((found[:, :-1] - ends).norm()) <= 1e-13 * path.size
    start = torch.cat([sample.x, sample.idle, sample.intercept[:, None]], 1)
    assert float((found - start).norm()) == pytest.approx(path.movement, rel=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_propagation_is_the_derivative(case):
    """A small disturbance of the margins moves the weights by what the quadratic form says."""
    sample, g = sample_of(case), torch.Generator().manual_seed(2)
    maps = maps_of(sample)
    zeta = 1e-6 * torch.randn(sample.offset.shape, generator=g, dtype=torch.float64)
    moved = outer_iteration(replace(sample, offset=sample.offset + zeta), recipe("fp64"))
    found = float((moved - outer_iteration(sample, recipe("fp64"))).norm())
    flat = zeta.reshape(-1)
    assert found == pytest.approx(float(flat @ maps.margin.S @ flat) ** 0.5, rel=1e-3, abs=1e-14)
    assert found <= maps.margin.worst(zeta.abs()) * (1 + 1e-3)


# --- the law ----------------------------------------------------------------------------------------------------------


def check(sample: Sample, knob: str, name: str) -> float | None:
    """Assert the law; bound ÷ measured."""
    maps, movement = maps_of(sample), maps_of(sample).path.movement
    if knob == "gram_accumulate":
        maps = maps_of(sample, name)
    limit = term_bound(maps, knob, FORMATS[name]) * maps.path.movement / movement
    value = measured_term(sample, knob, name, movement)
    assert value <= limit, (knob, name, value, limit)
    return limit / value if value > 1e-11 and limit < float("inf") else None


@pytest.mark.parametrize("knob", KNOBS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_term_lies_under_its_bound(case, knob):
    for epochs in (0, 2):
        for name in FORMAT_NAMES:
            check(sample_of(case, epochs), knob, name)


@pytest.mark.parametrize("knob", ["gram_operand", "update"])
@pytest.mark.parametrize("name", ["tf32", "fp8-e4m3", "fp8-e5m2"])
def test_operands_of_tensor_cores(knob, name):
    for case in CASES[::3]:
        check(sample_of(case), knob, name)


def random_sample(family: str, n: int, s: int, b: int, eta: float, n_ranks: int = 4, scale: float = 1.0) -> Sample:
    """A random problem, at a random iterate near its optimum."""
    g = torch.Generator().manual_seed(n + s)
    k, c = s * b, FAMILIES[family].n_outputs
    X = torch.randn(k, n, generator=g, dtype=torch.float64)
    x = torch.randn(c, n, generator=g, dtype=torch.float64) / n**0.5
    z = X @ x.T
    noise = torch.rand(k, generator=g, dtype=torch.float64)
    y = {
        "gaussian": lambda: z[:, 0] + noise,
        "bernoulli": lambda: (noise < z[:, 0].sigmoid()).double(),
        "poisson": lambda: torch.poisson(z[:, 0].exp(), generator=g),
        "multinomial3": lambda: z.argmax(1).double(),
    }[family]()
    case = Case(family, batch_size=b, alpha=1e-3 if scale == 1 else 0.0, intercept=scale == 1)
    problem = replace(case.problem(), columns=type(case.problem().columns)(scale * X), y=y)
    settings = case.options("ca_sgd", s, eta0=eta / scale**2)
    state = begin(problem, settings)
    state.weights.x.copy_(x * 0.9 / scale)
    return take_sample(problem, settings, state, n_ranks)


RANDOM = [("gaussian", 20, 8, 8, 0.1), ("bernoulli", 100, 8, 16, 0.5), ("poisson", 20, 16, 8, 0.05)]
RANDOM += [("multinomial3", 40, 8, 8, 0.5), ("gaussian", 200, 16, 16, 0.02)]


@pytest.mark.parametrize("options", RANDOM, ids=str)
def test_bounds_are_near_what_is_measured(options):
    sample = random_sample(*options)
    ratios = [check(sample, knob, name) for knob in KNOBS for name in FORMAT_NAMES]
    assert median([ratio for ratio in ratios if ratio is not None]) <= 30


def test_numbers_of_the_format_cost_nothing():
    """Small whole numbers are exact in bfloat16: data, operands and accumulator are not rounded at all."""
    sample = random_sample("bernoulli", 20, 8, 8, 0.1)
    sample = replace(sample, Y=sample.Y.round())
    for knob in ("data", "gram_operand", "gram_accumulate"):
        maps = maps_of(sample)
        assert term_bound(maps, knob, FORMATS["bf16"]) <= 1e-11
        assert measured_term(sample, knob, "bf16", maps.path.movement) == 0


def test_numbers_below_a_format_s_range():
    """fp16's smallest numbers lie evenly: the relative error is large there, and the bound says so."""
    sample = random_sample("bernoulli", 20, 8, 8, 0.1, scale=1e-5)
    assert check(sample, "data", "fp16") is not None
    usual = random_sample("bernoulli", 20, 8, 8, 0.1)
    small, normal = (measured_term(a, "data", "fp16", follow(a).movement) for a in (sample, usual))
    assert small > 3 * normal


def test_an_analysis_that_would_not_fit_is_refused():
    sample = random_sample("multinomial3", 4, 64, 33, 0.1)
    assert sample.Y.shape[0] * 3 > LARGEST
    with pytest.raises(ValueError, match=f"outputs is 6336, and an analysis takes at most {LARGEST}: lower s"):
        propagate(follow(sample))


class Shift(Disturbance):
    """Margins moved by up to one: far beyond first order."""

    def margin(self, j, before, moved):
        return torch.ones_like(before)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_bounds_hold_beyond_first_order(family):
    """One row alone, so that no sum of bounds hides that the curvature counts."""
    sample = random_sample(family, 3, 1, 1, 0.1)
    exact, shifted = (outer_iteration(a, recipe("fp64")) for a in (sample, replace(sample, offset=sample.offset + 1)))
    limit = bound(maps_of(sample), Shift(maps_of(sample).path, FORMATS["bf16"]))
    moved = float((shifted - exact).norm()) / maps_of(sample).path.movement
    assert moved <= limit * (1 + 1e-12)
    assert moved > limit / (3 if family == "bernoulli" else 1.001)


@pytest.mark.parametrize("case", [c for c in CASES if "multinomial" not in c.family and c.batch_size < 32], ids=str)
def test_changes_of_the_weights_are_carried_to_the_end(case):
    """What batch 0 leaves in the weights is met by all batches after it, and comes out as `carry` says."""
    sample, first = sample_of(case), int(sample_of(case).cuts[1])
    maps = maps_of(sample)
    rest = replace(
        sample,
        **{name: getattr(sample, name)[first:] for name in ("Y", "y", "w", "offset")},
        **{name: getattr(sample, name)[1:] for name in ("rates", "scales")},
        cuts=sample.cuts[1:] - first,
        x=maps.path.weights[1],
        intercept=sample.intercept - float(sample.fitted) * (maps.path.c[:first] @ maps.path.r[:first]),
    )
    shift = 1e-6 * torch.randn(1, sample.Y.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact, shifted = (outer_iteration(a, recipe("fp64")) for a in (rest, replace(rest, x=rest.x + shift)))
    moved = (maps.carry[0][:, : shift.shape[1]] @ shift[0]).norm()
    assert float((shifted - exact).norm()) == pytest.approx(float(moved), rel=1e-4)
    assert float(moved) <= float(maps.growth[1:].prod()) * float(shift.norm()) * (1 + 1e-9)
