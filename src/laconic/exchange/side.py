"""The stream of an exchange, so that a GPU can exchange gradients while it computes others."""

import torch

from laconic.exchange.base import Exchanged, Phases
from laconic.kernels.side import Side


def urgent_side(device: torch.device) -> Side:
    """Of high priority: what an exchange queues is little, and other ranks wait for it."""
    return Side(device, priority=-1)


def carry(phases: Phases, side: Side) -> Phases:
    """The same phases, each queued on the side by whichever thread runs it."""
    return phases if side.stream is None else _carry(phases, side)


def _carry(phases: Phases, side: Side) -> Phases:
    while True:
        with side.current():
            try:
                next(phases)
            except StopIteration as end:
                result: Exchanged = end.value
                return result
        yield
