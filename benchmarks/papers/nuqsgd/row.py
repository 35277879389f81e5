"""One line of the suite `papers nuqsgd`: what came of training with one method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from benchmarks.papers.nuqsgd.methods import FULL, Method
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from laconic.bench.checks import WrongResult
from laconic.bench.protocol import Spread, speedup

FIRST_STEPS = 2
"""Of every run, not timed where there are more: they compile kernels."""


@dataclass(frozen=True, slots=True)
class NUQSGDRow:
    """One method.

    n                    parameters of the network
    ranks                workers; `simulated` on one device, or processes
    seconds              of an iteration: of all workers where they are simulated, of the slowest rank otherwise
    speedup_over_fp32    of full precision's seconds over its own, iteration by iteration
    seconds_per_epoch    the median times the iterations of an epoch
    bytes_sent           an iteration: one worker's message where they are simulated, what a rank sends otherwise
    bits_per_coordinate  of the compressed part at fixed width, norms and headers included
    bits_by_coder        the same under each coder, on the gradients of the full-precision run
    entropy              of the symbols there
    variance             E‖Q(g) − g‖² / ‖g‖² along its own run, the mean over the points
    variance_at_fp32     the same on the gradients of the full-precision run: the same for all, so these compare
    bound                the proved bound
    loss, loss_gap       on training images at the end; over full precision's, minus 1
    accuracy             on the test images at the end
    curve                loss, accuracy and both variances point by point
    """

    problem: str
    contender: str
    baseline: bool
    method: str
    source: str
    n: int
    n_train: int
    ranks: int
    simulated: bool
    batch_size: int
    n_iterations: int
    bits: int | None
    bucket_size: int | None
    seconds: Spread
    speedup_over_fp32: Spread
    seconds_per_epoch: float
    bytes_sent: float
    bits_per_coordinate: float
    bits_by_coder: Mapping[str, float] | None
    entropy: float | None
    variance: float | None
    variance_at_fp32: float | None
    bound: float | None
    loss: float | None
    loss_gap: float | None
    accuracy: float
    curve: Sequence[Mapping[str, Any]]


def rows_from(options: NUQSGDOptions, images: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> list[NUQSGDRow]:
    """A row a method, from what was seen of each."""
    full = found[0]
    rows = [_row(options, images, m, one, full) for m, one in zip(options.chosen(), found, strict=True)]
    if full["curve"][-1]["loss"] is None:
        raise WrongResult("training in full precision has diverged; give a smaller --learning-rate")
    return rows


def _row(
    options: NUQSGDOptions, images: Mapping[str, Any], method: Method, one: Mapping[str, Any], full: Mapping[str, Any]
) -> NUQSGDRow:
    timed, base = (x["seconds"][FIRST_STEPS:] or x["seconds"] for x in (one, full))
    last, points = one["curve"][-1], full["at_full"].get(method.name, [])
    seconds, q = Spread.of(timed), method.quantizer

    def over_points(key: str) -> float | None:
        return mean(point[key] for point in points) if points else None

    own = [point["variance"] for point in one["curve"] if point.get("variance") is not None]
    coded = {name: mean(point["bits"][name] for point in points) for name in points[0]["bits"]} if points else None
    return NUQSGDRow(
        problem=options.problem,
        contender=method.label,
        baseline=method.name == FULL,
        method=method.name,
        source=images["source"],
        n=one["n"],
        n_train=images["n_train"],
        ranks=options.n_workers,
        simulated=options.ranks is None,
        batch_size=options.batch_size,
        n_iterations=last["iteration"],
        bits=q.bits if method.lossy else None,
        bucket_size=q.bucket_size if method.lossy else None,
        seconds=seconds,
        speedup_over_fp32=speedup(base, timed),
        seconds_per_epoch=seconds.median * (images["n_train"] // (options.n_workers * options.batch_size)),
        bytes_sent=one["bytes_sent"],
        bits_per_coordinate=coded["fixed"] if coded else 32.0,
        bits_by_coder=coded,
        entropy=over_points("entropy"),
        variance=mean(own) if own else None,
        variance_at_fp32=over_points("variance"),
        bound=over_points("bound"),
        loss=last["loss"],
        loss_gap=_gap(last["loss"], full["curve"][-1]["loss"]),
        accuracy=last["accuracy"],
        curve=_joined(one["curve"], points),
    )


def _joined(curve: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The curve with the variance at full precision's gradients beside that of its own run."""
    found = {point["iteration"]: {"variance_at_fp32": point["variance"]} for point in points}
    return [{**point, **found.get(point["iteration"], {})} for point in curve]


def _gap(loss: float | None, base: float | None) -> float | None:
    return loss / base - 1 if loss is not None and base else None
