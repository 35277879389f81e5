"""Memory for the messages of an exchange."""

import torch

CPU = torch.device("cpu")


class Buffers:
    """Memory that is new each time it is asked for.

    >>> Buffers().empty("received", 3, torch.uint8, CPU).shape
    torch.Size([3])
    """

    def empty(
        self, purpose: str, n: int, dtype: torch.dtype, device: torch.device, *, pinned: bool = False
    ) -> torch.Tensor:
        """A row of n numbers that may hold anything.

        purpose  what for: two that are in use at the same time need two names
        pinned   whether a GPU copies from and to it, so that its pages should stay in memory
        """
        return torch.empty(n, dtype=dtype, device=device, pin_memory=pinned)


class KeptBuffers(Buffers):
    """The same memory each time it is asked for: for the exchanges of one tensor, which follow one another.

    >>> kept = KeptBuffers()
    >>> kept.empty("sent", 3, torch.uint8, CPU) is kept.empty("sent", 3, torch.uint8, CPU)
    True
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int, torch.dtype, torch.device], torch.Tensor] = {}

    def __len__(self) -> int:
        """How many rows are kept."""
        return len(self._rows)

    def empty(
        self, purpose: str, n: int, dtype: torch.dtype, device: torch.device, *, pinned: bool = False
    ) -> torch.Tensor:
        key = (purpose, n, dtype, device)
        if key not in self._rows:
            self._rows[key] = super().empty(purpose, n, dtype, device, pinned=pinned)
        return self._rows[key]


NEW = Buffers()
