"""A topology from a user's own matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.exchange.topology.base import Topology
from laconic.exchange.topology.mixing import Matrix, Mixing


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

    @classmethod
    def of(cls, matrix: Matrix) -> "Custom":
        """The same as `Custom(matrix)`."""
        return cls(matrix)

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return self.mixing(size).edges

    def mixing(self, size: int) -> Mixing:
        """The matrix itself."""
        if size != self.matrix.size:
            raise ValueError(f"the mixing matrix has {self.matrix.size} rows and there are {size} nodes")
        return self.matrix
