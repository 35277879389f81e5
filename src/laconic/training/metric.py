"""The metric that gradients are quantised in: one positive number m per coordinate, the same on every rank.

The gradient is divided by m before it is encoded, and the average is multiplied by m after it is decoded. Every rank
knows m already, so nothing more is sent, and any codec can be used. The codec's error is then relative to m.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import optim

from laconic.codec import Codec
from laconic.errors import Disagreement, InvalidOption, Option
from laconic.exchange import Accounting, Communicator, Exchange
from laconic.exchange.agreement import gather_json
from laconic.exchange.base import Exchanged, Phases, Task
from laconic.kernels import Number, select
from laconic.quantizers import Identity
from laconic.training.groups import Group

FLOOR = 0.1
"""Least m of a coordinate, in units of the root mean square of m over its parameter."""
METRICS = ("auto", "none", "tensor")


@dataclass(frozen=True, slots=True)
class Part:
    """m of one parameter, values [first, last) of its group: √max(factor · squares, least), or √least without squares.

    squares  (last − first,) float32, where each coordinate has an m of its own
    """

    first: int
    last: int
    squares: torch.Tensor | None
    factor: Number
    least: Number


@dataclass(frozen=True, slots=True)
class Scale:
    """m of one group at one step; 1 everywhere if it has no parts."""

    parts: tuple[Part, ...] = ()

    def divide(self, flat: torch.Tensor) -> None:
        """A group's values (n,) float32 divided by m, in place; nothing if they are none."""
        self._apply(flat, inverse=True)

    def multiply(self, flat: torch.Tensor) -> None:
        """A group's values (n,) float32 multiplied by m, in place; nothing if they are none."""
        self._apply(flat, inverse=False)

    def _apply(self, flat: torch.Tensor, inverse: bool) -> None:
        for part in self.parts if flat.numel() else ():
            values = flat[part.first : part.last]
            if part.squares is not None:
                select("auto", flat.device).scale_by_root(values, part.squares, part.factor, part.least, inverse)
            elif inverse:
                values.div_(part.least**0.5)
            else:
                values.mul_(part.least**0.5)


@dataclass(frozen=True, slots=True)
class InMetric(Exchange):
    """An exchange of values divided by m, whose average is multiplied by m; error memory stays in units of the values.

    1. divide values and memory by m; 2. the first phase of `inner`, which encodes; 3. multiply the memory by m;
    4. the other phases; 5. multiply the average, which is the same on all ranks, by m.
    """

    inner: Exchange
    scale: Scale

    name: ClassVar[str] = "in_metric"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        spent, memory = Accounting(), task.v[:0] if task.memory is None else task.memory
        phases = self.inner.phases(task, comm)
        with spent.timed("encode"):
            self.scale.divide(task.v)
            self.scale.divide(memory)
        next(phases)
        with spent.timed("encode"):
            self.scale.multiply(memory)
        yield
        result: Exchanged = yield from phases
        with spent.timed("decode"):
            self.scale.multiply(result.value)
        accounting = result.accounting
        accounting += spent
        return result

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return self.inner.bytes_received(codec, n, size)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """That of `inner`, with all norms taken after division by m."""
        return self.inner.variance_bound(codec, n, size)


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


@dataclass(slots=True)
class TensorScale(Metric):
    """m = the root mean square of the parameter's last averaged gradient, one number per parameter.

    So each parameter's error is relative to its own gradient. At the first step everything goes in float32.
    """

    name: ClassVar[str] = "tensor"
    squares: dict[str, torch.Tensor] = field(default_factory=dict)

    def scale(self, group: Group) -> Scale | None:
        if any(name not in self.squares for name in group.names):
            return None
        floors = least_squares(group, [self.squares[name] for name in group.names], share=1.0)
        spans = pairwise(group.cuts)
        return Scale(tuple(Part(i, j, None, 1.0, least) for (i, j), least in zip(spans, floors, strict=True)))

    def observe(self, group: Group, average: torch.Tensor) -> None:
        """Keep the mean square; that of the step before where this one is not finite."""
        for name, values in group.views(average).items():
            found = mean_of(values.reshape(-1).square())
            self.squares[name] = torch.where(found.isfinite(), found, self.squares.get(name, torch.zeros_like(found)))

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        return {name: float(value) for name, value in self.squares.items()}

    def state(self) -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in self.squares.items()}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        self.squares = {name: value.clone() for name, value in state.items()}


