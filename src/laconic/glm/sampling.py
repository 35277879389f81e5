"""Which rows make up which batch: the same on every rank, without a message."""

from dataclasses import dataclass

import numpy as np

from laconic.kernels import Stream

ORDERS = ("shuffle", "cyclic", "replacement")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Batches of consecutive rows of an epoch's order; the last one may be short.

    The order is a function of seed and epoch alone, so any epoch can be made anew after a restart.

    order       "shuffle" (a permutation each epoch), "cyclic" (as the rows come) or "replacement" (independent draws)
    batch_size  rows of a batch
    seed        of the random orders

    >>> Sampling("cyclic", batch_size=2).n_batches(5), Sampling("cyclic").epoch(4, 0)
    (3, array([0, 1, 2, 3], dtype=int32))
    """

    order: str = "shuffle"
    batch_size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}; choose one of {', '.join(ORDERS)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def n_batches(self, n_rows: int) -> int:
        """Batches of an epoch."""
        return -(-n_rows // self.batch_size)

    def epoch(self, n_rows: int, epoch: int) -> np.ndarray:
        """The order of the rows (int32) in an epoch."""
        if self.order == "cyclic":
            return np.arange(n_rows, dtype=np.int32)
        from laconic.kernels.cpu import shuffle  # Numba is loaded where it is first needed

        stream = Stream(self.seed, step=epoch, tensor="rows")
        return shuffle.permutation(n_rows, stream) if self.order == "shuffle" else shuffle.draws(n_rows, stream)
