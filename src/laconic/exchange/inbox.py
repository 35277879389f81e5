"""Messages on their way to this rank."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Wait = Callable[[], None]


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
