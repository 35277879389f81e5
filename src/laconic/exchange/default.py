"""The ranks this script runs on."""

import atexit
import os

import torch.distributed as dist

from laconic.errors import ExchangeFailed
from laconic.exchange.channel import backend_of
from laconic.exchange.communicator import Communicator
from laconic.exchange.launch import inside_torchrun
from laconic.exchange.threads import yielding_threads


def default_communicator() -> Communicator:
    """All ranks of the default process group; without one, this process alone.

    Under torchrun (RANK and WORLD_SIZE are in the environment) a script that has set up no process group gets one over
    Gloo, once, which is left when the script ends. So the same script runs alone and on many ranks.

    >>> default_communicator().size
    1
    """
    if not dist.is_initialized() and inside_torchrun() and int(os.environ["WORLD_SIZE"]) > 1:
        with yielding_threads():
            dist.init_process_group("gloo")
        atexit.register(_leave)
    if dist.group.WORLD is not None and not backend_of(dist.group.WORLD):
        raise ExchangeFailed(
            "the default process group is NCCL, which carries no CPU tensors; "
            'set it up with init_process_group("gloo"), or pass comm=Communicator.over(new_group(backend="gloo"))'
        )
    return Communicator.over()


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
