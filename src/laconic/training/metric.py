"""The metric that gradients are quantised in: one positive number m per coordinate, the same on every rank.

The gradient is divided by m before it is encoded, and the average is multiplied by m after it is decoded. Every rank
knows m already, so nothing more is sent, and any codec can be used. The codec's error is then relative to m.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, cast

import torch

from laconic.codec import Codec
from laconic.errors import Disagreement
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json
from laconic.kernels import Number, Part, Scale, select
from laconic.quantizers import Dithered
from laconic.quantizers.dithered import WHOLE
from laconic.training.groups import Group

FLOOR = 0.1
"""Least m of a coordinate, in units of the root mean square of m over its parameter."""
MOST_ERROR = 4.0
"""Largest normalised error that `ModelScale` gives a group."""


@dataclass(slots=True)
class Metric(ABC):
    """Gives each group's m at each step.

    reason      why this metric, in words for `laconic.stats`
    parameters  of the model, by name, if the metric keeps something about each
    means       what it keeps: the mean of squared gradients, by name
    """

    reason: str
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)
    means: dict[str, torch.Tensor] = field(default_factory=dict)
    name: ClassVar[str]

    @abstractmethod
    def scale(self, group: Group) -> Scale | None:
        """m of this group at this step; None while it is not known, and the group goes in float32."""

    def codec(self, codec: Codec, group: Group) -> Codec:
        """The codec for this group at this step."""
        return codec

    def example(self, n: int, device: torch.device) -> Scale:
        """An m of n values such as `scale` gives, to compile the kernels that it needs."""
        return Scale()

    def observe(self, group: Group, average: torch.Tensor) -> None:  # noqa: B027 (most learn nothing from it)
        """Update the metric from an average (n,), which is the same on all ranks."""

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        """A number per parameter that must not differ between ranks."""
        return {name: float(value) for name, value in self.means.items()}

    def state(self) -> dict[str, torch.Tensor]:
        """What must survive a restart: a number per parameter, NaN where there is none yet; so states of all steps
        have the same entries."""
        return {name: self.means.get(name, torch.tensor(torch.nan)).clone() for name in self.parameters}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on from a saved state."""
        self.means = {name: value.clone() for name, value in state.items() if not value.isnan()}


@dataclass(slots=True)
class SquaredError(Metric):
    """m = 1: every coordinate's error counts alike."""

    name: ClassVar[str] = "none"

    def scale(self, group: Group) -> Scale:
        return Scale()


@dataclass(slots=True)
class TensorScale(Metric):
    """m = the root mean square of the parameter's last averaged gradient, one number per parameter.

    So each parameter's error is relative to its own gradient. At the first step everything goes in float32.
    """

    name: ClassVar[str] = "tensor"

    def scale(self, group: Group) -> Scale | None:
        if any(name not in self.means for name in group.names):
            return None
        floors = least_squares(group, [self.means[name] for name in group.names], share=1.0)
        spans = pairwise(group.cuts)
        return Scale(tuple(Part(i, j, None, 1.0, least) for (i, j), least in zip(spans, floors, strict=True)))

    def example(self, n: int, device: torch.device) -> Scale:
        mean(torch.ones(n, dtype=torch.float32, device=device), squared=True)
        return Scale((Part(0, n, None, 1.0, 1.0),))

    def observe(self, group: Group, average: torch.Tensor) -> None:
        """Keep the mean square of each parameter; that of the step before where this one is not finite."""
        for name, (i, j) in zip(group.names, pairwise(group.cuts), strict=True):
            found = mean(average[i:j], squared=True)
            self.means[name] = torch.where(found.isfinite(), found, self.means.get(name, torch.zeros_like(found)))


@dataclass(slots=True)
class ModelScale(TensorScale):
    """m = 1, and one error for the model: error_G = error · (mean square of the model) / (mean square of group G).

    So all coordinates have the same error, which takes the fewest bits for a given sum of squares. Cells of zeros have
    no error, so the other coordinates of their group have more. The mean squares are those of the last averaged
    gradients; until there are some, and beyond `MOST_ERROR`, groups do not differ.
    """

    name: ClassVar[str] = "model"
    _overall: float | None = None

    def scale(self, group: Group) -> Scale:
        return Scale()

    def example(self, n: int, device: torch.device) -> Scale:
        super(ModelScale, self).example(n, device)
        return Scale()

    def codec(self, codec: Codec, group: Group) -> Codec:
        if not has_one_error(codec) or any(name not in self.means for name in group.names):
            return codec
        if self._overall is None:
            self._overall = self._mean_square(self.means)
        own, error = self._mean_square(group.names), cast(float, cast(Dithered, codec.quantizer).error)
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
        return sum(n * float(self.means[name]) for name, n in sizes.items()) / sum(sizes.values())


def least_squares(group: Group, means: Sequence[torch.Tensor | None], share: float) -> list[Number]:
    """The least m² of each parameter of a group: share · mean, given its mean square, None or 0 if unknown.

    Unknown ones get FLOOR² times the mean over the known ones, or 1 if none is known.
    """
    like = next(mean for mean in means if mean is not None)
    known = torch.stack([torch.zeros_like(like) if mean is None else mean for mean in means])
    sizes = _sizes(group, like.device) * (known > 0)
    overall = (known * sizes).sum() / sizes.sum()
    floors = torch.where(known > 0, share * known, torch.where(overall > 0, FLOOR**2 * overall, 1.0))
    return floors.tolist() if floors.is_cpu else list(floors)


@lru_cache(maxsize=4096)
def _sizes(group: Group, device: torch.device) -> torch.Tensor:
    """Number of values of each parameter of a group. Cached, since sending it to a GPU makes the host wait."""
    return torch.tensor([shape.numel() for shape in group.shapes], dtype=torch.float32, device=device)


def mean(values: torch.Tensor, *, squared: bool = False) -> torch.Tensor:
    """The mean of values (n,) float32, or of their squares, as a float32 number on their device."""
    return (select("auto", values.device).total(values, squared) / max(values.numel(), 1)).float()


def has_one_error(codec: Codec) -> bool:
    """Whether the codec has one step for all values of a group, by a given error: what `ModelScale` needs."""
    quantizer = codec.quantizer
    return isinstance(quantizer, Dithered) and quantizer.error is not None and quantizer.bucket_size == WHOLE


@lru_cache(maxsize=256)
def _with_error(codec: Codec, error: float) -> Codec:
    """The codec with another error. Cached, since a codec caches frames, and errors are quarters of octaves apart."""
    quantizer = cast(Dithered, codec.quantizer)
    return replace(codec, quantizer=replace(quantizer, error=min(max(error, 1e-9), 1e6)))


def require_same_scales(comm: Communicator, facts: Mapping[str, float], device: torch.device) -> None:
    """Raise `Disagreement` on every rank unless the facts of all are the same, up to rounding on other machines."""
    first, *others = gather_json(comm, dict(facts), device)
    for rank, other in enumerate(others, start=1):
        for name in sorted(first.keys() | other.keys()):
            ours, theirs = first.get(name, 0.0), other.get(name, 0.0)
            if not math.isclose(ours, theirs, rel_tol=1e-3) and str(ours) != str(theirs):  # NaN is NaN
                raise Disagreement(
                    f"the mean squared gradient of {name} is {ours:g} on rank 0 and {theirs:g} on rank {rank}, and the "
                    "metric needs the same. Give every rank the same optimizer and its state, or use metric='tensor'"
                )
