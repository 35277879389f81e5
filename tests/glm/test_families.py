"""Every family: loss, derivative, inverse link and deviance belong together, and stay numbers far out."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_tweedie_deviance

from glm.tables import ALL_FAMILIES, FAMILIES, M, N, arrays
from laconic.glm import (
    DenseColumns,
    Family,
    FitOptions,
    Gamma,
    Multinomial,
    NegativeBinomial,
    Problem,
    Tweedie,
    solve,
)  # fmt: skip
from laconic.glm.families import FAMILIES as REGISTRY
from laconic.kernels.cpu.links import residuals as compiled_residuals
from laconic.kernels.formats import FORMATS
from laconic.kernels.glm import LinkCode
from laconic.kernels.reference.recurrence import residuals

DTYPES = [torch.float32, torch.float64]
EVERY = {"argvalues": list(ALL_FAMILIES.values()), "ids": list(ALL_FAMILIES)}
COMPILED = {"argvalues": list(FAMILIES.values()), "ids": list(FAMILIES)}
BOUNDED = ("gaussian", "bernoulli", "multinomial", "one-vs-rest")
"""Families whose loss and curvature are bounded; there a loss is never infinite."""


LIKELIHOODS = {
    "gaussian": lambda family, z, y: torch.distributions.Normal(z[:, 0], 1.0).log_prob(y),
    "bernoulli": lambda family, z, y: torch.distributions.Bernoulli(logits=z[:, 0]).log_prob(y),
    "multinomial": lambda family, z, y: torch.distributions.Categorical(logits=z).log_prob(y),
    "one-vs-rest": lambda family, z, y: (
        torch.distributions.Bernoulli(logits=z).log_prob(torch.nn.functional.one_hot(y.long(), z.shape[1]).to(z)).sum(1)
    ),
    "poisson": lambda family, z, y: torch.distributions.Poisson(z[:, 0].exp()).log_prob(y),
    "gamma": lambda family, z, y: torch.distributions.Gamma(1.0, (-z[:, 0]).exp()).log_prob(y),
    "tweedie": lambda family, z, y: tweedie_density(family.power, z[:, 0].exp(), y),
}
"""log p(y | z), up to a constant of y."""
KNOWN = {name: family for name, family in ALL_FAMILIES.items() if family.name in LIKELIHOODS}


def tweedie_density(p: float, mean: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """y θ − κ(θ), of which the rest of the density does not depend on z."""
    return y * mean ** (1 - p) / (1 - p) - mean ** (2 - p) / (2 - p)


def named(family: Family) -> str:
    """Its name in the tables."""
    return next(name for name, other in ALL_FAMILIES.items() if other is family)


def targets(family: Family, m: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Targets of the family's domain."""
    g = torch.Generator().manual_seed(m)
    C = family.n_outputs
    return family.draw(torch.randn(m, C, generator=g, dtype=torch.float64) / 2, g).to(dtype)


