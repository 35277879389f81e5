"""Mixing matrices: which nodes are neighbours, and with what weight they average each other's models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

Matrix = Sequence[Sequence[float]] | np.ndarray | torch.Tensor
TOLERANCE = 1e-6
"""How far a row may be from symmetric, or its sum from 1: matrices come from files in float32, too."""


@dataclass(frozen=True)
class Mixing:
    """W (n, n), symmetric and doubly stochastic: Σ_j W_ij = 1, W_ij = W_ji ≥ 0, and W_ij > 0 for neighbours i and j.

    rows  the matrix, one tuple per row

    Any other matrix raises `ValueError`, which names the row; so does a graph in which models would never agree,
    because it falls into parts or only swaps them.

    >>> mixing = Mixing.of([[0.5, 0.5], [0.5, 0.5]])
    >>> mixing.neighbours(0), mixing.spectral_gap
    ([1], 1.0)
    >>> Mixing.of([[0.5, 0.5], [0.4, 0.6]])
    Traceback (most recent call last):
        ...
    ValueError: mixing matrix: row 0 is not symmetric, W[0][1] = 0.5 but W[1][0] = 0.4
    """

    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, matrix: Matrix) -> "Mixing":
        """A matrix of any kind, checked."""
        rows = matrix.tolist() if isinstance(matrix, torch.Tensor | np.ndarray) else matrix
        try:
            converted = tuple(tuple(float(x) for x in row) for row in rows)
        except (TypeError, ValueError):
            raise TypeError(f"mixing matrix: expected rows of numbers such as [[1.0]], got {matrix!r}") from None
        return cls(converted)

    def __post_init__(self) -> None:
        _check(self.rows)
        matrix = np.array(self.rows)  # exactly symmetric: two nodes must not differ on whether they are neighbours
        symmetric = np.maximum(0.0, (matrix + matrix.T) / 2)
        object.__setattr__(self, "rows", tuple(map(tuple, symmetric.tolist())))
        if self.size > 1 and self.spectral_gap < TOLERANCE:
            raise ValueError(f"mixing matrix: {_why_no_gap(symmetric)}")

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.rows)

    def weight(self, i: int, j: int) -> float:
        """W_ij."""
        return self.rows[i][j]

    def neighbours(self, i: int) -> list[int]:
        """The neighbours of node i, itself not among them, in ascending order."""
        return [j for j, weight in enumerate(self.rows[i]) if weight > 0 and j != i]

    def tracked(self, i: int) -> list[int]:
        """Nodes whose model node i keeps an estimate of: its neighbours and itself, in ascending order."""
        return sorted([i, *self.neighbours(i)])

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs (i, j) of neighbours, i < j."""
        return [(i, j) for i in range(self.size) for j in self.neighbours(i) if i < j]

    @cached_property
    def eigenvalues(self) -> tuple[float, ...]:
        """λ₁ = 1 ≥ λ₂ ≥ … ≥ λ_n."""
        return tuple(np.linalg.eigvalsh(np.array(self.rows))[::-1].tolist())

    @property
    def spectral_gap(self) -> float:
        """1 − max(|λ₂|, |λ_n|): the share of disagreement that one round of mixing removes at least; 1 for one node."""
        if self.size == 1:
            return 1.0
        return 1.0 - max(abs(x) for x in self.eigenvalues[1:])


def metropolis(size: int, edges: Sequence[tuple[int, int]]) -> Mixing:
    """Weights W_ij = 1 / (1 + max(deg i, deg j)) on each edge, and what is left to 1 on the diagonal.

    Symmetric and doubly stochastic on any graph (Xiao and Boyd 2004, "Fast linear iterations for distributed
    averaging"); 1 / (degree + 1) everywhere if all nodes have the same degree.

    >>> metropolis(3, [(0, 1), (1, 2)]).rows[1]
    (0.3333333333333333, 0.33333333333333337, 0.3333333333333333)
    """
    adjacent = np.zeros((size, size))
    for i, j in edges:
        adjacent[i, j] = adjacent[j, i] = i != j
    degree = adjacent.sum(axis=1)
    rows = adjacent / (1 + np.maximum.outer(degree, degree))
    np.fill_diagonal(rows, 1.0 - rows.sum(axis=1))
    return Mixing.of(rows)


def _check(rows: Sequence[Sequence[float]]) -> None:
    """Raise `ValueError` with the first row that is not as it must be."""
    if not rows:
        raise ValueError("mixing matrix: expected at least one row, got none")
    for i, row in enumerate(rows):
        if len(row) != len(rows):
            raise ValueError(f"mixing matrix: row {i} has {len(row)} values, expected {len(rows)}, one per node")
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            if not -TOLERANCE <= weight <= 1 + TOLERANCE:
                raise ValueError(f"mixing matrix: row {i} has W[{i}][{j}] = {weight:g}, expected a weight from 0 to 1")
            if not abs(weight - rows[j][i]) <= TOLERANCE:
                other = f"W[{i}][{j}] = {weight:g} but W[{j}][{i}] = {rows[j][i]:g}"
                raise ValueError(f"mixing matrix: row {i} is not symmetric, {other}")
        if not abs(sum(row) - 1.0) <= TOLERANCE:
            raise ValueError(f"mixing matrix: row {i} sums to {sum(row):g}, expected 1")


def _why_no_gap(matrix: np.ndarray) -> str:
    reached = np.arange(len(matrix)) == 0
    for _ in matrix:
        reached |= (matrix[reached] > 0).any(axis=0)
    lost = np.flatnonzero(~reached)
    if len(lost):
        return f"row {lost[0]}: node {lost[0]} cannot be reached from node 0; add an edge between the parts"
    return "row 0: the nodes only swap their models (λ_n = −1); put some weight on the diagonal"
