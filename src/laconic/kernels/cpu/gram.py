"""The strictly lower block triangle of a Gram matrix: panels by a matrix product, packed by a compiled loop."""

import numpy as np
import torch
from numba import njit

PANEL_ROWS = 128
"""Rows of a panel: enough for a fast product, few enough that little of the upper triangle is computed with it."""


@njit(nogil=True, cache=True)
def _pack(panel, first, cuts, out, begin):
    """Of each batch its rows up to where the batch begins, one after another from out[begin]; returns where it ends.

    panel  rows first, first + 1, … of Y Yᵀ; cuts are those of the batches in it
    """
    for j in range(cuts.size - 1):
        width = cuts[j]
        for row in range(cuts[j], cuts[j + 1]):
            for column in range(width):
                out[begin + column] = panel[row - first, column]
            begin += width
    return begin


def gram(Y: torch.Tensor, cuts: np.ndarray, out: torch.Tensor) -> None:
    """The triangle of Y Yᵀ into `out`, in the layout of `kernels.recurrence.Block`; all in the type of Y."""
    begin, j, last_batch = 0, 1, len(cuts) - 1
    while j < last_batch:
        end = max(j + 1, int(np.searchsorted(cuts, cuts[j] + PANEL_ROWS, side="right")) - 1)
        panel = Y[cuts[j] : cuts[end]] @ Y[: cuts[end - 1]].T
        begin = _pack(panel.numpy(), cuts[j], cuts[j : end + 1], out.numpy(), begin)
        j = end
