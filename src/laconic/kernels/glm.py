"""What the GLM kernels share: codes of the losses, and what SGD and the inner steps of CA-SGD read and change.

Inside a block of s batches every vector that SGD would hold is a combination of what it held at the start and of the
sampled rows Y:

    x = A_xx x₀ + A_xu u₀ + Yᵀ p_x,     u = A_ux x₀ + A_uu u₀ + Yᵀ p_u,     x̄ = A_ax x₀ + A_au u₀ + A_aa x̄₀ + Yᵀ p_a.

One step changes the few numbers A and p instead of the vectors: with the momentum u ← μ u + λ x + g Y_jᵀ r and the step
x ← x − η u, each row of A changes as its vector does, and so does each p, whose entries for batch j begin at g r. The
margins come from the Gram matrix: Y_j x = A_xx Y_j x₀ + A_xu Y_j u₀ + Σ_{i<j} G_ji p_x,i. Nothing else is needed, hence
no message. `kernels.reference.recurrence` is the specification; `cpu` and `gpu` have compiled kernels.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

CSR = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Compressed sparse rows: values, their columns (int32), and where each row begins (int64)."""


class LinkCode(IntEnum):
    """The number by which a kernel knows a family's loss φ(z, y) and its derivative.

    Part of the compiled kernels' interface: a number never changes. MULTINOMIAL and ONE_VS_REST have C outputs,
    all others one.
    """

    GAUSSIAN = 0
    BERNOULLI = 1
    MULTINOMIAL = 2
    POISSON = 3
    ONE_VS_REST = 4


def check_link_code(code: int | None, n_outputs: int) -> int:
    """The code as the plain integer that kernels take; raises ValueError unless they know it for so many outputs.

    Every function that launches a kernel calls this first, so that no kernel ever meets a code it does not know.

    >>> check_link_code(LinkCode.POISSON, 1)
    3
    """
    if code is None or code not in LinkCode.__members__.values():
        known = ", ".join(f"{member.name} = {member.value}" for member in LinkCode)
        raise ValueError(f"no kernel knows the link code {code!r}; known are {known}")
    several = code in (LinkCode.MULTINOMIAL, LinkCode.ONE_VS_REST)
    if several != (n_outputs > 1):
        outputs = "several outputs" if several else "one output"
        raise ValueError(f"the link code {LinkCode(code).name} takes margins of {outputs}, got {n_outputs}")
    return int(code)


@dataclass(slots=True)
class Intercept:
    """The intercept (C,), its momentum and its average, each on every rank; changed in place.

    fitted  whether it is updated
    """

    value: torch.Tensor
    momentum: torch.Tensor
    average: torch.Tensor
    fitted: bool = True


@dataclass(slots=True)
class Weights:
    """Weights x, momentum u and average x̄, (C, n) each, changed in place; u and x̄ are (0, n) where not in use."""

    x: torch.Tensor
    momentum: torch.Tensor
    average: torch.Tensor
    intercept: Intercept


@dataclass(frozen=True, slots=True)
class Batches:
    """A run of SGD in one process: consecutive batches of an epoch, and how to step through them.

    rows      (k,) rows of the matrix, one batch after another (int64)
    size      rows per batch; the last may have fewer
    y, w      (m,) targets and weights of all rows
    offset    (m, C), or (0, C) for none
    rates     (n_batches,) η (float64)
    mix       (n_batches,) share of the newest iterate in the average (float64); (0,) for none
    l2, l1    factors of ‖x‖²/2 and ‖x‖₁
    momentum  μ
    mean      whether a batch's gradient is a mean, not a sum
    narrow    whether margins are rounded to bfloat16
    """

    rows: np.ndarray
    size: int
    y: torch.Tensor
    w: torch.Tensor
    offset: torch.Tensor
    rates: np.ndarray
    mix: np.ndarray
    l2: float
    l1: float
    momentum: float
    mean: bool
    narrow: bool


@dataclass(frozen=True, slots=True)
class Block:
    """One block of CA-SGD: s batches of rows, k in all, and how to step through them.

    cuts       (s + 1,) where each batch begins, and where the last ends (int64)
    margins    (k, C) Y x₀
    momenta    (k, C) Y u₀, or (0, C) without momentum
    triangle   for each batch j its rows of G up to where the batch begins, one after another: Σ_j b_j cuts[j] numbers
    y, w       (k,) targets and weights
    offset     (k, C)
    rates      (s,) η (float64), or (s, M) of M models whose margins lie side by side
    scales     (s,) g: 1 / b_j for a mean gradient, 1 for a sum (float64)
    mix        (s,) share of the newest iterate in the average: 1 before averaging begins (float64); (0,) for none
    l2         λ, or (M,)
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
    l2: float | np.ndarray
    momentum: float


@dataclass(frozen=True, slots=True)
class Combination:
    """The vectors at the end of a block, as combinations of those at its start.

    A     (3, 3, M) coefficients of x₀, u₀, x̄₀ (columns) in x, u, x̄ (rows) of each model, float64
    p     (3, C, k) coefficients of the rows of Y in x, u, x̄
    loss  (M,) Σ w φ over all rows, each at the iterate of its own step
    """

    A: np.ndarray
    p: torch.Tensor
    loss: np.ndarray


def triangle_size(cuts: np.ndarray) -> int:
    """Number of entries in the strictly lower block triangle of G.

    >>> triangle_size(np.array([0, 2, 4, 5]))
    8
    """
    return int((np.diff(cuts) * cuts[:-1]).sum())
