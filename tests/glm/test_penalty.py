"""The penalty and its proximal step."""

import pytest
import torch

from laconic.glm import Penalty

X = torch.tensor([[3.0, -2.0, 0.5, -0.1, 0.0], [1e-3, -1e-3, 0.3, -0.3, 10.0]], dtype=torch.float64)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.0, 0.0), (0.4, 0.0), (0.4, 1.0), (0.4, 0.25)])
def test_the_value(alpha, ratio):
    expected = alpha * ((1 - ratio) / 2 * X.square().sum() + ratio * X.abs().sum())
    assert Penalty(alpha, ratio).value(X) == pytest.approx(float(expected), rel=1e-15)
    assert Penalty(alpha, ratio).value(X[:, :0]) == 0
    parts = Penalty(alpha, ratio).value(X[:, :2]) + Penalty(alpha, ratio).value(X[:, 2:])
    assert parts == pytest.approx(float(expected), rel=1e-14)  # what ranks hold adds up


@pytest.mark.parametrize("step", [0.0, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("alpha", "ratio"), [(0.3, 1.0), (0.3, 0.5), (2.0, 0.1)])
def test_the_proximal_step_is_optimal(alpha, ratio, step):
    """p = argmin ‖p − x‖² / 2 + step l1 ‖p‖₁: x − p is step l1 times a subgradient of the absolute values at p."""
    penalty = Penalty(alpha, ratio)
    p = penalty.shrink(X, step)
    subgradient = X - p
    assert (subgradient.abs() <= penalty.l1 * step + 1e-15).all()
    moved = p != 0
    assert torch.allclose(subgradient[moved], penalty.l1 * step * p[moved].sign(), atol=1e-15)

    def cost(q):
        return (q - X).square() / 2 + step * penalty.l1 * q.abs()

    g = torch.Generator().manual_seed(0)
    for size in (1e-3, 0.1, 3.0):
        other = p + size * torch.randn(p.shape, generator=g, dtype=torch.float64)
        assert (cost(p) <= cost(other) + 1e-15).all()


def test_without_l1_there_is_no_proximal_step():
    assert Penalty(0.3, 0.0).shrink(X, 1.0) is X


def test_non_finite_weights_stay_so():
    shrunk = Penalty(0.3, 1.0).shrink(torch.tensor([torch.inf, -torch.inf, torch.nan]), 0.1)
    assert not shrunk.isfinite().any()


def test_bad_arguments():
    for alpha in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="alpha must be finite and not negative, got"):
            Penalty(alpha)
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="l1_ratio must lie between 0 and 1, got"):
            Penalty(0.1, ratio)
