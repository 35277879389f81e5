"""The ranks of an exchange: a process group with its channels, or one rank alone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed, InvalidOption, Option
from laconic.exchange.channel import Channel, yielding_threads
from laconic.exchange.messages import CPU, Inbox, Messages, Wait, whole_row

N_TAGS = 4
"""Phases whose messages have their own numbering; all later ones share the last."""


def _backend(group: dist.ProcessGroup) -> str:
    """What a new group like this one is made with: of a single backend its name, since torch warns when it destroys a
    group that was made with the configuration that the name stands for."""
    name = str(dist.get_backend(group))
    return name if name in ("gloo", "nccl") else str(dist.get_backend_config(group))


@dataclass(frozen=True, slots=True)
class Communicator:
    """Ranks, and the channels between them: a single one, or one for each phase of an exchange.

    All ranks must send the messages of a channel in the same order. With one channel per phase, phase two of one tensor
    and phase one of the next may run in either order, so exchanges can be pipelined (see `Pipeline`).

    rank, size  this rank's place; 0 of 1 without a process group
    channels    each a process group of its own over the same ranks; none for a rank alone
    owned       whether `open` made the channels, so that `close` destroys them
    """

    rank: int = 0
    size: int = 1
    channels: tuple[Channel, ...] = ()
    owned: bool = False
    _n_sent: list[int] = field(default_factory=([0] * N_TAGS).copy, compare=False)
    _peers_and_parent: "tuple[Communicator, Communicator] | None" = None

    @property
    def peers(self) -> "Communicator":
        """For a team: the ranks with this rank's number, one per team; otherwise this rank alone."""
        return Communicator() if self._peers_and_parent is None else self._peers_and_parent[0]

    @property
    def whole(self) -> "Communicator":
        """For a team: the ranks of all teams; otherwise these ranks."""
        return self if self._peers_and_parent is None else self._peers_and_parent[1]

    @classmethod
    def over(cls, group: dist.ProcessGroup | None = None) -> "Communicator":
        """A communicator with the default process group, or `group`, as its one channel; one rank if there is none."""
        chosen = (dist.group.WORLD if group is None else group) if dist.is_initialized() else None
        if chosen is None or dist.get_world_size(chosen) == 1:
            return cls()
        if dist.get_rank(chosen) < 0:
            here = dist.get_rank()
            raise ValueError(f"rank {here} is not in the process group that was given; call this on its ranks")
        channel = Channel.of(chosen)
        return cls(channel.rank, channel.size, (channel,))

    @classmethod
    def open(
        cls,
        group: dist.ProcessGroup | None = None,
        device: torch.device = CPU,
        *,
        n_channels: int = 2,
        timeout: timedelta | None = None,
    ) -> "Communicator":
        """A new communicator over the ranks of `group`. Every rank of the group must call this.

        device   where the tensors are
        timeout  of new channels; by default that of `group`

        Over all ranks of the job it has new channels, separate from everything else that uses the group: `n_channels`
        over Gloo, and one over NCCL, where groups that are busy at the same time may wait for each other. Over a part
        of the ranks, its one channel is the group itself: torch cannot make a new group there without the others.
        """
        base = cls.over(group)
        if base.size == 1:
            return cls()
        if base.size < dist.get_world_size():
            return base
        like, ranks = base.channels[0], list(range(base.size))
        n_channels = n_channels if like.is_gloo(device) else 1
        backend, timeout = _backend(like.group), timeout or like.timeout(device)
        try:
            with yielding_threads():
                groups = [dist.new_group(ranks, timeout=timeout, backend=backend) for _ in range(n_channels)]
            for group in groups:
                dist.barrier(group)  # so that no rank closes a channel that another is still connecting
        except RuntimeError as error:  # of the store or of Gloo
            reason = (str(error).splitlines() or [""])[0]
            raise ExchangeFailed(
                f"rank {base.rank} of {base.size} waited in vain for the others to connect; did every rank call "
                f"compress, or whatever else averages over them? ({reason})"
            ) from error
        return cls(base.rank, base.size, tuple(map(Channel.of, groups)), owned=True)

    def split(self, teams: int) -> "Communicator":
        """This rank's team, of size / teams consecutive ranks, with `peers` and `whole` set.

        Every rank of the job must call this. Process groups are made at the first call and kept for later ones.

        >>> Communicator().split(1).peers.size
        1
        """
        if self.size % teams:
            what = f" cannot share {self.size} rank{'s' * (self.size > 1)} evenly; give a divisor of {self.size}, or "
            raise InvalidOption(Option("teams", teams), what, Option("ranks"), f" a multiple of {teams}")
        if teams == 1:
            return self
        if self.size < dist.get_world_size():  # torch cannot make groups there without the other ranks
            what = f" needs a group of all {dist.get_world_size()} ranks, and this one has {self.size}"
            raise InvalidOption(Option("teams", teams), what)
        like, size = self.channels[0], self.size // teams
        made = _SPLITS.setdefault(like.group, {})
        if teams not in made:
            ranks = np.arange(self.size).reshape(teams, size)
            backend, make = _backend(like.group), dist.new_subgroups_by_enumeration
            with yielding_threads():
                groups = [make(part.tolist(), like.timeout(), backend) for part in (ranks, ranks.T)]  # type: ignore[no-untyped-call]
            made[teams] = [own for own, _ in groups]
        team, peers = map(Communicator.over, made[teams])
        return replace(team, _peers_and_parent=(peers, self))

    def close(self) -> None:
        """Destroy the channels that `open` made, if they still exist."""
        for channel in self.channels if self.owned else ():
            with suppress(ValueError):  # torch raises it for groups that no longer exist
                dist.destroy_process_group(channel.group)

    def is_gloo(self, device: torch.device) -> bool:
        """Whether messages from `device` go over Gloo, so that the host waits for them; False for a rank alone."""
        return bool(self.channels) and self.channels[0].is_gloo(device)

    def one_channel(self) -> "Communicator":
        """This communicator with its first channel for all phases, so that all messages go in one order."""
        return self if len(self.channels) < 2 else replace(self, channels=self.channels[:1], owned=False)

    def channel(self, phase: int) -> Channel:
        """The channel for a phase; the last one serves all later phases."""
        return self.channels[min(phase, len(self.channels) - 1)]

    def send(self, messages: Messages) -> Inbox:
        """Send a message to each rank, each as soon as it is made, and receive one from each; returns at once."""
        phase, device, lengths = messages.phase, messages.device, messages.lengths
        tag = self._n_sent[min(phase, N_TAGS - 1)]
        self._n_sent[min(phase, N_TAGS - 1)] += 1
        if not self.channels:
            place = messages.memory("own", whole_row(lengths[0]), device)[: lengths[0]] if lengths else None
            message = messages.make(self.rank, place)
            return Inbox([lambda: message])
        channel = self.channel(phase)
        if not lengths:
            return channel.send_collected(messages)
        if channel.is_gloo(device):
            return channel.send_pairwise(messages, tag)
        return channel.send_shared(messages) if messages.shared else channel.send_all_to_all(messages)

    def all_to_all(
        self, messages: Sequence[torch.Tensor], lengths: Sequence[int] | None = None, *, phase: int = 0
    ) -> Inbox:
        """Send messages[r] (uint8) to rank r, and receive one from each; returns at once.

        lengths  bytes to be received from each rank; None if only the senders know, and they are exchanged first
        """
        device, sending = messages[0].device, [len(message) for message in messages]
        return self.send(Messages(lambda rank, place: messages[rank], device, lengths or (), sending, phase=phase))

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        """Sum `v` over the ranks, in place; returns at once."""
        return self._reduce(v, dist.ReduceOp.SUM, phase)

    def largest(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        """Elementwise maximum of `v` over the ranks, in place; returns at once."""
        return self._reduce(v, dist.ReduceOp.MAX, phase)

    def _reduce(self, v: torch.Tensor, op: dist.ReduceOp.RedOpType, phase: int) -> Wait:
        if not self.channels:
            return lambda: None
        channel = self.channel(phase)
        work = channel.call(dist.all_reduce, v, op, group=channel.group, async_op=True)
        return lambda: channel.wait(work)


_SPLITS: WeakKeyDictionary[dist.ProcessGroup, dict[int, list[dist.ProcessGroup]]] = WeakKeyDictionary()
"""By process group and number of teams, the groups of this rank's team and of its peers. They are dropped with that
group, since one that still exists when Python ends would abort the process."""