def margins(family: Family, m: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    g = torch.Generator().manual_seed(m + 1)
    C = family.n_outputs
    return (3 * torch.randn(m, C, generator=g, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("family", KNOWN)
def test_values_against_the_distribution(family):
    """φ is the negative log-likelihood up to a constant of y: differences between two margins say so."""
    kind = KNOWN[family]
    z, y = margins(kind, 50), targets(kind, 50)
    other, likelihood = z.flip(0), LIKELIHOODS[kind.name]
    expected = likelihood(kind, other, y) - likelihood(kind, z, y)
    assert torch.allclose(kind.loss(z, y) - kind.loss(other, y), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("family", **EVERY)
def test_targets_are_drawn_from_the_domain_with_the_mean_of_their_margins(family):
    m, C = 40_000, family.n_outputs
    z = torch.linspace(-0.5, 0.5, C, dtype=torch.float64).expand(m, C)
    y = family.draw(z, torch.Generator().manual_seed(0))
    family.check(y)
    assert y.dtype == z.dtype
    mean = family.target_mean(y, torch.ones_like(y))
    assert torch.allclose(mean, family.mean(z[:1]).reshape(C), atol=5 * 2 / m**0.5)  # deviations are below 2


@pytest.mark.parametrize("family", **EVERY)
def test_the_derivative_is_that_of_the_loss(family):
    z, y = margins(family, 50).requires_grad_(), targets(family, 50)
    family.loss(z, y).sum().backward()
    assert torch.allclose(family.derivative(z.detach(), y), z.grad, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in KNOWN if "one-vs-rest" not in name])
def test_the_derivative_is_mean_minus_target(name):
    """Times μ^(1−p) where the variance goes with μ^p under a logarithmic link; other links here are canonical."""
    family = KNOWN[name]
    z, y = margins(family, 50), targets(family, 50)
    target = torch.nn.functional.one_hot(y.long(), family.n_outputs) if family.name == "multinomial" else y[:, None]
    mean = family.mean(z).reshape(z.shape)
    power = {"gamma": 2.0, "tweedie": getattr(family, "power", 1.0)}.get(family.name, 1.0)
    factor = 1.0 if family.name in BOUNDED else mean ** (1 - power)
    assert torch.allclose(family.derivative(z, y), (mean - target) * factor, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("family", **EVERY)
def test_deviance(family):
    """Never negative; nothing at the saturated model; otherwise 2 φ up to a constant of y."""
    z, y = margins(family, 50), targets(family, 50)
    assert (family.deviance(z, y) >= -1e-13).all()
    power = {"poisson": 1.0, "gamma": 2.0, "tweedie": getattr(family, "power", None)}.get(family.name)
    if power is not None:
        expected = mean_tweedie_deviance(y.numpy(), family.mean(z).numpy(), power=power)
        assert float(family.deviance(z, y).mean()) == pytest.approx(expected, rel=1e-10)
    assert (family.deviance(z, y) > 1e-3).any()
    saturated = {
        "gaussian": lambda: y[:, None],
        "bernoulli": lambda: (2e4 * y - 1e4)[:, None],
        "multinomial": lambda: 1e4 * torch.nn.functional.one_hot(y.long(), z.shape[1]).double(),
        "one-vs-rest": lambda: 2e4 * torch.nn.functional.one_hot(y.long(), z.shape[1]).double() - 1e4,
    }.get(family.name, lambda: torch.where(y > 0, y.log(), -1e4)[:, None])()
    assert torch.allclose(family.deviance(saturated, y), torch.zeros(50, dtype=torch.float64), atol=1e-12)
    twice = 2 * (family.loss(z, y) - family.loss(z.flip(0), y))
    assert torch.allclose(family.deviance(z, y) - family.deviance(z.flip(0), y), twice, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", **EVERY)
def test_far_out_margins_never_give_nan(family, dtype):
    y = targets(family, 6, dtype)
    C = family.n_outputs
    for z in (1e4, -1e4, 0.0):
        far = torch.full((6, C), z, dtype=dtype)
        far[::2, 0] = -z
        for value in (family.loss(far, y), family.derivative(far, y), family.mean(far), family.deviance(far, y)):
            assert not value.isnan().any()
            assert value.isfinite().all() or family.name not in BOUNDED
            assert value.dtype == dtype
        assert (family.loss(far, y) >= 0).all() or family.name not in BOUNDED
    if family.name == "poisson":
        up = torch.full((6, 1), 1e4, dtype=dtype)
        assert (family.loss(up, y) == torch.inf).all()
        assert (family.derivative(up, y) == torch.inf).all()
        assert (family.mean(-up) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", **COMPILED)
def test_compiled_links_are_torch_s(family, dtype):
    z = margins(family, 64, dtype)
    z[:8] *= 30
    z[8:12, 0], z[12:16, 0] = 1e4, -1e4
    y, w = targets(family, 64, dtype), torch.rand(64, generator=torch.Generator().manual_seed(1)).to(dtype)
    w[::5] = 0
    carrier = FORMATS["fp64" if dtype == torch.float64 else "fp32"]
    expected, (expected_loss,) = residuals(family, z, y, w, carrier)
    r = torch.full_like(z, torch.nan)
    loss = compiled_residuals(int(family.kernel_code), z.numpy(), y.numpy(), w.numpy(), r.numpy())
    tolerance = 20 * torch.finfo(dtype).eps
    assert torch.allclose(r, expected, rtol=tolerance, atol=tolerance)
    assert loss == expected_loss if math.isinf(expected_loss) else loss == pytest.approx(expected_loss, rel=tolerance)
    near = ~torch.isinf(family.loss(z, y))  # where the loss is finite, it agrees as well
    rest = [t[near].contiguous() for t in (z, y, w)]
    (expected_loss,) = residuals(family, *rest, carrier)[1]
    loss = compiled_residuals(int(family.kernel_code), *(t.numpy() for t in rest), torch.empty_like(rest[0]).numpy())
    assert math.isfinite(expected_loss)
    assert loss == pytest.approx(expected_loss, rel=tolerance)


@pytest.mark.parametrize("family", **COMPILED)
def test_a_row_of_weight_0_counts_for_nothing(family):
    """Even where its loss is infinite."""
    z, y = torch.full((2, family.n_outputs), 1e4), torch.zeros(2)
    for w in (torch.zeros(2), torch.tensor([0.0, 1.0])):
        r, (loss,) = residuals(family, z, y, w, FORMATS["fp32"])
        mine = torch.full_like(z, torch.nan)
        compiled = compiled_residuals(int(family.kernel_code), z.numpy(), y.numpy(), w.numpy(), mine.numpy())
        assert compiled == pytest.approx(loss, rel=1e-3)  # a margin of 1e4 has no more digits than that to spare
        assert (r[0] == 0).all()
        assert (mine[0] == 0).all()
        assert torch.allclose(mine, r)
        assert w.any() or loss == 0


@pytest.mark.parametrize("family", **EVERY)
def test_the_start_is_the_best_constant(family):
    y, w = arrays(named(family))["y"], torch.rand(M, dtype=torch.float64)
    mean = family.target_mean(y, w)
    z = family.start(mean)
    C = family.n_outputs
    assert mean.shape == z.shape == (C,)
    slope = (w[:, None] * family.derivative(z.expand(M, C).clone(), y)).sum(0)
    assert torch.allclose(slope, torch.zeros(C, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(family.mean(z[None]).reshape(C), mean, atol=1e-12)


@pytest.mark.parametrize("theta", [1.0, 3.5])
def test_large_negative_binomial_counts_are_gamma_s(theta):
    """φ becomes θ times gamma's, up to a constant, with all of its digits: its terms are 1e13 times as large."""
    y = torch.full((5,), 1e12, dtype=torch.float64)
    z = y[:, None].log() + torch.tensor([[-1.0], [-1e-3], [0.0], [1e-3], [1.0]], dtype=torch.float64)
    (loss, slope, bent), (own_loss, own_slope, own_bent) = (
        family.expand(z, y, curved=True) for family in (NegativeBinomial(theta), Gamma())
    )
    assert torch.allclose(loss - loss[2], theta * (own_loss - own_loss[2]), rtol=0, atol=1e-9)
    assert torch.allclose(slope, theta * own_slope, rtol=0, atol=1e-9)
    assert torch.allclose(bent, theta * own_bent, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rate", [1e-300, 1e-20, 1.0, 1e20])
def test_a_rate_may_be_of_any_size(rate):
    """Exposures may be counted in seconds or in dollars."""
    mean = torch.tensor([rate], dtype=torch.float64)
    family = ALL_FAMILIES["poisson"]
    assert family.mean(family.start(mean)[None]).item() == pytest.approx(rate, rel=1e-9, abs=0)
    assert family.start(0 * mean).isfinite().all()


@pytest.mark.parametrize("family", **EVERY)
def test_curvature_bounds_the_second_derivative(family):
    y = arrays(named(family))["y"]
    C = family.n_outputs
    if not hasattr(family, "power") and family.name not in BOUNDED:
        assert math.isfinite(family.curvature(y))
        return
    if family.name not in BOUNDED:  # no bound: at the null model, or where the mean is the largest target
        null, top = family.null(y, torch.ones_like(y)), y.max()[None]
        near = [float(family.hessian(z.reshape(1, 1), top)) for z in (null, y.max().log())]
        assert family.curvature(y) == pytest.approx(near[1] if family.name == "poisson" else max(near))
        return
    h = 1e-5 * torch.eye(C, dtype=torch.float64)
    for z in margins(family, 40):
        targets = y[:1].expand(C)
        hessian = (family.derivative(z + h, targets) - family.derivative(z - h, targets)) / 2e-5
        assert torch.linalg.eigvalsh(hessian)[-1] <= family.curvature(y) + 1e-8


BAD = [
    ("bernoulli", 2.0, r"bernoulli: targets must be 0 or 1, but row 3 has y = 2"),
    ("bernoulli", -1.0, r"row 3 has y = -1"),
    ("multinomial3", 3.0, r"multinomial: targets must be class numbers from 0 to 2, but row 3 has y = 3"),
    ("multinomial5", 0.5, r"from 0 to 4, but row 3 has y = 0.5"),
    ("multinomial3", -1.0, r"row 3 has y = -1"),
    ("gamma", 0.0, r"gamma: targets must be positive, but row 3 has y = 0"),
    ("tweedie1.5", -0.25, r"tweedie: targets must not be negative, but row 3 has y = -0.25"),
    ("poisson", -0.25, r"poisson: targets must not be negative, but row 3 has y = -0.25"),
]
BAD += [
    (name, bad, rf"targets must be finite, but row 3 has y = {bad}")
    for name in ALL_FAMILIES
    for bad in (math.inf, math.nan)
]


@pytest.mark.parametrize(("name", "bad", "message"), BAD)
def test_a_target_outside_the_domain_is_named(name, bad, message):
    y = torch.tensor([1.0, 1.0, bad, bad])
    with pytest.raises(ValueError, match=message):
        ALL_FAMILIES[name].check(y)
    with pytest.raises(ValueError, match=message):
        Problem(DenseColumns(torch.zeros(4, 2)), ALL_FAMILIES[name], y)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float64])
def test_good_targets_of_any_type_are_taken(dtype):
    for family in ALL_FAMILIES.values():
        family.check(torch.tensor([1, 1], dtype=dtype))
        family.check(torch.empty(0, dtype=dtype))


def test_one_class_is_too_few():
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        Multinomial(1)


@pytest.mark.parametrize("family", **EVERY)
@pytest.mark.parametrize("shifted", [False, True], ids=["", "offset"])
def test_the_null_model_is_the_best_constant(family, shifted):
    """No features, an offset or none: the gradient of the sum is 0 there, and the loss above it everywhere near."""
    data, C = arrays(named(family)), family.n_outputs
    y, w = data["y"], data["weights"]
    offset = data["offset"][:, None].expand(M, C) * torch.linspace(1, 2, C, dtype=torch.float64) if shifted else None
    c = family.null(y, w, offset)
    assert c.shape == (C,)
    z = (0 if offset is None else offset) + c.expand(M, C)
    slopes = w[:, None] * family.derivative(z, y)
    assert torch.allclose(slopes.sum(0), slopes.new_zeros(C), rtol=0, atol=1e-13 * float(slopes.abs().sum()))
    for seed in range(20):  # whatever the rounding errors of the sums
        rows = torch.randperm(M, generator=torch.Generator().manual_seed(seed))
        again = family.null(y[rows], w[rows], offset if offset is None else offset[rows])
        assert torch.allclose(again, c, rtol=0, atol=1e-13)
    for step in (-0.01, 0.01):
        assert (w * family.loss(z + step * torch.eye(C, dtype=torch.float64)[0], y)).sum() > (
            w * family.loss(z, y)
        ).sum()


@pytest.mark.parametrize("family", **EVERY)
@pytest.mark.parametrize("by", [-900.0, 900.0])
def test_a_constant_in_the_offset_moves_the_null_model_by_as_much(family, by):
    """Also where e to that constant is no number: exposures in other units."""
    data, C = arrays(named(family)), family.n_outputs
    y, w, offset = data["y"], data["weights"], data["offset"][:, None].expand(M, C)
    assert torch.allclose(family.null(y, w, offset + by), family.null(y, w, offset) - by, rtol=0, atol=1e-11)


def test_every_code_is_a_family_s():
    assert {family.kernel_code for family in FAMILIES.values()} == set(LinkCode)


def test_names():
    """What users type: each family once, at both doors."""
    assert list(REGISTRY)[:7] == ["logistic", "multinomial", "one_vs_rest", "linear", "poisson", "gamma", "tweedie"]
    losses = {name: family.loss_option for name, family in REGISTRY.items() if not family.classifies}
    assert len(set(losses.values())) == len(losses)
    assert (
        losses.items()
        >= {
            "linear": "squared_error",
            "poisson": "poisson",
            "gamma": "gamma",
            "tweedie": "tweedie",
        }.items()
    )
    assert REGISTRY["multinomial"].of(4).n_outputs == 4
    assert REGISTRY["tweedie"].of(options={"tweedie_power": 1.2}).power == 1.2
    with pytest.raises(ValueError, match="hinge'; choose one of logistic, multinomial, one_vs_rest, linear"):
        FitOptions(family="hinge")
    for power in (1, 2, 0.5, True, "1.5", math.nan):
        with pytest.raises(ValueError, match="tweedie_power must lie between 1 and 2"):
            Tweedie(power)


@pytest.mark.parametrize("solver", ["sgd", "ca_sgd"])
@pytest.mark.parametrize("family", [Gamma(), Tweedie(1.5)], ids=["gamma", "tweedie"])
def test_families_without_a_kernel_run_in_plain_torch(solver, family):
    g = torch.Generator().manual_seed(2)
    X = torch.randn(400, N, generator=g, dtype=torch.float64) / N**0.5
    truth = torch.linspace(-1, 1, N, dtype=torch.float64)
    noise = np.random.default_rng(5).gamma(50.0, 1 / 50, 400)
    y = torch.exp(X @ truth + 0.5) * torch.from_numpy(noise)
    problem = Problem(DenseColumns(X), family, y)
    steps = {"learning_rate": "constant", "eta0": 1.0, "batch_size": 400, "tol": 1e-12, "max_iter": 400}
    solution = solve(problem, FitOptions(solver=solver, s=4, recipe="fp32", alpha=0.0, **steps))
    assert "compiled" not in solution.ran
    z = X @ solution.state.coef[0].double() + solution.state.intercept.double()
    gradient = X.T @ family.derivative(z[:, None], y)[:, 0] / 400
    assert gradient.norm() < 1e-5
    assert (solution.state.coef[0] - truth).norm() < 0.15
    if family.name == "gamma":
        assert family.deviance(z[:, None], y).mean() == pytest.approx(1 / 50, rel=0.2)
