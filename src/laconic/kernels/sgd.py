"""What a run of SGD iterations in one process reads and changes; the loop itself is a kernel."""

from dataclasses import dataclass

import numpy as np
import torch

from laconic.kernels.recurrence import Intercept


@dataclass(frozen=True, slots=True)
class Batches:
    """Consecutive batches of an epoch, and how to step through them.

    rows      (k,) rows of the matrix, one batch after another (int64)
    size      rows of a batch; the last may have fewer
    y, w      (m,) targets and weights of all rows
    offset    (m, C), or (0, C) for none
    rates     (n_batches,) η (float64)
    mix       (n_batches,) share of the newest iterate in the average (float64); (0,) for none
    l2, l1    factors of ‖x‖²/2 and ‖x‖₁
    momentum  μ
    mean      whether a batch's gradient is a mean, not a sum
    narrow    whether margins are rounded to bfloat16
    """

    rows: np.ndarray
    size: int
    y: torch.Tensor
    w: torch.Tensor
    offset: torch.Tensor
    rates: np.ndarray
    mix: np.ndarray
    l2: float
    l1: float
    momentum: float
    mean: bool
    narrow: bool


@dataclass(slots=True)
class Weights:
    """x, its momentum u and its average x̄, (C, n) each, changed in place; u and x̄ are (0, n) where not in use."""

    x: torch.Tensor
    momentum: torch.Tensor
    average: torch.Tensor
    intercept: Intercept
