"""What ranks have to settle between them besides sums: complaints, and tensors for rank 0."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from laconic.errors import LaconicError, Option, from_json
from laconic.exchange import Communicator
from laconic.exchange.say import all_say


class JobFailed(LaconicError):
    """What one rank found wrong, told on all of them."""


@contextmanager
def together(comm: Communicator) -> Iterator[None]:
    """Do something on every rank; where it fails on one, all raise what that one found.

    Only for what looks at files and settings: errors in here are the user's to mend.
    """
    cause: Exception | None = None
    try:
        yield
    except (LaconicError, ValueError, TypeError, OSError) as error:
        cause = error
    if comm.size == 1:
        if cause is not None:
            raise cause if isinstance(cause, LaconicError) else JobFailed(*_parts(cause)) from cause
        return
    for parts in all_say(comm, None if cause is None else LaconicError(*_parts(cause)).to_json()):
        if parts is not None:
            raise JobFailed(*from_json(parts)) from cause


def _parts(error: Exception) -> "tuple[str | Option, ...]":
    if isinstance(error, LaconicError):
        return error.parts
    if isinstance(error, OSError) and error.filename:
        return (f"{error.filename}: {error.strerror}",)
    return (str(error) or type(error).__name__,)


def gather(comm: Communicator, tensor: torch.Tensor, *, everywhere: bool = False) -> list[torch.Tensor]:
    """Every rank's tensor (flattened), on rank 0 or everywhere; elsewhere the list is of empty ones."""
    data = torch.from_numpy(np.frombuffer(tensor.contiguous().numpy().tobytes() or bytearray(), np.uint8).copy())
    nothing = torch.empty(0, dtype=torch.uint8)
    messages = [data if everywhere or rank == 0 else nothing for rank in range(comm.size)]
    received = comm.all_to_all(messages, None, phase=0).wait()
    return [message.clone().view(tensor.dtype) for message in received]


def on_any(comm: Communicator, flag: bool) -> bool:
    """Whether it holds on any rank."""
    if comm.size == 1:
        return flag
    sent = torch.tensor([int(flag)])
    comm.all_reduce(sent)()
    return bool(sent)
