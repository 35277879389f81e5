"""Metrics from the last averaged gradients, which every rank has: one scale per parameter, or one for the model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, cast

import torch

from laconic.codec import Codec
from laconic.kernels import Part, Scale
from laconic.quantizers import Dithered
from laconic.training.groups import Group
from laconic.training.metric.base import Metric, least_squares, loaded, mean, saved

MOST_ERROR = 4.0
"""Largest normalised error that `ModelScale` gives a group."""


@dataclass(slots=True)
class TensorScale(Metric):
    """m = the root mean square of the parameter's last averaged gradient, one number per parameter.

    So each parameter's error is relative to its own gradient. At the first step everything goes in float32.

    parameters  of the model, by name
    squares     mean square of the last averaged gradient, by name
    """

    name: ClassVar[str] = "tensor"
    parameters: Mapping[str, torch.Tensor]
    squares: dict[str, torch.Tensor] = field(default_factory=dict)

    def scale(self, group: Group) -> Scale | None:
        if any(name not in self.squares for name in group.names):
            return None
        floors = least_squares(group, [self.squares[name] for name in group.names], share=1.0)
        spans = pairwise(group.cuts)
        return Scale(tuple(Part(i, j, None, 1.0, least) for (i, j), least in zip(spans, floors, strict=True)))

    def example(self, n: int, device: torch.device) -> Scale:
        mean(torch.ones(n, device=device), squared=True)
        return Scale((Part(0, n, None, 1.0, 1.0),))

    def observe(self, group: Group, average: torch.Tensor) -> None:
        """Keep the mean square of each parameter; that of the step before where this one is not finite."""
        for name, (i, j) in zip(group.names, pairwise(group.cuts), strict=True):
            found = mean(average[i:j], squared=True)
            self.squares[name] = torch.where(found.isfinite(), found, self.squares.get(name, torch.zeros_like(found)))

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        return {name: float(value) for name, value in self.squares.items()}

    def state(self) -> dict[str, torch.Tensor]:
        return saved(self.squares, self.parameters)

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        self.squares = loaded(state)


@dataclass(slots=True)
class ModelScale(TensorScale):
    """m = 1, and one error for the model: error_G = error · (mean square of the model) / (mean square of group G).

    So all coordinates have the same error, which takes the fewest bits for a sum of squares; a group with cells of
    zeros, which have none, has more elsewhere. The mean squares are those of the last averaged gradients; until there
    are some, and beyond `MOST_ERROR`, groups do not differ.
    """

    name: ClassVar[str] = "model"
    _overall: float | None = None

    def scale(self, group: Group) -> Scale:
        return Scale()

    def example(self, n: int, device: torch.device) -> Scale:
        super(ModelScale, self).example(n, device)
        return Scale()

    def codec(self, codec: Codec, group: Group) -> Codec:
        if any(name not in self.squares for name in group.names):
            return codec
        if self._overall is None:
            self._overall = self._mean_square(self.squares)
        own, error = self._mean_square(group.names), codec.quantizer.error  # type: ignore[attr-defined]
        octaves = math.log2(self._overall / own) if own > 0 else 0.0
        return _with_error(codec, min(error * 2.0 ** (round(4 * octaves) / 4), max(error, MOST_ERROR)))

    def observe(self, group: Group, average: torch.Tensor) -> None:
        super(ModelScale, self).observe(group, average)
        self._overall = None

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        super(ModelScale, self).load(state)
        self._overall = None

    def _mean_square(self, names: Iterable[str]) -> float:
        sizes = {name: self.parameters[name].numel() for name in names}
        return sum(n * float(self.squares[name]) for name, n in sizes.items()) / sum(sizes.values())


@lru_cache(maxsize=256)
def _with_error(codec: Codec, error: float) -> Codec:
    """Kept, since a codec remembers the frames of its payloads; errors are quarters of octaves apart."""
    quantizer = cast(Dithered, codec.quantizer)
    return replace(codec, quantizer=replace(quantizer, error=min(max(error, 1e-9), 1e6)))
