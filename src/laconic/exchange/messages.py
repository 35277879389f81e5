"""The messages of one phase: what is sent, memory for it, and what is on its way to this rank."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

CPU = torch.device("cpu")
ROW_BYTES = 64
"""Received messages begin at multiples of it."""
Wait = Callable[[], None]
"""Returns once something is done; raises `ExchangeFailed` if it fails."""
Make = Callable[[int, torch.Tensor | None], torch.Tensor]
"""Makes the message (uint8) to a rank: where the second argument says, to save a copy, or anywhere if that is None."""


class Buffers:
    """Memory that is new each time it is asked for.

    >>> Buffers().empty("received", 3, torch.uint8, CPU).shape
    torch.Size([3])
    """

    capacities: Mapping[int, int] = MappingProxyType({})
    """Bytes of a message of each phase, where codes have no fixed size and earlier ones are known (`codes.Slots`)."""

    def learn(self, phase: int, n_bytes: int) -> None:
        """Take note of the longest code of a phase."""

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
        self.capacities: dict[int, int] = {}
        self._rows: dict[tuple[str, int, torch.dtype, torch.device], torch.Tensor] = {}

    def learn(self, phase: int, n_bytes: int) -> None:
        """An eighth more than the longest code; as before while that fits, and is at most a quarter more than this."""
        wanted, now = whole_row(n_bytes + n_bytes // 8), self.capacities.get(phase, 0)
        if not n_bytes <= now <= wanted + wanted // 4:
            self.capacities[phase] = wanted

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


@dataclass(frozen=True, slots=True)
class Messages:
    """One message from every rank to every rank; what this rank sends, and how much it gets.

    make     makes a message when its turn has come
    device   where messages are made, and wanted
    lengths  bytes to be received from each rank; empty where only the sender knows, and they are exchanged first
    sending  bytes to be sent to each rank
    shared   whether every rank gets the same message: `make` is called once, for own rank
    phase    of the exchange, which decides on the channel
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
        """Ranks in the order to send to them, each with the message of `rank` to it, made now.

        places  to write each message to
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
        """Memory cut into rows of some widths, and the first bytes of each, as many as its message has."""
        memory = self.memory(purpose, sum(widths), device, pinned=pinned)
        rows = memory.split_with_sizes(list(widths))
        return memory, [row[:length] for row, length in zip(rows, lengths, strict=True)]


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages on their way here, one from each rank.

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
    """Bytes of the row that a message of so many lies in.

    >>> whole_row(1), whole_row(64), whole_row(65)
    (64, 64, 128)
    """
    return -(-n_bytes // ROW_BYTES) * ROW_BYTES


def sending_order(rank: int, size: int) -> list[int]:
    """Ranks in the order to send to them: the next one first, oneself last; so none is everybody's first.

    >>> sending_order(1, 4)
    [2, 3, 0, 1]
    """
    return [(rank + i) % size for i in range(1, size + 1)]
