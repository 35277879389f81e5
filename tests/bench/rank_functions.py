"""What rank processes are asked to do by the tests of `start_ranks`."""

import os
import sys
import time

import torch

from laconic.exchange import Communicator


def add(tell, *, number):
    comm = Communicator.over()
    v = torch.tensor([float(number + comm.rank)])
    comm.all_reduce(v)()
    tell("adding")
    print("not a result")  # noqa: T201
    return {"rank": comm.rank, "sum": float(v), "threads": torch.get_num_threads(), "pid": os.getpid()}


def fail_on_one(tell):
    if Communicator.over().rank == 1:
        raise RuntimeError("the sky has fallen")
    time.sleep(60)


def sleep(tell, *, notes):
    with open(os.path.join(notes, f"{os.getpid()}"), "w"):
        pass
    sys.stderr.write("asleep\n")
    time.sleep(60)
