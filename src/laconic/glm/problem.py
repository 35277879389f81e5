"""What is to be minimised: the mean loss of the rows, and a penalty on the weights."""

from copy import copy
from dataclasses import dataclass

import numpy as np
import torch

from laconic.glm.columns import Columns
from laconic.glm.families import Family


@dataclass(frozen=True, slots=True)
class Problem:
    """(1/m) Σ w_i φ(a_i·x + b + offset_i, y_i), over a rank's columns; all but the columns is the same on every rank.

    columns     A_p, this rank's block of the columns
    family      φ
    y           (m,) targets
    weights     (m,) not negative, or None for ones
    offset      (m,) or (m, C) added to the margins, or None
    rows        rows to train on (int64); None for all
    validation  rows held back for early stopping; None for none
    """

    columns: Columns
    family: Family
    y: torch.Tensor
    weights: torch.Tensor | None = None
    offset: torch.Tensor | None = None
    rows: np.ndarray | None = None
    validation: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("y", "weights", "offset"):
            value = getattr(self, name)
            if value is not None and len(value) != self.columns.m:
                raise ValueError(f"{name} has {len(value)} entries, but X has {self.columns.m} rows")
        if self.weights is not None and bool((self.weights < 0).any() | ~torch.isfinite(self.weights).all()):
            raise ValueError("weights must be finite and not negative")
        if self.offset is not None and not bool(torch.isfinite(self.offset).all()):
            raise ValueError("offset must be finite; exposures of 0 have no logarithm")
        m = self.columns.m
        for name, rows in (("rows", self.rows), ("validation", self.validation)):
            if rows is not None and len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < m):
                raise ValueError(f"{name} must lie between 0 and {m - 1}, but go from {rows.min()} to {rows.max()}")
        if self.validation is not None and not bool(self.weights_as(torch.float64)[self.validation].any()):
            raise ValueError("validation: the rows held back are none, or all of weight 0")
        self.family.check(self.y)

    @property
    def n_outputs(self) -> int:
        """C, columns of a margin."""
        return self.family.n_outputs(self.y)

    @property
    def n_rows(self) -> int:
        """Rows to train on."""
        return self.columns.m if self.rows is None else len(self.rows)

    def cast(self, dtype: torch.dtype) -> "Problem":
        """The same problem, targets, weights and offsets in the type and the place that the arithmetic is done in."""
        new, device = copy(self), self.columns.device  # what was checked need not be checked again
        object.__setattr__(new, "y", self.y.to(device, dtype))
        object.__setattr__(new, "weights", None if self.weights is None else self.weights.to(device, dtype))
        object.__setattr__(new, "offset", None if self.offset is None else self.offset_as(dtype).to(device))
        return new

    def weights_as(self, dtype: torch.dtype) -> torch.Tensor:
        """Weights (m,), ones where none were given."""
        if self.weights is None:
            return torch.ones(1, dtype=dtype, device=self.y.device).expand(self.columns.m)
        return self.weights.to(dtype)

    def offset_as(self, dtype: torch.dtype) -> torch.Tensor:
        """Offsets (m, C), or (0, C) where none were given."""
        if self.offset is None:
            return torch.zeros(0, self.n_outputs, dtype=dtype, device=self.y.device)
        return self.offset.to(dtype).reshape(self.columns.m, -1).expand(-1, self.n_outputs).contiguous()


@dataclass(frozen=True, slots=True)
class Penalty:
    """α ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁); the intercept is not penalised.

    The square acts in every iteration. The absolute value acts once per outer iteration of CA-SGD, with the step sizes
    of that iteration summed: with s > 1 and l1_ratio > 0 the iterates depend on s.
    """

    alpha: float = 1e-4
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be finite and not negative, got {self.alpha}")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {self.l1_ratio}")

    @property
    def l2(self) -> float:
        """λ of (λ/2) ‖x‖²."""
        return self.alpha * (1 - self.l1_ratio)

    @property
    def l1(self) -> float:
        """Factor of ‖x‖₁."""
        return self.alpha * self.l1_ratio

    def value(self, x: torch.Tensor) -> float:
        """The penalty of (a rank's part of) the weights."""
        x = x.double()
        return float(self.l2 / 2 * x.square().sum() + self.l1 * x.abs().sum())

    def shrink(self, x: torch.Tensor, step: float) -> torch.Tensor:
        """The proximal step of the absolute values: towards zero by l1 · step, and not past it."""
        if self.l1 == 0:
            return x
        return torch.sign(x) * (x.abs() - self.l1 * step).clamp(min=0)
