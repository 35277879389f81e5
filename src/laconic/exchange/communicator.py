"""Ranks that can talk to each other, or one that talks to itself."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed

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
            return Inbox(torch.cat(messages), [len(m) for m in messages], messages[0].device, lambda: None)
        lengths_out = [len(message) for message in messages]
        device = messages[0].device
        lengths_in = self._lengths(lengths_out, device, phase) if lengths is None else lengths
        wire = self._wire_device(device, phase)
        sent = torch.cat(messages).to(wire)
        received = torch.empty(sum(lengths_in), dtype=torch.uint8, device=wire)
        work = dist.all_to_all_single(received, sent, lengths_in, lengths_out, group=self.channel(phase), async_op=True)
        return Inbox(received, lengths_in, device, lambda: self._wait(work))

    def _wire_device(self, device: torch.device, phase: int) -> torch.device:
        """Where messages must lie to be sent: Gloo takes them from the CPU only, NCCL from the GPU only."""
        return torch.device("cpu") if dist.get_backend(self.channel(phase)) == "gloo" else device

    def _lengths(self, lengths_out: list[int], device: torch.device, phase: int) -> list[int]:
        sent = torch.tensor(lengths_out, device=self._wire_device(device, phase))
        received = torch.empty_like(sent)
        self._wait(dist.all_to_all_single(received, sent, group=self.channel(phase), async_op=True))
        return [int(length) for length in received]

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        """Sum `v` over the ranks, in place; returns at once."""
        if self.size == 1:
            return lambda: None
        work = dist.all_reduce(v, group=self.channel(phase), async_op=True)
        return lambda: self._wait(work)

    def _wait(self, work: dist.Work) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ExchangeFailed(
                f"exchange failed on rank {self.rank} of {self.size}: "
                f"another rank stopped, or did not answer in time ({reason})"
            ) from error


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages on their way here, one from each rank.

    received  all of them in one row, where the wire puts them
    lengths   bytes from each rank
    device    where they are wanted
    arrived   waits for them
    """

    received: torch.Tensor
    lengths: list[int]
    device: torch.device
    arrived: Wait

    def wait(self) -> list[torch.Tensor]:
        """The messages, once all have arrived; `ExchangeFailed` if they do not."""
        self.arrived()
        return list(self.received.to(self.device).split_with_sizes(self.lengths))
