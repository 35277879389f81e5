"""Topologies: the graphs of decentralised training, each with its mixing matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import torch

from laconic.options import check_int

Matrix = Sequence[Sequence[float]] | np.ndarray | torch.Tensor
Edge = tuple[int, int]
TOLERANCE = 1e-6
"""How far a row may be from symmetric, or its sum from 1, since matrices may have been stored in float32."""


@dataclass(frozen=True)
class Mixing:
    """A mixing matrix W (n, n): symmetric, W_ij ≥ 0, Σ_j W_ij = 1, and W_ij > 0 for neighbours i and j.

    Any other matrix raises `ValueError`, which names the row; so does a graph on which models would never agree,
    because it is disconnected or only swaps them.

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
        if self.spectral_gap < TOLERANCE:
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
    def edges(self) -> list[Edge]:
        """Pairs (i, j) of neighbours, i < j."""
        return [(i, j) for i in range(self.size) for j in self.neighbours(i) if i < j]

    @cached_property
    def eigenvalues(self) -> tuple[float, ...]:
        """λ₁ = 1 ≥ λ₂ ≥ … ≥ λ_n."""
        return tuple(np.linalg.eigvalsh(np.array(self.rows))[::-1].tolist())

    @property
    def spectral_gap(self) -> float:
        """1 − max(|λ₂|, |λ_n|): the share of disagreement that one round of mixing removes at least; 1 for one node."""
        return 1.0 - max((abs(x) for x in self.eigenvalues[1:]), default=0.0)


def metropolis(size: int, edges: Sequence[Edge]) -> Mixing:
    """Weights W_ij = 1 / (1 + max(deg i, deg j)) on each edge, and the remainder to 1 on the diagonal.

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
    """Raise `ValueError`, naming the first invalid row."""
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


class Topology(ABC):
    """A graph on any number n of nodes, with its mixing matrix. Members are frozen."""

    @abstractmethod
    def edges(self, size: int) -> Sequence[Edge]:
        """Pairs of neighbours among `size` nodes; order and repetitions do not matter."""

    def mixing(self, size: int) -> Mixing:
        """The mixing matrix on `size` nodes: Metropolis weights, unless the topology has its own."""
        if size < 1:
            raise ValueError(f"a topology needs at least 1 node, got {size}")
        return metropolis(size, self.edges(size))


@dataclass(frozen=True, slots=True)
class Ring(Topology):
    """Node i talks to i − 1 and i + 1 (mod n); weights 1/3. The gap falls as 1 / n²: (4π² / 3) / n² for large n.

    >>> Ring().mixing(4).neighbours(0), round(Ring().mixing(16).spectral_gap, 3)
    ([1, 3], 0.051)
    """

    def edges(self, size: int) -> Sequence[Edge]:
        return [(i, (i + 1) % size) for i in range(size)]


@dataclass(frozen=True, slots=True)
class Torus(Topology):
    """Nodes on a grid, row by row; each talks to four: left, right, above, below, around the borders. Weights 1/5.

    n_rows  of the grid; by default the divisor of n nearest to √n from below. If n is prime, one row, which is a ring

    >>> Torus().mixing(16).neighbours(0), round(Torus().mixing(16).spectral_gap, 3)
    ([1, 3, 4, 12], 0.4)
    """

    n_rows: int | None = None

    def __post_init__(self) -> None:
        if self.n_rows is not None:
            object.__setattr__(self, "n_rows", check_int("n_rows", self.n_rows, 1, owner="torus"))

    def edges(self, size: int) -> Sequence[Edge]:
        grid = np.arange(size).reshape(self._rows(size), -1)
        return [pair for axis in (0, 1) for pair in enumerate(np.roll(grid, -1, axis).ravel().tolist())]

    def _rows(self, size: int) -> int:
        if self.n_rows is None:
            return max(r for r in range(1, int(size**0.5) + 1) if size % r == 0)
        if size % self.n_rows:
            raise ValueError(f"torus: n_rows must divide the number of nodes, got {self.n_rows} rows for {size} nodes")
        return self.n_rows


@dataclass(frozen=True, slots=True)
class Exponential(Topology):
    """Node i talks to i ± 2^k (mod n) for every 2^k ≤ n / 2: about 2 log₂ n neighbours, and a gap that falls as
    1 / log n only.

    >>> Exponential().mixing(16).neighbours(0), round(Exponential().mixing(16).spectral_gap, 3)
    ([1, 2, 4, 8, 12, 14, 15], 0.5)
    """

    def edges(self, size: int) -> Sequence[Edge]:
        distances = [2**k for k in range(size.bit_length()) if 2 * 2**k <= size]
        return [(i, (i + distance) % size) for i in range(size) for distance in distances]


@dataclass(frozen=True, slots=True)
class Star(Topology):
    """Every node talks to the hub only; weights 1/n, and 1 − 1/n for a leaf on itself. The gap is 1/n.

    A leaf's link carries one code each way: the place for a node on a slow link.

    hub  the node in the middle

    >>> Star().mixing(4).neighbours(3), round(Star().mixing(4).spectral_gap, 3)
    ([0], 0.25)
    """

    hub: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hub", check_int("hub", self.hub, 0, owner="star"))

    def edges(self, size: int) -> Sequence[Edge]:
        if self.hub >= size:
            raise ValueError(f"star: hub must be a node from 0 to {size - 1}, got {self.hub}")
        return [(self.hub, i) for i in range(size) if i != self.hub]


@dataclass(frozen=True, slots=True)
class Complete(Topology):
    """All weights 1/n: one round of mixing is an average, gap 1.

    >>> round(Complete().mixing(5).spectral_gap, 9)
    1.0
    """

    def edges(self, size: int) -> Sequence[Edge]:
        return list(combinations(range(size), 2))


@dataclass(frozen=True, init=False)
class Custom(Topology):
    """The graph and the weights of a given mixing matrix, for exactly as many nodes as it has rows.

    matrix  (n, n), as nested lists, a NumPy array, a tensor or a `Mixing`

    >>> Custom([[0.75, 0.25], [0.25, 0.75]]).mixing(2).spectral_gap
    0.5
    """

    matrix: Mixing

    def __init__(self, matrix: Matrix | Mixing) -> None:
        object.__setattr__(self, "matrix", matrix if isinstance(matrix, Mixing) else Mixing.of(matrix))

    def edges(self, size: int) -> Sequence[Edge]:
        return self.mixing(size).edges

    def mixing(self, size: int) -> Mixing:
        """The matrix itself."""
        if size != self.matrix.size:
            raise ValueError(f"the mixing matrix has {self.matrix.size} rows and there are {size} nodes")
        return self.matrix


TOPOLOGIES: dict[str, type[Topology]] = {
    kind.__name__.lower(): kind for kind in (Ring, Torus, Exponential, Star, Complete)
}


def topology_for(what: Topology | str) -> Topology:
    """A topology, given as itself or by name.

    >>> topology_for("ring"), topology_for(Star(hub=2))
    (Ring(), Star(hub=2))
    """
    if isinstance(what, Topology):
        return what
    if not isinstance(what, str):
        raise TypeError(f"topology must be one such as Ring(), or a name such as 'ring', got {what!r}")
    if what not in TOPOLOGIES:
        raise ValueError(f"unknown topology {what!r}; choose one of {', '.join(TOPOLOGIES)}")
    return TOPOLOGIES[what]()
