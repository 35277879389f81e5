"""The metric that gradients are quantised in: one positive number m per coordinate, the same on every rank.

The gradient is divided by m before it is encoded, and the average is multiplied by m after it is decoded. Every rank
knows m already, so nothing more is sent, and any codec can be used. The codec's error is then relative to m.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.errors import Disagreement
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json
from laconic.kernels import Number, Scale, select
from laconic.training.groups import Group

FLOOR = 0.1
"""Least m of a coordinate, in units of the root mean square of m over its parameter."""


@dataclass(slots=True)
class Metric(ABC):
    """Gives each group's m at each step.

    reason  why this metric, in words for `laconic.stats`
    """

    reason: str
    name: ClassVar[str]

    @abstractmethod
    def scale(self, group: Group) -> Scale | None:
        """m of this group at this step; None while nothing is known of it, and it goes in float32."""

    def codec(self, codec: Codec, group: Group) -> Codec:
        """The codec for this group at this step."""
        return codec

    def example(self, n: int, device: torch.device) -> Scale:
        """An m of n values such as `scale` gives, to compile the kernels that it needs."""
        return Scale()

    def observe(self, group: Group, average: torch.Tensor) -> None:  # noqa: B027 (most learn nothing from it)
        """Learn from an average (n,) that all ranks have."""

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        """A number per parameter that must not differ between ranks."""
        return {}

    def state(self) -> dict[str, torch.Tensor]:
        """What must survive a restart, by parameter."""
        return {}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:  # noqa: B027
        """Go on from a saved state."""


@dataclass(slots=True)
class SquaredError(Metric):
    """m = 1: every coordinate's error counts alike."""

    name: ClassVar[str] = "none"

    def scale(self, group: Group) -> Scale:
        return Scale()


def least_squares(group: Group, means: Sequence[torch.Tensor | None], share: float) -> list[Number]:
    """The least m² of each parameter of a group, given its mean square, None or 0 if it has none: share · mean.

    A parameter without takes FLOOR² of the mean over those that have one. If none has, all are alike: 1.
    """
    like = next(mean for mean in means if mean is not None)
    known = torch.stack([torch.zeros_like(like) if mean is None else mean for mean in means])
    sizes = _sizes(group, like.device) * (known > 0)
    overall = (known * sizes).sum() / sizes.sum()
    floors = torch.where(known > 0, share * known, torch.where(overall > 0, FLOOR**2 * overall, 1.0))
    return floors.tolist() if floors.is_cpu else list(floors)


@lru_cache(maxsize=4096)
def _sizes(group: Group, device: torch.device) -> torch.Tensor:
    """Values of each parameter of a group; kept, since the host waits for what it sends to a GPU."""
    return torch.tensor([float(shape.numel()) for shape in group.shapes], device=device)


def mean(values: torch.Tensor, *, squared: bool = False) -> torch.Tensor:
    """The mean of values (n,) float32, or of their squares, as a float32 number on their device."""
    return (select("auto", values.device).total(values, squared) / max(values.numel(), 1)).float()


def saved(means: Mapping[str, torch.Tensor], parameters: Iterable[str]) -> dict[str, torch.Tensor]:
    """A number per parameter; NaN where there is none yet, so that a state has the same entries at every step."""
    return {name: means.get(name, torch.tensor(torch.nan)).clone() for name in parameters}


def loaded(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What was saved."""
    return {name: value.clone() for name, value in state.items() if not value.isnan()}


def require_same_scales(comm: Communicator, facts: Mapping[str, float], device: torch.device) -> None:
    """Raise `Disagreement` on every rank unless the facts of all are the same, within what other machines round."""
    first, *others = gather_json(comm, dict(facts), device)
    for rank, other in enumerate(others, start=1):
        for name in sorted(first.keys() | other.keys()):
            ours, theirs = first.get(name, 0.0), other.get(name, 0.0)
            if not math.isclose(ours, theirs, rel_tol=1e-3) and str(ours) != str(theirs):  # NaN is NaN
                raise Disagreement(
                    f"the mean squared gradient of {name} is {ours:g} on rank 0 and {theirs:g} on rank {rank}, and the "
                    "metric needs the same. Give every rank the same optimizer and its state, or use metric='none'"
                )
