"""Messages of known sizes in one collective of the process group, written and read where it takes them: for NCCL.

Each message has a row of whole 64 bytes, so that those received are the rows of a matrix, which one kernel reads in
place. A few bytes at the end of a row travel along and mean nothing.
"""

from itertools import accumulate

import torch
import torch.distributed as dist

from laconic.exchange.buffers import Buffers
from laconic.exchange.channel import Channel
from laconic.exchange.inbox import Inbox, Wait
from laconic.exchange.outbox import Outbox, whole_row

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the newer name of the same


class SpreadOutbox(Outbox):
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
        self.rooms, self.messages = _cut(self.sent, sending), _cut(self.received, expected)

    def room(self, rank: int) -> torch.Tensor | None:
        return self.rooms[rank]

    def send(self, rank: int, message: torch.Tensor) -> None:
        _put(message, self.rooms[rank])

    def close(self) -> Inbox:
        sending, expected = self.widths
        group = self.channel.group
        work = dist.all_to_all_single(self.received, self.sent, expected, sending, group=group, async_op=True)
        return Inbox(self.messages, _arrivals(self.channel, work), self.device)


class SharedOutbox(Outbox):
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

    def room(self, rank: int) -> torch.Tensor | None:
        return self.messages[self.channel.rank]

    def send(self, rank: int, message: torch.Tensor) -> None:
        _put(message, self.messages[self.channel.rank])

    def close(self) -> Inbox:
        work = _all_gather(self.received, self.own, group=self.channel.group, async_op=True)
        return Inbox(self.messages, _arrivals(self.channel, work), self.device)


def _cut(row: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    firsts = accumulate((whole_row(length) for length in lengths), initial=0)
    return [row[first : first + length] for first, length in zip(firsts, lengths, strict=False)]


def _put(message: torch.Tensor, room: torch.Tensor) -> None:
    """Copy a message to its room, unless it was written there."""
    if message.data_ptr() != room.data_ptr():
        room.copy_(message)


def _arrivals(channel: Channel, work: dist.Work | None) -> list[Wait]:
    return [lambda: channel.wait(work)] * channel.size
