"""The ways to send messages: within one rank, pairwise over Gloo, or in one collective of the process group.

For NCCL, `AllToAllOutbox` and `AllGatherOutbox` have messages written and read where the collective takes them. Each
message has a row of whole 64 bytes, so that those received are the rows of a matrix, which one kernel reads in place. A
few bytes at the end of a row travel along and mean nothing.
"""

from dataclasses import replace
from itertools import accumulate

import torch
import torch.distributed as dist

from laconic.exchange.channel import Channel
from laconic.exchange.messages import CPU, NEW, Buffers, Inbox, Outbox, Wait, whole_row

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the newer name of the same


class LocalOutbox(Outbox):
    """Messages of one rank to itself."""

    def __init__(self, lengths: list[int] | None, device: torch.device, buffers: Buffers, purpose: str) -> None:
        self.lengths, self.device, self.buffers, self.purpose = lengths, device, buffers, purpose
        self.messages: list[torch.Tensor] = []

    def buffer_for(self, rank: int) -> torch.Tensor | None:
        if self.lengths is None:
            return None
        length = self.lengths[0]
        return self.buffers.empty(f"own {self.purpose}", whole_row(length), torch.uint8, self.device)[:length]

    def send(self, rank: int, message: torch.Tensor) -> None:
        self.messages.append(message)

    def close(self) -> Inbox:
        return Inbox(self.messages, [lambda: None], self.device)


class CollectedOutbox(Outbox):
    """Messages are kept until all are there, and go in one collective: where only their senders know their lengths."""

    def __init__(self, channel: Channel, device: torch.device) -> None:
        self.channel, self.device = channel, device
        self.messages: dict[int, torch.Tensor] = {}

    def send(self, rank: int, message: torch.Tensor) -> None:
        self.messages[rank] = message

    def close(self) -> Inbox:
        channel, wire = self.channel, self.channel.wire_device(self.device)
        messages = [self.messages[rank] for rank in range(channel.size)]
        sent = torch.tensor([len(message) for message in messages], device=wire)
        received = torch.empty_like(sent)
        channel.wait(dist.all_to_all_single(received, sent, group=channel.group, async_op=True))
        outbox = AllToAllOutbox(channel, sent.tolist(), received.tolist(), wire, NEW, "")
        for rank, message in enumerate(messages):
            outbox.send(rank, message)
        return replace(outbox.close(), device=self.device)


class PairwiseOutbox(Outbox):
    """Messages go out one by one, so that the first is on the wire while the next is made: for Gloo.

    Those that come in lie in the rows of one matrix, own one included, so that one kernel can read them all. Gloo takes
    messages from the CPU only: those on a GPU go by way of pinned memory, and a copy's end is waited for.
    """

    def __init__(
        self, channel: Channel, lengths: list[int], device: torch.device, tag: int, buffers: Buffers, purpose: str
    ) -> None:
        self.channel, self.device, self.tag, self.buffers, self.purpose = channel, device, tag, buffers, purpose
        self.received = self._rows(lengths, CPU)
        self.places = self.received if device.type == "cpu" else self._rows(lengths, device)
        self.arrivals = {
            rank: channel.group.recv([self.received[rank]], rank, tag)
            for rank in range(channel.size)
            if rank != channel.rank
        }
        self.departures: list[tuple[dist.Work, torch.Tensor]] = []
        self._copied: tuple[torch.Tensor, torch.Tensor] | None = None

    def _rows(self, lengths: list[int], device: torch.device) -> list[torch.Tensor]:
        size, width = len(lengths), whole_row(max(lengths))
        pinned = device.type == "cpu" != self.device.type
        rows = self.buffers.empty(f"received {self.purpose}", size * width, torch.uint8, device, pinned=pinned)
        return [row[:length] for row, length in zip(rows.view(size, width).unbind(), lengths, strict=True)]

    def buffer_for(self, rank: int) -> torch.Tensor | None:
        return self.places[rank] if rank == self.channel.rank else None

    def send(self, rank: int, message: torch.Tensor) -> None:
        if rank == self.channel.rank:
            self.received[rank] = self.places[rank] = message
            return
        message = message if message.is_cpu else self._on_host(rank, message)
        self.departures.append((self.channel.group.send([message], rank, self.tag), message))

    def _on_host(self, rank: int, message: torch.Tensor) -> torch.Tensor:
        """A copy in pinned memory, one for all ranks that get the same message one after another."""
        if self._copied is None or self._copied[0] is not message:
            purpose = f"sent {self.purpose} to {rank}"
            host = self.buffers.empty(purpose, len(message), torch.uint8, CPU, pinned=True)
            self._copied = (message, host.copy_(message))
        return self._copied[1]

    def close(self) -> Inbox:
        arrivals = [self._arrival(rank) for rank in range(self.channel.size)]
        places = None if self.places is self.received else self.places
        return Inbox(self.received, arrivals, self.device, self._sent, places)

    def _arrival(self, rank: int) -> Wait:
        return lambda: self.channel.wait(self.arrivals.get(rank))

    def _sent(self) -> None:
        for work, _ in self.departures:
            self.channel.wait(work)


