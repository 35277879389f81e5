"""Encoding and decoding with what exchanges know of them, shared by the exchanges."""

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
        sent = task.codec.decode(Payload(payload.data, trusted=True), last - first)
        measure_error(v, sent, accounting)
    return payload


def received(code: torch.Tensor) -> Payload:
    """A message as a payload. On a GPU its header is not read, for the host would wait for it.

    This rank fixed the message's length, and `laconic.compress` compares the ranks' codecs before the first exchange.
    """
    return Payload(code, trusted=code.is_cuda)


def measure_error(v: torch.Tensor, sent: torch.Tensor, accounting: Accounting) -> None:
    """Add ‖sent − v‖² and ‖v‖² to the accounting; on a GPU they stay there until somebody asks for them.

    Nothing is added where one of them is not finite: a step that a loss scaler throws away would be in every later sum.
    """
    v = v.detach().double().reshape(-1)
    found = torch.stack([(sent.double() - v).square().sum(), v.square().sum()])
    error, energy = torch.where(torch.isfinite(found).all(), found, 0.0)
    accounting.error += error if v.is_cuda else float(error)
    accounting.energy += energy if v.is_cuda else float(energy)
