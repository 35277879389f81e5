"""Automatic choices: the default codec and the metric, by the optimizer; and codec="auto", by measuring."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import optim

from laconic.codec import Codec, make_codec
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator, Exchange
from laconic.exchange import by_name as exchange_by_name
from laconic.planner import Plan, plan
from laconic.planner.calibrate import measure
from laconic.planner.cluster import Cluster, CodecRates, Link
from laconic.planner.network import NetworkJob
from laconic.planner.timing import Stopwatch
from laconic.quantizers import NUQSGD, Dithered, Identity, Quantizer
from laconic.training.groups import Group
from laconic.training.metric import Metric, ModelScale, SquaredError, TensorScale, has_one_error
from laconic.training.second_moment import SECOND_MOMENTS, SecondMoment

NOWHERE = Link(0.0, 0.0)
ALONE = Cluster(
    1,
    NOWHERE,
    NOWHERE,
    NOWHERE,
    codecs={"fp32": CodecRates(32.0, 0.0, 0.0, 0.0, 0.0, 0.0), "bf16": CodecRates(16.0, 0.0, 0.0, 0.0, 0.0, 0.0)},
)
log = logging.getLogger("laconic")

METRICS = ("auto", "none", "tensor", "model")
DEFAULTS: dict[str, tuple[Quantizer, str]] = {
    "second moment": (Dithered(error=0.1), "few bits, and the noise follows what the optimizer divides by"),
    "tensor": (Dithered(error=0.1), "few bits, and the noise follows each parameter's own gradient"),
    "model": (Dithered(error=0.3), "few bits, and SGD averages the noise out"),
    "none": (NUQSGD(bits=4), "small buckets suit every optimizer; give optimizer= for fewer bits"),
    "sharded": (NUQSGD(bits=4), "small buckets suit every optimizer"),
    "gpu": (NUQSGD(bits=4), "small buckets suit every optimizer, and a GPU packs them in one pass"),
}
"""The codec that `compress` uses if none is given, and why, by metric; docs/training.md has the training losses."""


def default_codec(metric: str, device: torch.device) -> tuple[Quantizer, str]:
    """The default codec for gradients in this metric on this device, and the reason."""
    return DEFAULTS[metric if device.type == "cpu" else "gpu"]


def choose(comm: Communicator, groups: Sequence[Group], device: torch.device) -> tuple[Codec, Exchange, Plan]:
    """Measure for a second or two, and choose what the plan recommends: NUQSGD at 4 or 8 bits, bfloat16 or float32.

    All ranks call this together. All use the slowest rank's times, and so choose alike.
    """
    n = max(1, sum(group.n_values for group in groups if group.compressed))
    cluster = ALONE
    if comm.size > 1:
        stopwatch = Stopwatch(comm, device, budget_seconds=0.0, round_seconds=0.005)
        cluster = measure(stopwatch, quick=True).cluster(comm.size)
    made = plan(NetworkJob(n), cluster)
    option = made.recommended.option
    codec = make_codec(getattr(option, "codec", "fp32"))
    if comm.rank == 0:
        log.info("codec='auto': %s; %s", made.verdict(), made.crossing())
    return codec, exchange_by_name(getattr(option, "exchange", "auto"), codec, comm.size, n), made


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
    """The metric by name, or chosen by "auto"; `SquaredError` with a codec that it does not help."""
    kind, reason = metric_kind(metric, optimizer)
    quantizer, one_error = codec.quantizer, has_one_error(codec)
    if metric == "model" and not one_error:
        raise InvalidOption(Option("metric"), f"='model' needs a codec such as Dithered(error=0.3); got {quantizer!r}")
    if isinstance(quantizer, Identity):
        return SquaredError("a float format loses the same share of every value, whatever it is divided by")
    if kind == "second moment":
        return SecondMoment(reason, parameters, optimizer=cast(optim.Optimizer, optimizer))
    if kind == "tensor":
        return TensorScale(reason, parameters)
    return ModelScale(reason, parameters) if kind == "model" and one_error else SquaredError(reason)


def check_stepped(optimizer: optim.Optimizer | None, parameters: Mapping[str, torch.Tensor]) -> None:
    """Raise `InvalidOption` for an optimizer that steps none of these parameters; some may be added later."""
    stepped = {id(p) for group in getattr(optimizer, "param_groups", ()) for p in group["params"]}
    if stepped and stepped.isdisjoint(map(id, parameters.values())):
        what = (
            f": this {type(optimizer).__name__} has none of the model's parameters; give the one that steps this model"
        )
        raise InvalidOption(Option("optimizer"), what)


def unwrapped(optimizer: Any) -> optim.Optimizer | None:
    """The torch optimizer itself, without Accelerate's or Lightning's wrapper; None if there is none."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if inner is None or isinstance(inner, optim.Optimizer):
        return inner
    raise TypeError(
        f"optimizer must be one of torch.optim, got {type(optimizer).__name__}; with several, leave it out and use "
        "metric='tensor'"
    )
