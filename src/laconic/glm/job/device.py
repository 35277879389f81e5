"""Where a fit from the command line computes."""

import torch

from laconic.data import BadTable
from laconic.errors import BackendUnavailable, InvalidOption, Option

DEVICES = ("cpu", "cuda", "auto")


def check_device(asked: str, n_ranks: int) -> None:
    """Refuse a device that is unknown, or that these ranks cannot use, before anything is read."""
    if asked not in DEVICES:
        raise ValueError(f"unknown device {asked!r}; choose one of {', '.join(DEVICES)}")
    if asked == "cuda" and n_ranks > 1:
        why = f" is for one process, and there are {n_ranks}; fit on one, or leave "
        raise InvalidOption(Option("device", asked), why, Option("device"), " out")
    if asked == "cuda" and not torch.cuda.is_available():
        why = ", but there is no CUDA GPU here; leave "
        raise BackendUnavailable(Option("device", asked), why, Option("device"), " out")


def device_for(asked: str, path: str, *, is_sparse: bool, n_ranks: int) -> str:
    """One of "cpu" and "cuda": "auto" is a GPU where there is one and it can be used: one process, a dense X.

    >>> device_for("auto", "a9a", is_sparse=True, n_ranks=1)
    'cpu'
    """
    if asked == "cuda" and is_sparse:
        why = " needs a dense X; a LIBSVM file is one with "
        raise BadTable(f"{path} is sparse, and ", Option("device", asked), why, Option("dense", True))
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() and n_ranks == 1 and not is_sparse else "cpu"
    return asked
