"""Which metric: by name, or "auto" by the type of the optimizer; and whether all ranks have the same."""

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import optim

from laconic.codec import Codec
from laconic.errors import Disagreement, InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json
from laconic.quantizers import Dithered, Identity
from laconic.quantizers.dithered import WHOLE
from laconic.training.metric.base import Metric, ModelScale, SquaredError, TensorScale
from laconic.training.metric.second_moment import SECOND_MOMENTS, SecondMoment

METRICS = ("auto", "none", "tensor", "model")


def metric_kind(metric: str, optimizer: object) -> tuple[str, str]:
    """The name of the metric to use with this optimizer, and why.

    Rule of "auto": "second moment" for Adam, AdamW, NAdam, RAdam, Adamax, RMSprop and Adagrad, "model" for SGD,
    "tensor" for any other and where ranks do not share second moments, "none" without an optimizer.
    """
    if metric not in METRICS:
        raise InvalidOption(Option("metric"), f" must be one of {', '.join(METRICS)}; got {metric!r}")
    if metric != "auto":
        return metric, "asked for"
    if optimizer is None:
        return "none", "no optimizer was given"
    kinds, name = type(getattr(optimizer, "optim", optimizer)).__mro__, type(optimizer).__name__
    if optim.SGD in kinds:
        return "model", f"{name} takes every coordinate of the gradient as it is"
    if name == "ZeroRedundancyOptimizer":
        return "tensor", f"{name} keeps each second moment on one rank only"
    if any(kind in SECOND_MOMENTS for kind in kinds):
        return "second moment", f"{name} divides every coordinate by its root"
    return "tensor", f"how {name} scales coordinates is not known"


def metric_for(metric: str, optimizer: object, parameters: Mapping[str, torch.Tensor], codec: Codec) -> Metric:
    """The metric by name, or chosen by "auto"; with a codec that it has no use for, `SquaredError`."""
    kind, reason = metric_kind(metric, optimizer)
    quantizer = codec.quantizer
    one_step = isinstance(quantizer, Dithered) and quantizer.error is not None and quantizer.bucket_size == WHOLE
    if metric == "model" and not one_step:
        raise InvalidOption(Option("metric"), f"='model' needs a codec such as Dithered(error=0.3); got {quantizer!r}")
    if isinstance(quantizer, Identity):
        return SquaredError("a float format loses the same share of every value, whatever it is divided by")
    if kind == "second moment":
        return SecondMoment(reason, parameters, optimizer=cast(optim.Optimizer, optimizer))
    if kind == "tensor":
        return TensorScale(reason, parameters)
    return ModelScale(reason, parameters) if kind == "model" and one_step else SquaredError(reason)


def unwrapped(optimizer: Any) -> optim.Optimizer | None:
    """The torch optimizer itself, out of Accelerate's or Lightning's wrapper; None if there is none."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if inner is None or isinstance(inner, optim.Optimizer):
        return inner
    raise TypeError(
        f"optimizer must be one of torch.optim, got {type(optimizer).__name__}; with several, leave it out and use "
        "metric='tensor'"
    )


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
