"""What is to be minimised."""

from dataclasses import dataclass, replace

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
        """The same problem with targets, weights and offsets in the type that the arithmetic runs in."""
        weights = None if self.weights is None else self.weights.to(dtype)
        offset = None if self.offset is None else self.offset_as(dtype)
        return replace(self, y=self.y.to(dtype), weights=weights, offset=offset)

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
