"""Frequencies for an entropy coder of finite precision: the optimal allocation of slots to symbols."""

import numpy as np
import torch


def allocate(counts: torch.Tensor, total: int) -> torch.Tensor:
    """Integers f >= 1 for the symbols that occur, 0 for the others, that sum to `total` and minimise the code length.

        minimise  sum_s counts_s * log2(total / f_s)    subject to  sum_s f_s = total

    The proportional share, rounded, is corrected one slot at a time, each time where that costs least or gains most.
    The cost is convex in every f_s: when no move of one slot from a symbol to another helps, no allocation is better.

    counts  (n_symbols,) int64, not all 0, at most `total` of them not 0
    returns (n_symbols,) int32

    >>> allocate(torch.tensor([6, 0, 1, 1]), 16).tolist(), allocate(torch.tensor([10**9, 1]), 16).tolist()
    ([12, 0, 2, 2], [15, 1])
    """
    c = counts.cpu().numpy().astype(np.float64)
    occurs = c > 0
    f = np.where(occurs, np.maximum(np.rint(c * (total / c.sum())), 1), 0)
    while True:
        gain, loss = _gain_of_one_more(c, f), _loss_of_one_less(c, f)
        most, least = gain.argmax(), loss.argmin()
        excess = f.sum() - total
        if excess == 0 and gain[most] <= loss[least] * (1 + 1e-12):
            return torch.from_numpy(f.astype(np.int32))
        if excess >= 0:
            f[least] -= 1
        if excess <= 0:
            f[most] += 1


def _gain_of_one_more(c: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.where(f > 0, c * np.log1p(1 / np.maximum(f, 1)), -np.inf)


def _loss_of_one_less(c: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.where(f > 1, -c * np.log1p(-1 / np.maximum(f, 2)), np.inf)