Moment = tuple[torch.Tensor, Number]
"""A tensor in a parameter's shape, and the factor that makes it the mean of the squared gradients so far."""


def _adam(state: Mapping[str, Any], options: Mapping[str, Any]) -> Moment:
    key = "max_exp_avg_sq" if "max_exp_avg_sq" in state else "exp_avg_sq"
    return state[key], _inverse(1.0 - options["betas"][1] ** _number(state["step"]))


def _adamax(state: Mapping[str, Any], options: Mapping[str, Any]) -> Moment:
    return state["exp_inf"].square(), 1.0


def _rmsprop(state: Mapping[str, Any], options: Mapping[str, Any]) -> Moment:
    return state["square_avg"], 1.0


def _adagrad(state: Mapping[str, Any], options: Mapping[str, Any]) -> Moment:
    return state["sum"], _inverse(_number(state["step"]))


SECOND_MOMENTS: dict[type[optim.Optimizer], Callable[[Mapping[str, Any], Mapping[str, Any]], Moment]] = {
    optim.Adam: _adam,
    optim.AdamW: _adam,
    optim.NAdam: _adam,
    optim.RAdam: _adam,
    optim.Adamax: _adamax,
    optim.RMSprop: _rmsprop,
    optim.Adagrad: _adagrad,
}
"""Where each optimizer keeps the mean of squared gradients by whose root it divides, from a parameter's state and the
options of its group."""


@dataclass(slots=True)
class SecondMoment(Metric):
    """m = max(√v, 0.1 rms(√v)), where v is the optimizer's mean of squared gradients, corrected for its start at zero.

    v is that of the last step, which all ranks took with the same averages. The floor, per parameter, is for
    coordinates with hardly any gradient, such as rows of an embedding that were never used.

    - A group none of whose parameters has a v yet, as at the first step, goes in float32; if the optimizer does not
      hold any of them, m = 1.
    - A parameter without a v, or with v = 0, in a group with others (added later, or not used so far) takes a tenth of
      the group's rms(√v).

    optimizer   of the model; asked at each step, so that loading its state restores the metric
    parameters  of the model, by name
    """

    name: ClassVar[str] = "second moment"
    optimizer: optim.Optimizer
    parameters: Mapping[str, torch.Tensor]
    _options: dict[int, dict[str, Any]] = field(default_factory=dict)
    _seen: tuple[int, int] = (0, 0)

    def scale(self, group: Group) -> Scale | None:
        moments = self._moments(group)
        if not any(moments):
            return None if any(id(self.parameters[name]) in self._options for name in group.names) else Scale()
        means = [None if moment is None else mean_of(moment[0]) * moment[1] for moment in moments]
        floors = least_squares(group, means, share=FLOOR**2)
        parts = []
        for (i, j), moment, least in zip(pairwise(group.cuts), moments, floors, strict=True):
            squares, factor = moment or (None, 1.0)
            parts.append(Part(i, j, squares, factor, least))
        return Scale(tuple(parts))

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        found: dict[str, float] = {}
        for group in groups:
            for name, moment in zip(group.names, self._moments(group), strict=True):
                found |= {} if moment is None else {name: float(mean_of(moment[0]) * moment[1])}
        return found

    def _moments(self, group: Group) -> list[Moment | None]:
        """v of each parameter as a float32 row, and its factor; None where the optimizer has none."""
        groups = self.optimizer.param_groups
        seen = (id(groups), sum(len(options["params"]) for options in groups))
        if seen != self._seen:
            self._options = {id(p): options for options in groups for p in options["params"]}
            self._seen = seen
        return [self._moment(self.parameters[name]) for name in group.names]

    def _moment(self, p: torch.Tensor) -> Moment | None:
        state, options = self.optimizer.state.get(p), self._options.get(id(p))
        if not state or options is None:
            return None
        read = next(SECOND_MOMENTS[kind] for kind in type(self.optimizer).__mro__ if kind in SECOND_MOMENTS)
        v, factor = read(state, options)
        begun = isinstance(factor, torch.Tensor) or factor > 0
        usable = begun and v.shape == p.shape and v.device == p.device
        return (v.detach().reshape(-1).float(), factor) if usable else None


