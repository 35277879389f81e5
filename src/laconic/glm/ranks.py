"""What ranks have to settle between them besides sums: errors, flags, and tensors for rank 0."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.exchange.agreement import raise_on_all_ranks, user_message


@contextmanager
def user_errors(comm: Communicator) -> Iterator[None]:
    """`raise_on_all_ranks` for a block that reads files and settings, whose errors are the user's to mend.

    `ValueError`, `TypeError` and `OSError` are raised as `LaconicError` with the same message.
    """
    try:
        with raise_on_all_ranks(comm):
            yield
    except LaconicError:
        raise
    except (ValueError, TypeError, OSError) as error:
        raise LaconicError(user_message(error)) from error


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
