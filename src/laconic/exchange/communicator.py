"""Ranks that can talk to each other, or one that talks to itself."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

Wait = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group with as many independent channels as an exchange has phases.

    Messages on one channel must be sent in the same order by all ranks. With a channel a phase, phase two of one tensor
    and phase one of the next may run in either order, so exchanges can be pipelined (see `Pipeline`).

    rank, size  this rank's place in the group; 0 of 1 without a process group
    channels    process groups over the same ranks; empty without a process group
    owned       whether the channels were made by `open`, for `close` to give back
    """

    rank: int = 0
    size: int = 1
    channels: tuple[dist.ProcessGroup, ...] = ()
    owned: bool = False

    @classmethod
    def over(cls, group: dist.ProcessGroup | None = None) -> "Communicator":
        """The default process group, or `group`, as it is: one channel, nothing set up. One rank if there is none."""
        if not dist.is_initialized():
            return cls()
        chosen = dist.group.WORLD if group is None else group
        if chosen is None:
            return cls()
        return cls(dist.get_rank(chosen), dist.get_world_size(chosen), (chosen,))

    @classmethod
    def open(
        cls, group: dist.ProcessGroup | None = None, *, n_channels: int = 2, timeout: timedelta | None = None
    ) -> "Communicator":
        """A communicator of its own over the ranks of `group`. Every rank of the group must call this.

        Over all ranks there are, it has new channels, apart from everything else that uses the group. Over a part of
        them, it has the group itself as its one channel: torch cannot make a new group there without the other ranks.
        """
        base = cls.over(group)
        if base.size == 1:
            return cls()
        if base.size < dist.get_world_size():
            return base
        ranks = list(range(base.size))
        channels = tuple(dist.new_group(ranks, timeout=timeout) for _ in range(n_channels))
        for channel in channels:
            dist.barrier(channel)  # so that no rank closes a channel that another is still connecting
        return cls(base.rank, base.size, channels, owned=True)

    def close(self) -> None:
        """Give back the channels that `open` made."""
        for channel in self.channels if self.owned else ():
            dist.destroy_process_group(channel)

    def channel(self, phase: int) -> dist.ProcessGroup:
        """The channel for a phase; the last one serves all later phases."""
        return self.channels[min(phase, len(self.channels) - 1)]

    def all_to_all(self, messages: list[torch.Tensor], lengths: list[int] | None, *, phase: int) -> "Inbox":
        """Send messages[r] (uint8) to rank r, and receive one from each; returns at once.

        lengths  bytes to be received from each rank; None where only the sender knows, and they are exchanged first
        """
        if self.size == 1:
            return Inbox(messages, None)
        lengths_out = [len(message) for message in messages]
        lengths_in = self._lengths(lengths_out, phase) if lengths is None else lengths
        received = torch.empty(sum(lengths_in), dtype=torch.uint8, device=messages[0].device)
        work = dist.all_to_all_single(
            received, torch.cat(messages), lengths_in, lengths_out, group=self.channel(phase), async_op=True
        )
        return Inbox(list(received.split_with_sizes(lengths_in)), work)

    def _lengths(self, lengths_out: list[int], phase: int) -> list[int]:
        sent = torch.tensor(lengths_out)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.channel(phase))
        return [int(length) for length in received]

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        """Sum `v` over the ranks, in place; returns at once."""
        if self.size == 1:
            return lambda: None
        work = dist.all_reduce(v, group=self.channel(phase), async_op=True)
        return lambda: _wait(work)


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages on their way here, one from each rank."""

    messages: list[torch.Tensor]
    work: dist.Work | None

    def wait(self) -> list[torch.Tensor]:
        """The messages, once all have arrived."""
        if self.work is not None:
            _wait(self.work)
        return self.messages


def _wait(work: dist.Work) -> None:
    work.wait()
