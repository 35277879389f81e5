"""The interface of a topology: a graph on any number of nodes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from laconic.exchange.topology.mixing import Mixing, metropolis


class Topology(ABC):
    """A graph on `size` nodes with its mixing matrix. Members are frozen and know no ranks until they are asked."""

    @abstractmethod
    def edges(self, size: int) -> Sequence[tuple[int, int]]:
        """Pairs of nodes that talk to each other; order and repetitions do not matter."""

    def mixing(self, size: int) -> Mixing:
        """The mixing matrix on `size` nodes: Metropolis weights, unless the topology has its own."""
        if size < 1:
            raise ValueError(f"a topology needs at least 1 node, got {size}")
        return metropolis(size, self.edges(size))
