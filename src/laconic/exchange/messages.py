"""Messages of an all-to-all: memory for them, those this rank sends, and those on their way to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

CPU = torch.device("cpu")
ROW_BYTES = 64
"""Received messages begin at multiples of it."""
Wait = Callable[[], None]
"""Returns once something is done; raises `ExchangeFailed` if it fails."""


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
        """A quarter more than the longest code; as before while that fits and is less than twice as much."""
        wanted, now = whole_row(n_bytes + n_bytes // 4), self.capacities.get(phase, 0)
        if not n_bytes <= now <= 2 * wanted:
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
class Inbox:
    """Messages on their way here, one from each rank.

    messages  one from each rank, where the wire puts them
    arrivals  wait for each of them
    device    where they are wanted
    sent      waits until own messages have left
    places    where on the device they are wanted; None if anywhere
    """

    messages: list[torch.Tensor]
    arrivals: list[Wait]
    device: torch.device
    sent: Wait = lambda: None
    places: list[torch.Tensor] | None = None

    def receive(self, rank: int) -> torch.Tensor:
        """The message of one rank, once it has arrived; `ExchangeFailed` if it does not."""
        self.arrivals[rank]()
        if self.places is None:
            return self.messages[rank].to(self.device)
        return self.places[rank].copy_(self.messages[rank])

    def wait(self) -> list[torch.Tensor]:
        """All messages, once all have arrived and own ones have left."""
        received = [self.receive(rank) for rank in range(len(self.messages))]
        self.sent()
        return received


class Outbox(ABC):
    """An all-to-all under way: `send` once to each rank, in any order, then `close`."""

    @abstractmethod
    def send(self, rank: int, message: torch.Tensor) -> None:
        """Send a message (uint8) to a rank; returns at once."""

    @abstractmethod
    def close(self) -> Inbox:
        """All messages are sent: where the others' arrive."""

    def buffer_for(self, rank: int) -> torch.Tensor | None:
        """Where to write the message to a rank, to save a copy; None if it may lie anywhere."""
        return None


def whole_row(n_bytes: int) -> int:
    """Bytes of the row that a message of so many lies in.

    >>> whole_row(1), whole_row(64), whole_row(65)
    (64, 64, 128)
    """
    return -(-n_bytes // ROW_BYTES) * ROW_BYTES
