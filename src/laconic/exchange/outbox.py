"""Messages on their way from this rank: an all-to-all under way."""

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist

from laconic.exchange.channel import Channel
from laconic.exchange.inbox import Inbox, Wait

ROW_BYTES = 64
"""Received messages begin at multiples of it."""


class Outbox(ABC):
    """An all-to-all under way: `send` once to each rank, in any order, then `close`."""

    @abstractmethod
    def send(self, rank: int, message: torch.Tensor) -> None:
        """Send a message (uint8) to a rank; returns at once."""

    @abstractmethod
    def close(self) -> Inbox:
        """All messages are sent: where the others' arrive."""

    def own_room(self, device: torch.device) -> torch.Tensor | None:
        """Where on `device` to write the message to oneself, to save a copy; None if it may lie anywhere."""
        return None


class LoneOutbox(Outbox):
    """One rank that talks to itself."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.messages: list[torch.Tensor] = []

    def send(self, rank: int, message: torch.Tensor) -> None:
        self.messages.append(message)

    def close(self) -> Inbox:
        return Inbox(self.messages, [lambda: None], self.device)


class CollectedOutbox(Outbox):
    """Messages are kept until all are there, and go in one collective: for NCCL, and where lengths are not known."""

    def __init__(self, channel: Channel, lengths: list[int] | None, device: torch.device) -> None:
        self.channel, self.lengths, self.device = channel, lengths, device
        self.messages: dict[int, torch.Tensor] = {}

    def send(self, rank: int, message: torch.Tensor) -> None:
        self.messages[rank] = message

    def close(self) -> Inbox:
        channel, messages = self.channel, [self.messages[rank] for rank in range(self.channel.size)]
        wire = channel.wire_device(self.device)
        lengths_out = [len(message) for message in messages]
        lengths = self._swap_lengths(lengths_out, wire) if self.lengths is None else self.lengths
        sent, received = torch.cat(messages).to(wire), torch.empty(sum(lengths), dtype=torch.uint8, device=wire)
        work = dist.all_to_all_single(received, sent, lengths, lengths_out, group=channel.group, async_op=True)
        arrivals: list[Wait] = [lambda: channel.wait(work)] * channel.size
        return Inbox(list(received.split_with_sizes(lengths)), arrivals, self.device)

    def _swap_lengths(self, lengths_out: list[int], wire: torch.device) -> list[int]:
        sent = torch.tensor(lengths_out, device=wire)
        received = torch.empty_like(sent)
        self.channel.wait(dist.all_to_all_single(received, sent, group=self.channel.group, async_op=True))
        return [int(length) for length in received]


class PairwiseOutbox(Outbox):
    """Messages go out one by one, so that the first is on the wire while the next is made: for Gloo.

    Those that come in lie in the rows of one matrix, own one included, so that one kernel can read them all.
    """

    def __init__(self, channel: Channel, lengths: list[int], device: torch.device, tag: int) -> None:
        self.channel, self.device, self.tag = channel, device, tag
        width = -(-max(lengths) // ROW_BYTES) * ROW_BYTES
        rows = torch.empty(channel.size, width, dtype=torch.uint8)
        self.received = [row[:length] for row, length in zip(rows.unbind(), lengths, strict=True)]
        self.arrivals = {
            rank: channel.group.recv([self.received[rank]], rank, tag)
            for rank in range(channel.size)
            if rank != channel.rank
        }
        self.departures: list[tuple[dist.Work, torch.Tensor]] = []

    def own_room(self, device: torch.device) -> torch.Tensor | None:
        return self.received[self.channel.rank] if device.type == "cpu" else None

    def send(self, rank: int, message: torch.Tensor) -> None:
        if rank == self.channel.rank:
            self.received[rank] = message
            return
        message = message.cpu()
        self.departures.append((self.channel.group.send([message], rank, self.tag), message))

    def close(self) -> Inbox:
        arrivals = [self._arrival(rank) for rank in range(self.channel.size)]
        return Inbox(self.received, arrivals, self.device, self._sent)

    def _arrival(self, rank: int) -> Wait:
        return lambda: self.channel.wait(self.arrivals.get(rank))

    def _sent(self) -> None:
        for work, _ in self.departures:
            self.channel.wait(work)
