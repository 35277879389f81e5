"""One process group, seen from one of its ranks."""

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
    is_gloo     whether Gloo carries them, which takes messages from the CPU only; NCCL takes them from the GPU only
    """

    group: dist.ProcessGroup
    rank: int
    size: int
    is_gloo: bool

    @classmethod
    def of(cls, group: dist.ProcessGroup, device: torch.device = CPU) -> "Channel":
        """The group as it is, for tensors on `device`."""
        return cls(group, dist.get_rank(group), dist.get_world_size(group), backend_of(group, device) == "gloo")

    def wire_device(self, device: torch.device) -> torch.device:
        """Where messages must lie to be sent, for tensors on `device`."""
        return torch.device("cpu") if self.is_gloo else device

    def timeout(self, device: torch.device = CPU) -> timedelta | None:
        """For which messages from `device` are waited for; None if the group does not tell."""
        wire = self.wire_device(device)
        options = getattr(self.group._get_backend(wire), "options", None) if backend_of(self.group, wire) else None
        return getattr(options, "_timeout", None)

    def wait(self, work: dist.Work | None) -> None:
        """Until the work is done; `ExchangeFailed` if it fails."""
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

    A group's own name does not say: it may be one a device ("cpu:gloo,cuda:nccl"), or "undefined" where torch chose.
    """
    backends = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return "gloo" if set(backends.values()) == {"gloo"} else backends.get(device.type, "")
