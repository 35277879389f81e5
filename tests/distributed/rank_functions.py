"""What rank processes are asked to do by the tests of `start_ranks`."""

import os
import signal
import sys
import time

import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import raise_on_all_ranks


def add(progress, *, number):
    comm = Communicator.over()
    v = torch.tensor([float(number + comm.rank)])
    comm.all_reduce(v)()
    progress("adding")
    print("not a result")  # noqa: T201
    return {"rank": comm.rank, "sum": float(v), "threads": torch.get_num_threads(), "pid": os.getpid()}


def fail_on_one(progress):
    if Communicator.over().rank == 1:
        raise RuntimeError("the sky has fallen")
    time.sleep(600)


def die(progress):
    """One rank is killed, as the system does where memory runs out; the other waits for it."""
    comm = Communicator.over()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def sleep(progress, *, notes):
    with open(os.path.join(notes, f"{os.getpid()}"), "w"):
        pass
    sys.stderr.write("asleep\n")
    time.sleep(600)


def refuse(progress, *, wrong):
    """Raise an error that speaks of an option on one rank; the others are told."""
    comm = Communicator.over()
    with raise_on_all_ranks(comm):
        if comm.rank == wrong:
            raise InvalidOption(Option("batch_size"), " must be at least 1")
