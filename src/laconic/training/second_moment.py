"""The metric of Adam and the like: the root of the mean squared gradient that the optimizer keeps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import optim

from laconic.kernels import Number, Part, Scale
from laconic.training.groups import Group
from laconic.training.metric import FLOOR, Metric, least_squares, mean

Moment = tuple[torch.Tensor, Number]
"""A tensor in a parameter's shape, and the factor that makes it the mean of the squared gradients so far."""
REFRESH = 16
"""The floor is recomputed after every so many steps of the optimizer; among the first so many, at each."""


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
"""By optimizer: reads the mean of squared gradients, by whose root it divides, from a parameter's state and the options
of its group."""


@dataclass(slots=True)
class SecondMoment(Metric):
    """m = max(√v, 0.1 rms(√v)), where v is the optimizer's mean of squared gradients, corrected for its start at zero.

    v is that of the last step, which all ranks took with the same averages. The floor, per parameter, is for
    coordinates with hardly any gradient, such as rows of an embedding that were never used. Since it takes a pass over
    v, it is that of the last step whose number is a multiple of 16.

    - A group none of whose parameters has a v yet, as at the first step, goes in float32; if the optimizer does not
      hold any of them, m = 1.
    - A parameter without a v, or with v = 0, in a group with others (added later, or not used so far) takes a tenth of
      the group's rms(√v).

    optimizer  of the model; read at each step, so that loading its state restores the metric
    means      of v by name, as used for the floors
    """

    name: ClassVar[str] = "second moment"
    optimizer: optim.Optimizer = field(kw_only=True)
    _options: dict[int, dict[str, Any]] = field(default_factory=dict)
    _seen: tuple[int, int] = (0, 0)

    def scale(self, group: Group) -> Scale | None:
        moments = self._moments(group)
        if not any(moments):
            return None if any(id(self.parameters[name]) in self._options for name in group.names) else Scale()
        named = zip(group.names, moments, strict=True)
        means = [None if moment is None else self._mean(name, moment) for name, moment in named]
        floors = least_squares(group, means, share=FLOOR**2)
        parts = []
        for (i, j), moment, least in zip(pairwise(group.cuts), moments, floors, strict=True):
            squares, factor = moment or (None, 1.0)
            parts.append(Part(i, j, squares, factor, least))
        return Scale(tuple(parts))

    def example(self, n: int, device: torch.device) -> Scale:
        ones = torch.ones(n, dtype=torch.float32, device=device)
        return Scale((Part(0, n, ones, 1.0, float(mean(ones))),))

    def facts(self, groups: Sequence[Group]) -> dict[str, float]:
        found: dict[str, float] = {}
        for group in groups:
            for name, moment in zip(group.names, self._moments(group), strict=True):
                found |= {} if moment is None else {name: float(mean(moment[0]) * moment[1])}
        return found

    def _mean(self, name: str, moment: Moment) -> torch.Tensor:
        """The mean of v, recomputed if due; always if the step count is on a GPU, for which the host would wait."""
        step = _number(self.optimizer.state[self.parameters[name]].get("step", 0))
        kept = not isinstance(step, torch.Tensor) and step >= REFRESH and step % REFRESH and name in self.means
        if not kept:
            self.means[name] = mean(moment[0]) * moment[1]
        return self.means[name]

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


def _number(value: Any) -> Any:
    """A number as a float; one on a GPU as a tensor, so that the host does not wait."""
    return value if isinstance(value, torch.Tensor) and not value.is_cpu else float(value)


def _inverse(value: Any) -> Any:
    """1 / value; 0 before the first step, where v is zero too."""
    if isinstance(value, torch.Tensor):
        return torch.where(value > 0, 1.0 / value, 0.0)
    return 1.0 / value if value > 0 else 0.0
