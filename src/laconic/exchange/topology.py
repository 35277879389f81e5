"""Topologies: the graphs of decentralised training, each with its mixing matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from laconic.exchange.mixing import Matrix, Mixing, metropolis
from laconic.options import check_int


class Topology(ABC):
    """A graph on any number of nodes, with its mixing matrix. Members are frozen."""

    @abstractmethod
    def edges(self, size: int) -> Sequence[tuple[int, int]]:
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

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return [(i, (i + 1) % size) for i in range(size)]


@dataclass(frozen=True, slots=True)
class Torus(Topology):
    """Nodes on a grid, row by row; each talks to four: left, right, above, below, around the borders. Weights 1/5.

    n_rows  of the grid; by default the divisor of the number of nodes that is nearest to a square. A prime number of
            nodes gives a grid of one row, which is a ring

    >>> Torus().mixing(16).neighbours(0), round(Torus().mixing(16).spectral_gap, 3)
    ([1, 3, 4, 12], 0.4)
    """

    n_rows: int | None = None

    def __post_init__(self) -> None:
        if self.n_rows is not None:
            object.__setattr__(self, "n_rows", check_int("n_rows", self.n_rows, 1, owner="torus"))

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        n_rows = self._rows(size)
        n_columns = size // n_rows
        found = []
        for i in range(size):
            row, column = divmod(i, n_columns)
            found.append((i, row * n_columns + (column + 1) % n_columns))
            found.append((i, (row + 1) % n_rows * n_columns + column))
        return found

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

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
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

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        if self.hub >= size:
            raise ValueError(f"star: hub must be a node from 0 to {size - 1}, got {self.hub}")
        return [(self.hub, i) for i in range(size) if i != self.hub]


@dataclass(frozen=True, slots=True)
class Complete(Topology):
    """All weights 1/n: one round of mixing is an average, gap 1.

    >>> round(Complete().mixing(5).spectral_gap, 9)
    1.0
    """

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return list(combinations(range(size), 2))


@dataclass(frozen=True, init=False)
class Custom(Topology):
    """The graph and the weights of a given mixing matrix, for exactly as many nodes as it has rows.

    matrix  (n, n), as nested lists, a NumPy array, a tensor or a `Mixing`; refused with the offending row if it is not
            symmetric and doubly stochastic

    >>> Custom([[0.75, 0.25], [0.25, 0.75]]).mixing(2).spectral_gap
    0.5
    """

    matrix: Mixing

    def __init__(self, matrix: Matrix | Mixing) -> None:
        object.__setattr__(self, "matrix", matrix if isinstance(matrix, Mixing) else Mixing.of(matrix))

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return self.mixing(size).edges

    def mixing(self, size: int) -> Mixing:
        """The matrix itself."""
        if size != self.matrix.size:
            raise ValueError(f"the mixing matrix has {self.matrix.size} rows and there are {size} nodes")
        return self.matrix


TOPOLOGIES: dict[str, type[Topology]] = {
    "ring": Ring,
    "torus": Torus,
    "exponential": Exponential,
    "star": Star,
    "complete": Complete,
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
