"""Ranks of which one is gone before it has measured anything."""

import os

from laconic.exchange import Communicator
from laconic.measure.calibrate import calibrate_on_rank


def die(progress, **arguments):
    if Communicator.over().rank == 1:
        os._exit(3)
    return calibrate_on_rank(progress, **arguments)
