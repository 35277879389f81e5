"""Every family: loss, derivative, inverse link and deviance belong together, and stay numbers far out."""

import math

import numpy as np
import pytest
import torch

from glm.tables import FAMILIES, M, N, arrays
from laconic.glm import Constant, DenseColumns, Family, Multinomial, Penalty, Problem, Sampling, Settings, solve
from laconic.kernels.cpu.links import residuals as compiled_residuals
from laconic.kernels.formats import FORMATS
from laconic.kernels.reference.recurrence import residuals

DTYPES = [torch.float32, torch.float64]
EVERY = {"argvalues": list(FAMILIES.values()), "ids": list(FAMILIES)}


def targets(family: Family, m: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Targets of the family's domain, its ends included."""
    g = torch.Generator().manual_seed(m)
    if family.name == "multinomial":
        return torch.randint(family.n_classes, (m,), generator=g).to(dtype)
    if family.name == "bernoulli":
        return torch.randint(2, (m,), generator=g).to(dtype)
    if family.name == "poisson":
        return torch.randint(5, (m,), generator=g).to(dtype)
    return torch.randn(m, generator=g, dtype=torch.float64).to(dtype)


def margins(family: Family, m: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    g = torch.Generator().manual_seed(m + 1)
    C = family.n_outputs(torch.zeros(1))
    return (3 * torch.randn(m, C, generator=g, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("family", **EVERY)
def test_values_against_the_distribution(family):
    """φ is the negative log-likelihood up to a constant of y: differences between two margins say so."""
    z, y = margins(family, 50), targets(family, 50)
    other = z.flip(0)

    def likelihood(z):
        if family.name == "gaussian":
            return torch.distributions.Normal(z[:, 0], 1.0).log_prob(y)
        if family.name == "bernoulli":
            return torch.distributions.Bernoulli(logits=z[:, 0]).log_prob(y)
        if family.name == "poisson":
            return torch.distributions.Poisson(z[:, 0].exp()).log_prob(y)
        return torch.distributions.Categorical(logits=z).log_prob(y)

    assert torch.allclose(family.loss(z, y) - family.loss(other, y), likelihood(other) - likelihood(z), atol=1e-12)


@pytest.mark.parametrize("family", **EVERY)
def test_the_derivative_is_that_of_the_loss(family):
    z, y = margins(family, 50).requires_grad_(), targets(family, 50)
    family.loss(z, y).sum().backward()
    assert torch.allclose(family.derivative(z.detach(), y), z.grad, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("family", **EVERY)
def test_the_derivative_is_mean_minus_target(family):
    """The link is canonical, so the mean is the derivative of the cumulant."""
    z, y = margins(family, 50), targets(family, 50)
    target = torch.nn.functional.one_hot(y.long(), family.n_classes) if family.name == "multinomial" else y[:, None]
    assert torch.allclose(family.derivative(z, y), family.mean(z).reshape(z.shape) - target, atol=1e-14)


@pytest.mark.parametrize("family", **EVERY)
def test_deviance(family):
    """Never negative; nothing at the saturated model; otherwise 2 φ up to a constant of y."""
    z, y = margins(family, 50), targets(family, 50)
    assert (family.deviance(z, y) >= -1e-13).all()
    assert (family.deviance(z, y) > 1e-3).any()
    saturated = {
        "gaussian": lambda: y[:, None],
        "bernoulli": lambda: (2e4 * y - 1e4)[:, None],
        "multinomial": lambda: 1e4 * torch.nn.functional.one_hot(y.long(), z.shape[1]).double(),
        "poisson": lambda: torch.where(y > 0, y.clamp(min=1).log(), -1e4)[:, None],
    }[family.name]()
    assert torch.allclose(family.deviance(saturated, y), torch.zeros(50, dtype=torch.float64), atol=1e-12)
    twice = 2 * (family.loss(z, y) - family.loss(z.flip(0), y))
    assert torch.allclose(family.deviance(z, y) - family.deviance(z.flip(0), y), twice, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", **EVERY)
def test_far_out_margins_never_give_nan(family, dtype):
    y = targets(family, 6, dtype)
    C = family.n_outputs(y)
    for z in (1e4, -1e4, 0.0):
        far = torch.full((6, C), z, dtype=dtype)
        far[::2, 0] = -z
        for value in (family.loss(far, y), family.derivative(far, y), family.mean(far), family.deviance(far, y)):
            assert not value.isnan().any()
            assert value.isfinite().all() or family.name == "poisson"
            assert value.dtype == dtype
        assert (family.loss(far, y) >= 0).all() or family.name == "poisson"
    if family.name == "poisson":
        up = torch.full((6, 1), 1e4, dtype=dtype)
        assert (family.loss(up, y) == torch.inf).all()
        assert (family.derivative(up, y) == torch.inf).all()
        assert (family.mean(-up) == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", **EVERY)
def test_compiled_links_are_torch_s(family, dtype):
    z = margins(family, 64, dtype)
    z[:8] *= 30
    z[8:12, 0], z[12:16, 0] = 1e4, -1e4
    y, w = targets(family, 64, dtype), torch.rand(64, generator=torch.Generator().manual_seed(1)).to(dtype)
    w[::5] = 0
    carrier = FORMATS["fp64" if dtype == torch.float64 else "fp32"]
    expected, expected_loss = residuals(family, z, y, w, carrier)
    r = torch.full_like(z, torch.nan)
    loss = compiled_residuals(int(family.kernel_code), z.numpy(), y.numpy(), w.numpy(), r.numpy())
    tolerance = 20 * torch.finfo(dtype).eps
    assert torch.allclose(r, expected, rtol=tolerance, atol=tolerance)
    assert loss == expected_loss if math.isinf(expected_loss) else loss == pytest.approx(expected_loss, rel=tolerance)
    near = ~torch.isinf(family.loss(z, y))  # where the loss is finite, it agrees as well
    rest = [t[near].contiguous() for t in (z, y, w)]
    expected_loss = residuals(family, *rest, carrier)[1]
    loss = compiled_residuals(int(family.kernel_code), *(t.numpy() for t in rest), torch.empty_like(rest[0]).numpy())
    assert math.isfinite(expected_loss)
    assert loss == pytest.approx(expected_loss, rel=tolerance)


@pytest.mark.parametrize("family", **EVERY)
def test_a_row_of_weight_0_counts_for_nothing(family):
    """Even where its loss is infinite."""
    z, y = torch.full((2, family.n_outputs(torch.zeros(1))), 1e4), torch.zeros(2)
    for w in (torch.zeros(2), torch.tensor([0.0, 1.0])):
        r, loss = residuals(family, z, y, w, FORMATS["fp32"])
        mine = torch.full_like(z, torch.nan)
        compiled = compiled_residuals(int(family.kernel_code), z.numpy(), y.numpy(), w.numpy(), mine.numpy())
        assert compiled == pytest.approx(loss, rel=1e-3)  # a margin of 1e4 has no more digits than that to spare
        assert (r[0] == 0).all()
        assert (mine[0] == 0).all()
        assert torch.allclose(mine, r)
        assert w.any() or loss == 0


@pytest.mark.parametrize("family", **EVERY)
def test_the_start_is_the_best_constant(family):
    y, w = arrays(next(name for name, f in FAMILIES.items() if f is family))["y"], torch.rand(M, dtype=torch.float64)
    mean = family.target_mean(y, w)
    z = family.start(mean)
    C = family.n_outputs(y)
    assert mean.shape == z.shape == (C,)
    slope = (w[:, None] * family.derivative(z.expand(M, C).clone(), y)).sum(0)
    assert torch.allclose(slope, torch.zeros(C, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(family.mean(z[None]).reshape(C), mean, atol=1e-12)


@pytest.mark.parametrize("rate", [1e-300, 1e-20, 1.0, 1e20])
def test_a_rate_may_be_of_any_size(rate):
    """Exposures may be counted in seconds or in dollars."""
    mean = torch.tensor([rate], dtype=torch.float64)
    family = FAMILIES["poisson"]
    assert family.mean(family.start(mean)[None]).item() == pytest.approx(rate, rel=1e-9, abs=0)
    assert family.start(0 * mean).isfinite().all()


@pytest.mark.parametrize("family", **EVERY)
def test_curvature_bounds_the_second_derivative(family):
    y = arrays(next(name for name, f in FAMILIES.items() if f is family))["y"]
    C = family.n_outputs(y)
    if family.name == "poisson":
        assert family.curvature(y) == float(y.max())  # no bound: that of the largest count
        return
    h = 1e-5 * torch.eye(C, dtype=torch.float64)
    for z in margins(family, 40):
        targets = y[:1].expand(C)
        hessian = (family.derivative(z + h, targets) - family.derivative(z - h, targets)) / 2e-5
        assert torch.linalg.eigvalsh(hessian)[-1] <= family.curvature(y) + 1e-8


BAD = [
    ("bernoulli", 2.0, r"bernoulli: targets must be 0 or 1, but row 2 has y = 2"),
    ("bernoulli", -1.0, r"row 2 has y = -1"),
    ("multinomial3", 3.0, r"multinomial: targets must be class numbers from 0 to 2, but row 2 has y = 3"),
    ("multinomial5", 0.5, r"from 0 to 4, but row 2 has y = 0.5"),
    ("multinomial3", -1.0, r"row 2 has y = -1"),
    ("poisson", -0.25, r"poisson: targets must not be negative, but row 2 has y = -0.25"),
]
BAD += [
    (name, bad, rf"targets must be finite, but row 2 has y = {bad}")
    for name in FAMILIES
    for bad in (math.inf, math.nan)
]


@pytest.mark.parametrize(("name", "bad", "message"), BAD)
def test_a_target_outside_the_domain_is_named(name, bad, message):
    y = torch.tensor([0.0, 1.0, bad, bad])
    with pytest.raises(ValueError, match=message):
        FAMILIES[name].check(y)
    with pytest.raises(ValueError, match=message):
        Problem(DenseColumns(torch.zeros(4, 2)), FAMILIES[name], y)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float64])
def test_good_targets_of_any_type_are_taken(dtype):
    for family in FAMILIES.values():
        family.check(torch.tensor([0, 1, 1], dtype=dtype))
        family.check(torch.empty(0, dtype=dtype))


def test_one_class_is_too_few():
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        Multinomial(1)


class Gamma(Family):
    """φ = z + y e⁻ᶻ, for y > 0, with mean eᶻ: the whole of what a new family needs."""

    name = "gamma"

    def loss(self, z, y):
        return z[:, 0] + y * torch.exp(-z[:, 0])

    def derivative(self, z, y):
        return 1 - y[:, None] * torch.exp(-z)

    def mean(self, z):
        return torch.exp(z[:, 0])

    def deviance(self, z, y):
        return 2 * (self.loss(z, y) - 1 - y.log())

    def check(self, y):
        self.is_finite(y)

    def curvature(self, y):
        return 1.0

    def start(self, mean):
        return mean.log()


@pytest.mark.parametrize("solver", ["sgd", "ca_sgd"])
def test_a_new_family_is_one_class(solver):
    g = torch.Generator().manual_seed(2)
    X = torch.randn(400, N, generator=g, dtype=torch.float64) / N**0.5
    truth = torch.linspace(-1, 1, N, dtype=torch.float64)
    noise = np.random.default_rng(5).gamma(50.0, 1 / 50, 400)
    y = torch.exp(X @ truth + 0.5) * torch.from_numpy(noise)
    problem = Problem(DenseColumns(X), Gamma(), y)
    settings = Settings(
        solver,
        s=4,
        sampling=Sampling(batch_size=400),
        schedule=Constant(1.0),
        penalty=Penalty(0.0),
        tol=1e-12,
        max_iter=400,
    )
    solution = solve(problem, settings)
    assert "compiled" not in solution.ran
    z = X @ solution.state.coef[0].double() + solution.state.intercept.double()
    gradient = X.T @ Gamma().derivative(z[:, None], y)[:, 0] / 400
    assert gradient.norm() < 1e-5
    assert (solution.state.coef[0] - truth).norm() < 0.15
    assert Gamma().deviance(z[:, None], y).mean() == pytest.approx(1 / 50, rel=0.2)
