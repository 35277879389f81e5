"""A topology from a user's own matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from laconic.exchange.topology.base import Topology
from laconic.exchange.topology.mixing import Mixing


@dataclass(frozen=True)
class Custom(Topology):
    """The graph and the weights of a given mixing matrix, for exactly as many nodes as it has rows.

    >>> Custom.of([[0.75, 0.25], [0.25, 0.75]]).mixing(2).spectral_gap
    0.5
    """

    matrix: Mixing

    @classmethod
    def of(cls, matrix: Sequence[Sequence[float]] | torch.Tensor) -> "Custom":
        """A matrix (n, n), checked: refused with the offending row if it is not symmetric and doubly stochastic."""
        return cls(Mixing.of(matrix))

    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        return self.mixing(size).edges

    def mixing(self, size: int) -> Mixing:
        """The matrix itself."""
        if size != self.matrix.size:
            raise ValueError(f"the mixing matrix has {self.matrix.size} rows and there are {size} nodes")
        return self.matrix
