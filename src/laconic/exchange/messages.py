"""The messages of one phase: those to send, the memory for them, and those under way to this rank."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

CPU = torch.device("cpu")
ROW_BYTES = 64
"""Alignment of received messages."""
Wait = Callable[[], None]
"""Returns once something is done; raises `ExchangeFailed` if it fails."""
Make = Callable[[int, torch.Tensor | None], torch.Tensor]
"""make(rank, place): the message (uint8) to a rank, written to `place` if that saves a copy; `place` may be None."""


class Buffers:
    """Allocates new memory for every request.

    >>> Buffers().empty("received", 3, torch.uint8, CPU).shape
    torch.Size([3])
    """

    capacities: Mapping[int, int] = MappingProxyType({})
    """By phase: bytes of a message for codes of variable size, learnt from earlier exchanges (`codes.Slots`)."""

    def learn(self, phase: int, n_bytes: int) -> None:
        """Record the length of a phase's longest code."""

    def empty(
        self, purpose: str, n: int, dtype: torch.dtype, device: torch.device, *, pinned: bool = False
    ) -> torch.Tensor:
        """An uninitialised row of n numbers.

        purpose  a name: rows that are in use at the same time need different ones
        pinned   whether to pin the memory, for copies from and to a GPU
        """
        return torch.empty(n, dtype=dtype, device=device, pin_memory=pinned)


class KeptBuffers(Buffers):
    """Returns the same memory for the same request: for successive exchanges of one tensor.

    >>> kept = KeptBuffers()
    >>> kept.empty("sent", 3, torch.uint8, CPU) is kept.empty("sent", 3, torch.uint8, CPU)
    True
    """

    def __init__(self) -> None:
        self.capacities: dict[int, int] = {}
        self._rows: dict[tuple[str, int, torch.dtype, torch.device, bool], torch.Tensor] = {}

    def learn(self, phase: int, n_bytes: int) -> None:
        """Set the capacity to an eighth more than the longest code, unless the old one fits and is at most a quarter
        more than that."""
        wanted, now = whole_row(n_bytes + n_bytes // 8), self.capacities.get(phase, 0)
        if not n_bytes <= now <= wanted + wanted // 4:
            self.capacities[phase] = wanted

    def __len__(self) -> int:
        """Number of rows kept."""
        return len(self._rows)

    def empty(
        self, purpose: str, n: int, dtype: torch.dtype, device: torch.device, *, pinned: bool = False
    ) -> torch.Tensor:
        key = (purpose, n, dtype, device, pinned)
        if key not in self._rows:
            self._rows[key] = super().empty(purpose, n, dtype, device, pinned=pinned)
        return self._rows[key]


NEW = Buffers()


@dataclass(frozen=True, slots=True)
class Messages:
    """One message from every rank to every rank: what this rank sends, and how many bytes it receives.

    make     makes a message, called when it is about to be sent
    device   where messages are made, and where received ones go
    lengths  bytes to be received from each rank; empty if only the senders know, and they are exchanged first
    sending  bytes to be sent to each rank
    shared   whether every rank gets the same message: `make` is called once, for own rank
    phase    of the exchange, which determines the channel
    buffers  where memory for messages comes from
    """

    make: Make
    device: torch.device
    lengths: Sequence[int]
    sending: Sequence[int]
    shared: bool = False
    phase: int = 0
    buffers: Buffers = NEW

    def made(self, rank: int, places: Sequence[torch.Tensor | None]) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields each receiving rank and the message of `rank` to it, in the order to send, made only then.

        places  where to write each message
        """
        shared = self.make(rank, places[rank]) if self.shared else None
        for to in sending_order(rank, len(places)):
            yield to, self.make(to, places[to]) if shared is None else shared

    def memory(self, purpose: str, n: int, device: torch.device, *, pinned: bool = False) -> torch.Tensor:
        """A row of n bytes, as `Buffers.empty`."""
        return self.buffers.empty(f"{purpose} {self.phase}", n, torch.uint8, device, pinned=pinned)

    def rows(
        self, purpose: str, widths: Sequence[int], lengths: Sequence[int], device: torch.device, *, pinned: bool = False
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Memory cut into rows of these widths, and the beginning of each row, as long as its message."""
        memory = self.memory(purpose, sum(widths), device, pinned=pinned)
        rows = memory.split_with_sizes(list(widths))
        return memory, [row[:length] for row, length in zip(rows, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages under way to this rank, one from each rank.

    arrivals  by rank: returns its message once it has arrived; raises `ExchangeFailed` if it does not
    sent      waits until own messages have left
    """

    arrivals: Sequence[Callable[[], torch.Tensor]]
    sent: Wait = lambda: None

    def wait(self) -> list[torch.Tensor]:
        """All messages, once all have arrived and own ones have left."""
        received = [arrival() for arrival in self.arrivals]
        self.sent()
        return received


def whole_row(n_bytes: int) -> int:
    """`n_bytes` rounded up to a multiple of `ROW_BYTES`.

    >>> whole_row(1), whole_row(64), whole_row(65)
    (64, 64, 128)
    """
    return -(-n_bytes // ROW_BYTES) * ROW_BYTES


def sending_order(rank: int, size: int) -> list[int]:
    """Ranks in the order to send to them: the next one first, own rank last, so that all begin with different ones.

    >>> sending_order(1, 4)
    [2, 3, 0, 1]
    """
    return [(rank + i) % size for i in range(1, size + 1)]
