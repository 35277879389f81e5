"""A channel: one process group as one of its ranks uses it, and how its threads share cores with the program."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Channel:
    """Where messages travel, in one order.

    group       whose messages all ranks must send in that order
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
        """The group as it is."""
        gloo = frozenset(kind for kind in ("cpu", "cuda") if backend_of(group, torch.device(kind)) == "gloo")
        return cls(group, dist.get_rank(group), dist.get_world_size(group), gloo)

    def is_gloo(self, device: torch.device) -> bool:
        """Whether Gloo carries tensors of `device`."""
        return device.type in self.gloo

    def wire_device(self, device: torch.device) -> torch.device:
        """Where messages must lie to be sent, for tensors on `device`."""
        return CPU if self.is_gloo(device) else device

    def timeout(self, device: torch.device = CPU) -> timedelta | None:
        """How long messages from `device` are waited for; None if the group does not tell."""
        wire = self.wire_device(device)
        options = getattr(self.group._get_backend(wire), "options", None) if backend_of(self.group, wire) else None
        return getattr(options, "_timeout", None)

    def wait(self, work: dist.Work | None) -> None:
        """Wait until the work is done; raises `ExchangeFailed` if it fails."""
        try:
            if work is not None:
                work.wait()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise ExchangeFailed(
                f"exchange failed on rank {self.rank} of {self.size}: "
                f"another rank stopped, or did not answer in time ({reason})"
            ) from error


def backend_of(group: dist.ProcessGroup, device: torch.device = CPU) -> str:
    """What carries tensors of `device`, such as "gloo"; "" if nothing does.

    A group's own name does not say: it may be one per device ("cpu:gloo,cuda:nccl"), or "undefined" where torch chose.
    """
    backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return "gloo" if set(backends.values()) == {"gloo"} else backends.get(device.type, "")


@contextmanager
def yielding_threads() -> Iterator[None]:
    """Threads started in this block wake up without driving others off their core; the calling thread is as before.

    Gloo's thread polls, without sleeping, while another thread of the process holds the lock of a connection that has
    news. If it took that thread's core when it woke up, it would poll for the rest of its time slice, milliseconds,
    and the other could not let go of the lock. Likewise for whoever else drives off a thread that holds the lock.
    Where a core is free this changes nothing, nor where the system has no such threads (`SCHED_BATCH` of Linux, which
    a thread inherits from the one that starts it).
    """
    ordinary = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
    changed = ordinary and _set_scheduler(os.SCHED_BATCH)
    try:
        yield
    finally:
        if changed:
            _set_scheduler(os.SCHED_OTHER)


def _set_scheduler(policy: int) -> bool:
    """Set the policy of the calling thread; whether it could be set, for some sandboxes do not allow it."""
    try:
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except OSError:
        return False
    return True
