"""Coefficients of all columns, on every rank."""

import torch

from laconic.exchange import Communicator


def gather_columns(x: torch.Tensor, first: int, n: int, comm: Communicator) -> torch.Tensor:
    """(C, n) from each rank's (C, n_p), which begins at column `first`; in x's own type, the same bits on every rank.

    Sums of one number and zeros are exact, so this is one AllReduce of vectors padded with zeros.
    """
    whole = torch.zeros(x.shape[0], n, dtype=torch.float64)
    whole[:, first : first + x.shape[1]] = x.cpu()
    comm.all_reduce(whole)()
    return whole.to(x.dtype)
