"""Encoding with its accounting, shared by the exchanges."""

import torch

from laconic.codec import Payload
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Task
from laconic.kernels import Stream


def encode(
    task: Task, first: int, last: int, stream: Stream, accounting: Accounting, out: torch.Tensor | None = None
) -> Payload:
    """Values [first, last) of the task as a payload, in `out` if given; the memory's part is updated in place."""
    v = task.v.reshape(-1)[first:last]
    memory = task.memory[first:last] if task.memory is not None and task.memory.numel() else task.memory
    payload = task.codec.encode(v, stream, memory, out=out)
    if task.measure_error:
        measure_error(v, task.codec.decode(payload), accounting)
    return payload


def measure_error(v: torch.Tensor, sent: torch.Tensor, accounting: Accounting) -> None:
    """Add ‖sent − v‖² and ‖v‖² to the accounting."""
    v = v.detach().double().reshape(-1)
    accounting.error += float((sent.double() - v).square().sum())
    accounting.energy += float(v.square().sum())