class AllToAllOutbox(Outbox):
    """A message for each rank, as one all-to-all.

    sending   bytes to be sent to each rank
    expected  bytes to be received from each rank
    """

    def __init__(
        self,
        channel: Channel,
        sending: list[int],
        expected: list[int],
        device: torch.device,
        buffers: Buffers,
        purpose: str,
    ) -> None:
        self.channel, self.device = channel, device
        self.widths = [[whole_row(length) for length in lengths] for lengths in (sending, expected)]
        self.sent, self.received = (
            buffers.empty(f"{name} {purpose}", sum(widths), torch.uint8, device)
            for name, widths in zip(("sent", "received"), self.widths, strict=True)
        )
        self.rows, self.messages = _cut(self.sent, sending), _cut(self.received, expected)

    def buffer_for(self, rank: int) -> torch.Tensor | None:
        return self.rows[rank]

    def send(self, rank: int, message: torch.Tensor) -> None:
        _put(message, self.rows[rank])

    def close(self) -> Inbox:
        sending, expected = self.widths
        group = self.channel.group
        work = dist.all_to_all_single(self.received, self.sent, expected, sending, group=group, async_op=True)
        return Inbox(self.messages, _arrivals(self.channel, work), self.device)


class AllGatherOutbox(Outbox):
    """The same message for every rank, as one all-gather, in place.

    expected  bytes to be received from each rank, own message's included
    """

    def __init__(
        self, channel: Channel, expected: list[int], device: torch.device, buffers: Buffers, purpose: str
    ) -> None:
        self.channel, self.device = channel, device
        width = whole_row(max(expected))
        self.received = buffers.empty(f"shared {purpose}", width * channel.size, torch.uint8, device)
        self.own = self.received[channel.rank * width : (channel.rank + 1) * width]
        rows = self.received.view(channel.size, width).unbind()
        self.messages = [row[:length] for row, length in zip(rows, expected, strict=True)]

    def buffer_for(self, rank: int) -> torch.Tensor | None:
        return self.messages[self.channel.rank]

    def send(self, rank: int, message: torch.Tensor) -> None:
        _put(message, self.messages[self.channel.rank])

    def close(self) -> Inbox:
        work = _all_gather(self.received, self.own, group=self.channel.group, async_op=True)
        return Inbox(self.messages, _arrivals(self.channel, work), self.device)


def _cut(row: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    firsts = accumulate((whole_row(length) for length in lengths), initial=0)
    return [row[first : first + length] for first, length in zip(firsts, lengths, strict=False)]


def _put(message: torch.Tensor, row: torch.Tensor) -> None:
    """Copy a message to its row, unless it was written there."""
    if message.data_ptr() != row.data_ptr():
        row.copy_(message)


def _arrivals(channel: Channel, work: dist.Work | None) -> list[Wait]:
    return [lambda: channel.wait(work)] * channel.size
