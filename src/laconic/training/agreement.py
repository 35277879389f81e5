"""Do all ranks mean the same? Asked at the first step, and after a load; the error names rank and field."""

from typing import Any

import torch

from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.exchange.say import all_say


class Disagreement(LaconicError, RuntimeError):
    """Ranks were given different configurations, or states of different steps."""


def check_agreement(comm: Communicator, config: dict[str, Any], device: torch.device) -> None:
    """Compare `config` (plain JSON values) across ranks; raise `Disagreement` on every rank if any two differ.

    device  where the process group takes its messages from
    """
    if comm.size == 1:
        return
    configs = all_say(comm, config, device)
    differences = [line for rank in range(1, comm.size) for line in _differences(configs[0], configs[rank], rank)]
    if differences:
        found = "; ".join(differences[:5])
        raise Disagreement(f"ranks disagree: {found}. Give every rank the same arguments, and states of the same step")


def _differences(first: dict[str, Any], other: dict[str, Any], rank: int) -> list[str]:
    return [
        f"{field} is {first.get(field)!r} on rank 0 and {other.get(field)!r} on rank {rank}"
        for field in sorted(first.keys() | other.keys())
        if first.get(field) != other.get(field)
    ]