def least_squares(group: Group, means: Sequence[torch.Tensor | None], share: float) -> list[Number]:
    """The least m² of each parameter of a group, given its mean square, None or 0 if it has none: share · mean.

    A parameter without takes FLOOR² of the mean over those that have one. If none has, all are alike: 1.
    """
    like = next(mean for mean in means if mean is not None)
    known = torch.stack([torch.zeros_like(like) if mean is None else mean for mean in means])
    sizes = torch.tensor([float(shape.numel()) for shape in group.shapes], device=like.device) * (known > 0)
    overall = (known * sizes).sum() / sizes.sum()
    floors = torch.where(known > 0, share * known, torch.where(overall > 0, FLOOR**2 * overall, 1.0))
    return floors.tolist() if floors.is_cpu else list(floors)


def mean_of(values: torch.Tensor) -> torch.Tensor:
    """The mean of values (n,) float32; on the CPU NumPy takes it, whose sums do not depend on the number of threads."""
    n = max(values.numel(), 1)
    return torch.tensor(float(values.numpy().sum()) / n) if values.is_cpu else values.sum() / n


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


def _number(value: Any) -> Any:
    """A number of the host as it is, one on a GPU as a tensor, so that the host does not wait."""
    return value if isinstance(value, torch.Tensor) and not value.is_cpu else float(value)


def _inverse(value: Any) -> Any:
    """1 / value; 0 before the first step, where v is zero too."""
    if isinstance(value, torch.Tensor):
        return torch.where(value > 0, 1.0 / value, 0.0)
    return 1.0 / value if value > 0 else 0.0


def metric_for(metric: str, optimizer: object, parameters: Mapping[str, torch.Tensor]) -> Metric:
    """The metric called `metric`; "auto" chooses by the type of the optimizer, and its `reason` says why."""
    if metric not in METRICS:
        raise InvalidOption(Option("metric"), f" must be one of {', '.join(METRICS)}; got {metric!r}")
    optimizer = _unwrapped(optimizer)
    if metric != "auto":
        return SquaredError("asked for") if metric == "none" else TensorScale("asked for")
    if optimizer is None:
        return SquaredError("no optimizer was given")
    kinds, name = type(getattr(optimizer, "optim", optimizer)).__mro__, type(optimizer).__name__
    if optim.SGD in kinds:
        return SquaredError(f"{name} takes every coordinate of the gradient as it is")
    if name == "ZeroRedundancyOptimizer":
        return TensorScale(f"{name} keeps each second moment on one rank only")
    if any(kind in SECOND_MOMENTS for kind in kinds):
        return SecondMoment(f"{name} divides each coordinate by the root of it", optimizer, parameters)
    return TensorScale(f"of {name} it is not known how it scales coordinates")


def useful(metric: Metric, codec: Codec) -> Metric:
    """The metric itself, or m = 1 where it would change nothing."""
    if isinstance(codec.quantizer, Identity):
        return SquaredError("a float format loses the same share of every value, whatever it is divided by")
    return metric


def _unwrapped(optimizer: Any) -> optim.Optimizer | None:
    """The torch optimizer itself, out of Accelerate's or Lightning's wrapper."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if inner is None or isinstance(inner, optim.Optimizer):
        return inner
    raise TypeError(
        f"optimizer must be one of torch.optim, got {type(optimizer).__name__}; with several, leave it out and use "
        "metric='tensor'"
    )
