"""Torus: a grid whose borders are joined."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.checks import check_int
from laconic.exchange.topology.base import Topology


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
