"""Ranks that can talk to each other, or one that talks to itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed

Wait = Callable[[], None]
N_TAGS = 4
"""Most channels a communicator has; messages on each are numbered."""


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
    _tags: tuple[Iterator[int], ...] = field(
        default_factory=lambda: tuple(count() for _ in range(N_TAGS)), compare=False
    )

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
        outbox = self.outbox(lengths, messages[0].device, phase=phase)
        for rank in self.sending_order:
            outbox.send(rank, messages[rank])
        return outbox.close()

    @property
    def sending_order(self) -> list[int]:
        """Ranks in the order to send to them: the next one first, oneself last; so none is everybody's first."""
        return [(self.rank + i) % self.size for i in range(1, self.size + 1)]

    def outbox(self, lengths: list[int] | None, device: torch.device, *, phase: int) -> "Outbox":
        """Begin an all-to-all whose messages are sent one by one, each as soon as it is made.

        lengths  bytes to be received from each rank; None where only the sender knows
        """
        one_by_one = lengths is not None and self.size > 1 and dist.get_backend(self.channel(phase)) == "gloo"
        tag = next(self._tags[min(phase, len(self._tags) - 1)])
        if one_by_one:
            return PairwiseOutbox(self, lengths or [], device, phase, tag)
        return CollectedOutbox(self, lengths, device, phase)

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


class Outbox(ABC):
    """An all-to-all under way: `send` once to each rank, in any order, then `close`."""

    @abstractmethod
    def send(self, rank: int, message: torch.Tensor) -> None:
        """Send a message (uint8) to a rank; returns at once."""

    @abstractmethod
    def close(self) -> "Inbox":
        """All messages are sent: where the others' arrive."""


class CollectedOutbox(Outbox):
    """Messages are kept until all are there, and go in one collective: for NCCL, and where lengths are not known."""

    def __init__(self, comm: Communicator, lengths: list[int] | None, device: torch.device, phase: int) -> None:
        self.comm, self.lengths, self.device, self.phase = comm, lengths, device, phase
        self.messages: dict[int, torch.Tensor] = {}

    def send(self, rank: int, message: torch.Tensor) -> None:
        self.messages[rank] = message

    def close(self) -> "Inbox":
        comm, messages = self.comm, [self.messages[rank] for rank in range(self.comm.size)]
        if comm.size == 1:
            return Inbox(messages, [lambda: None], self.device)
        lengths_out = [len(message) for message in messages]
        lengths = comm._lengths(lengths_out, self.device, self.phase) if self.lengths is None else self.lengths
        wire = comm._wire_device(self.device, self.phase)
        sent, received = torch.cat(messages).to(wire), torch.empty(sum(lengths), dtype=torch.uint8, device=wire)
        channel = comm.channel(self.phase)
        work = dist.all_to_all_single(received, sent, lengths, lengths_out, group=channel, async_op=True)
        return Inbox(list(received.split_with_sizes(lengths)), [lambda: comm._wait(work)] * comm.size, self.device)


class PairwiseOutbox(Outbox):
    """Messages go out one by one, so that the first is on the wire while the next is made: for Gloo."""

    def __init__(self, comm: Communicator, lengths: list[int], device: torch.device, phase: int, tag: int) -> None:
        self.comm, self.device, self.tag, self.channel = comm, device, tag, comm.channel(phase)
        self.received = [torch.empty(length, dtype=torch.uint8) for length in lengths]
        self.arrivals: dict[int, dist.Work | None] = {
            rank: dist.irecv(self.received[rank], group=self.channel, group_src=rank, tag=tag)
            for rank in comm.sending_order[:-1]
        }
        self.departures: list[tuple[dist.Work | None, torch.Tensor]] = []

    def send(self, rank: int, message: torch.Tensor) -> None:
        if rank == self.comm.rank:
            self.received[rank] = message
            return
        message = message.cpu()
        work = dist.isend(message, group=self.channel, group_dst=rank, tag=self.tag)
        self.departures.append((work, message))

    def close(self) -> "Inbox":
        return Inbox(self.received, [self._arrival(rank) for rank in range(self.comm.size)], self.device, self._sent)

    def _arrival(self, rank: int) -> Wait:
        work = self.arrivals.get(rank)
        return lambda: self.comm._wait(work) if work is not None else None

    def _sent(self) -> None:
        for work, _ in self.departures:
            if work is not None:
                self.comm._wait(work)


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages on their way here, one from each rank.

    messages  one from each rank, where the wire puts them
    arrivals  wait for each of them
    device    where they are wanted
    sent      waits until own messages have left
    """

    messages: list[torch.Tensor]
    arrivals: list[Wait]
    device: torch.device
    sent: Wait = lambda: None

    def receive(self, rank: int) -> torch.Tensor:
        """The message of one rank, once it has arrived; `ExchangeFailed` if it does not."""
        self.arrivals[rank]()
        return self.messages[rank].to(self.device)

    def wait(self) -> list[torch.Tensor]:
        """All messages, once all have arrived and own ones have left."""
        received = [self.receive(rank) for rank in range(len(self.messages))]
        self.sent()
        return received
