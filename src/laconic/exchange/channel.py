"""A channel: one process group as one of its ranks uses it, and how its threads share cores with the program.

Every rank sends a message to every rank, pairwise over Gloo, otherwise in one collective of the process group. Each
message lies in a row padded to whole 64 bytes, so that those received are the rows of a matrix, which one kernel reads
in place. A collective sends the padding along.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed
from laconic.exchange.messages import CPU, Inbox, Messages, whole_row

_R = TypeVar("_R")
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # renamed in newer torch


@dataclass(frozen=True, slots=True)
class Channel:
    """A process group that messages go through, in the same order on all ranks.

    group       the process group
    rank, size  this rank's place in it
    gloo        devices, "cpu" or "cuda", whose tensors Gloo carries: it takes messages from the CPU only, and the host
                waits for them. NCCL takes them from the GPU only, and queues them there
    """

    group: dist.ProcessGroup
    rank: int
    size: int
    gloo: frozenset[str]

    @classmethod
    def of(cls, group: dist.ProcessGroup) -> "Channel":
        """The channel of an existing process group."""
        gloo = frozenset(kind for kind in ("cpu", "cuda") if backend_of(group, torch.device(kind)) == "gloo")
        return cls(group, dist.get_rank(group), dist.get_world_size(group), gloo)

    def is_gloo(self, device: torch.device) -> bool:
        """Whether Gloo carries tensors of `device`."""
        return device.type in self.gloo

    def wire_device(self, device: torch.device) -> torch.device:
        """Where messages must lie to be sent, for tensors on `device`."""
        return CPU if self.is_gloo(device) else device

    def timeout(self, device: torch.device = CPU) -> timedelta | None:
        """The timeout of messages from `device`; None if the group does not expose it."""
        wire = self.wire_device(device)
        options = getattr(self.group._get_backend(wire), "options", None) if backend_of(self.group, wire) else None
        return getattr(options, "_timeout", None)

    def call(self, function: Callable[..., _R], *arguments: Any, **options: Any) -> _R:
        """Call a function of torch that sends or waits; its errors are raised as `ExchangeFailed`.

        Sending can fail as well as waiting: torch refuses a message as soon as it knows that the connection is broken.
        """
        try:
            return function(*arguments, **options)
        except RuntimeError as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ExchangeFailed(
                f"exchange failed on rank {self.rank} of {self.size}: "
                f"another rank stopped, or did not answer in time ({reason})"
            ) from error

    def wait(self, work: dist.Work | None) -> None:
        """Wait until the work is done; raises `ExchangeFailed` if it fails."""
        if work is not None:
            self.call(work.wait)

    def send_pairwise(self, messages: Messages, tag: int) -> Inbox:
        """Send one by one, so that the first message is on the wire while the next is made: for Gloo.

        Received messages lie in the rows of one matrix, own one included, so that one kernel can read them all. Gloo
        takes messages from the CPU only: those on a GPU are copied through pinned memory, and the host waits for that.
        """
        own, lengths, on_gpu = self.rank, messages.lengths, messages.device.type != "cpu"
        widths = [whole_row(max(lengths))] * self.size
        _, received = messages.rows("received", widths, lengths, CPU, pinned=on_gpu)
        places = messages.rows("received", widths, lengths, messages.device)[1] if on_gpu else received
        coming = {r: self.call(self.group.recv, [received[r]], r, tag) for r in range(self.size) if r != own}
        leaving: list[tuple[dist.Work, torch.Tensor]] = []
        last: torch.Tensor | None = None
        host = received[own]
        for rank, message in messages.made(own, [places[r] if r == own else None for r in range(self.size)]):
            if rank == own:
                received[own] = places[own] = message
                continue
            if message is not last:  # one copy for all ranks that get the same
                last = host = message
                if on_gpu:
                    host = messages.memory(f"sent to {rank},", len(message), CPU, pinned=True).copy_(message)
            leaving.append((self.call(self.group.send, [host], rank, tag), host))

        def arrive(rank: int) -> torch.Tensor:
            self.wait(coming.get(rank))
            return places[rank].copy_(received[rank]) if on_gpu else received[rank]

        def sent() -> None:
            for work, _ in leaving:
                self.wait(work)

        return Inbox([partial(arrive, rank) for rank in range(self.size)], sent)

    def send_collected(self, messages: Messages) -> Inbox:
        """Exchange the lengths, which only the senders know, then the messages in one all-to-all once all are made."""
        made, device = dict(messages.made(self.rank, [None] * self.size)), messages.device
        sending = [len(made[rank]) for rank in range(self.size)]
        sent = torch.tensor(sending, device=self.wire_device(device))
        received = torch.empty_like(sent)
        self.wait(self.call(dist.all_to_all_single, received, sent, group=self.group, async_op=True))
        return self.send_all_to_all(Messages(lambda rank, place: made[rank], device, received.tolist(), sending))

    def send_all_to_all(self, messages: Messages) -> Inbox:
        """A message for each rank, as one all-to-all of the process group."""
        wire = self.wire_device(messages.device)
        n_sent, n_received = ([whole_row(length) for length in n] for n in (messages.sending, messages.lengths))
        sent, places = messages.rows("sent", n_sent, messages.sending, wire)
        received, rows = messages.rows("received", n_received, messages.lengths, wire)
        for rank, message in messages.made(self.rank, places):
            _put(message, places[rank])
        work = self.call(dist.all_to_all_single, received, sent, n_received, n_sent, group=self.group, async_op=True)
        return self._arriving(work, rows, messages.device)

    def send_shared(self, messages: Messages) -> Inbox:
        """The same message for every rank, as one all-gather of the process group, in place."""
        own, width = self.rank, whole_row(max(messages.lengths))
        received, rows = messages.rows("shared", [width] * self.size, messages.lengths, messages.device)
        _put(messages.make(own, rows[own]), rows[own])
        row = received.view(self.size, width)[own]
        work = self.call(_all_gather, received, row, group=self.group, async_op=True)
        return self._arriving(work, rows, messages.device)

    def _arriving(self, work: dist.Work | None, rows: Sequence[torch.Tensor], device: torch.device) -> Inbox:
        """The rows, once the work is done."""

        def arrive(row: torch.Tensor) -> torch.Tensor:
            self.wait(work)
            return row.to(device)

        return Inbox([partial(arrive, row) for row in rows])


def _put(message: torch.Tensor, row: torch.Tensor) -> None:
    """Copy a message to its row, unless it was written there."""
    if message.data_ptr() != row.data_ptr():
        row.copy_(message)


def backend_of(group: dist.ProcessGroup, device: torch.device = CPU) -> str:
    """The backend that carries tensors of `device`, such as "gloo"; "" if none does.

    A group's own name does not tell: it may list one per device ("cpu:gloo,cuda:nccl"), or be "undefined" where torch
    chose.
    """
    backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return "gloo" if set(backends.values()) == {"gloo"} else backends.get(device.type, "")


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Threads started in this block do not preempt others when they wake up; the calling thread is restored after it.

    Gloo's thread polls, without sleeping, while another thread of the process holds the lock of a connection that has
    received data. If it preempted that thread on waking up, it would poll for the rest of its time slice, milliseconds,
    and the other could not release the lock. Uses Linux's `SCHED_BATCH`, which a thread inherits from the one that
    starts it; no effect on other systems, or where a core is free.
    """
    if not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    try:
        with suppress(OSError):  # some sandboxes do not allow it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
