"""What the s inner steps of CA-SGD read and leave behind; the recurrence itself is a kernel.

Inside a block of s batches every vector that SGD would hold is a combination of what it held at the start and of the
sampled rows Y:

    x = A_xx x₀ + A_xu u₀ + Yᵀ p_x,     u = A_ux x₀ + A_uu u₀ + Yᵀ p_u,     x̄ = A_ax x₀ + A_au u₀ + A_aa x̄₀ + Yᵀ p_a.

One step changes the few numbers A and p instead of the vectors: with the momentum u ← μ u + λ x + g Y_jᵀ r and the step
x ← x − η u, each row of A does what its vector does, and so does each p, whose entries for batch j begin at g r. The
margins come from the Gram matrix: Y_j x = A_xx Y_j x₀ + A_xu Y_j u₀ + Σ_{i<j} G_ji p_x,i. Nothing else is needed, so no
message is.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class Block:
    """s batches of rows, k in all, and how to step through them.

    cuts       (s + 1,) where each batch begins, and where the last ends (int64)
    margins    (k, C) Y x₀
    momenta    (k, C) Y u₀, or (0, C) without momentum
    triangle   for each batch j its rows of G up to where the batch begins, one after another: Σ_j b_j cuts[j] numbers
    y, w       (k,) targets and weights
    offset     (k, C)
    rates      (s,) η (float64)
    scales     (s,) g: 1 / b_j for a mean gradient, 1 for a sum (float64)
    mix        (s,) share of the newest iterate in the average: 1 before averaging begins (float64); (0,) for none
    l2         λ
    momentum   μ
    """

    cuts: np.ndarray
    margins: torch.Tensor
    momenta: torch.Tensor
    triangle: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor
    offset: torch.Tensor
    rates: np.ndarray
    scales: np.ndarray
    mix: np.ndarray
    l2: float
    momentum: float


@dataclass(slots=True)
class Intercept:
    """The intercept (C,), its momentum and its average, each on every rank; changed in place.

    fitted  whether it moves
    """

    value: torch.Tensor
    momentum: torch.Tensor
    average: torch.Tensor
    fitted: bool = True


@dataclass(frozen=True, slots=True)
class Combination:
    """Where the block ends.

    A     (3, 3) coefficients of x₀, u₀, x̄₀ (columns) in x, u, x̄ (rows), float64
    p     (3, C, k) coefficients of the rows of Y in x, u, x̄
    loss  Σ w φ over all rows, each at the iterate that met it
    """

    A: np.ndarray
    p: torch.Tensor
    loss: float


def triangle_size(cuts: np.ndarray) -> int:
    """Numbers in the strictly lower block triangle.

    >>> triangle_size(np.array([0, 2, 4, 5]))
    8
    """
    return int((np.diff(cuts) * cuts[:-1]).sum())
