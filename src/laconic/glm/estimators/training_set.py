"""Targets and weights: gathered from all ranks, scaled, split."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.model_selection import train_test_split

from laconic.exchange import Communicator
from laconic.glm.estimators.inputs import Inputs
from laconic.glm.repartition import gather


@dataclass(frozen=True, slots=True)
class Targets:
    """(m,) numbers of all rows.

    y        what the family takes: class numbers, counts, measurements
    weights  not negative, or None for ones
    strata   what to keep the proportions of in a split; None for nothing
    """

    y: np.ndarray
    weights: np.ndarray | None
    strata: np.ndarray | None = None


def join_rows(local: Inputs, comm: Communicator) -> Inputs:
    """Targets, weights and offsets of all ranks' rows, in the order of ranks, on every rank."""
    return replace(
        local,
        y=_joined(gather(_plain(local.y), comm)),
        sample_weight=None if local.sample_weight is None else _joined(gather(local.sample_weight, comm)),
        offset=None if local.offset is None else _joined(gather(local.offset, comm)),
    )


def _plain(y: np.ndarray) -> np.ndarray:
    """Labels that are Python objects as text: objects do not go over the wire."""
    if y.dtype != object:
        return y
    if not all(isinstance(label, str) for label in y):
        raise TypeError('labels must be numbers or text to be gathered from all ranks (rows="partitioned")')
    return y.astype(str)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    filled = [part for part in parts if len(part)]
    if not filled:
        raise ValueError("Found array with 0 sample(s): no rank has any row")
    return np.concatenate(filled)


def mean_one(weights: np.ndarray | None, rows: np.ndarray | None) -> np.ndarray | None:
    """Weights divided by their mean over the rows trained on: what counts is how they compare.

    Then a row of weight 2 is a row given twice, and alpha means the same whatever the weights' scale.
    """
    if weights is None:
        return None
    mean = weights.mean() if rows is None else weights[rows].mean()
    if mean == 0:
        raise ValueError("sample_weight is zero in every row to train on; at least one weight must be positive")
    scaled: np.ndarray = weights / mean
    return scaled


def split(targets: Targets, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and rows held back; both in order."""
    held = train_test_split(
        np.arange(len(targets.y)), test_size=fraction, stratify=targets.strata, random_state=seed % 2**32
    )
    train, validation = (np.sort(part).astype(np.int64) for part in held)
    if targets.weights is not None and not targets.weights[validation].any():
        raise ValueError("sample_weight is zero in every row held back; try another random_state")
    return train, validation
