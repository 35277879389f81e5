"""The suite `papers-nuqsgd`: residual networks trained by k workers, whose gradients are quantised by five methods."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import torch

from benchmarks.papers.claims import PUBLISHED
from benchmarks.papers.nuqsgd.batches import open_batches
from benchmarks.papers.nuqsgd.methods import FULL, Method
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.training import simulate
from benchmarks.papers.nuqsgd_claims import losses
from laconic.bench.protocol import Spread, WrongResult, speedup
from laconic.bench.ranks import noise, on_ranks, slowest
from laconic.bench.suite import Progress, no_progress
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, RowTable, Text, speedups, text
from laconic.report.values import Row, number_in, shown, text_in

RANK_FUNCTION = "benchmarks.papers.nuqsgd.rank:nuqsgd_on_rank"
CODERS = ("fixed", "elias", "huffman", "rans")
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
    bytes_sent           per iteration: one worker's message where they are simulated, what a rank sends otherwise
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
    """One row per method, from its result."""
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


def nuqsgd_rows(options: NUQSGDOptions, progress: Progress = no_progress) -> list[NUQSGDRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.ranks is not None:
        return _on_ranks(options, progress)
    device = torch.device(options.device)
    progress("reading the images")
    batches = open_batches(options.dataset, options.data, device, options.images)
    runs = simulate(batches, options.model, options.chosen(), options.schedule(batches.n_train), device, progress)
    return rows_from(options, batches.about, [run.result() for run in runs])


def _on_ranks(options: NUQSGDOptions, progress: Progress) -> list[NUQSGDRow] | None:
    results = on_ranks(RANK_FUNCTION, {"options": asdict(options)}, options.n_workers, None, progress)
    if results is None:
        return None
    for i, method in enumerate(options.chosen()):
        if len({result["runs"][i]["digest"] for result in results}) > 1:
            raise WrongResult(f"{method.label}: the ranks have ended with different weights")
    return rows_from(options, results[0]["images"], [_slowest(results, i) for i in range(len(options.chosen()))])


def _slowest(results: Sequence[Mapping[str, Any]], i: int) -> dict[str, Any]:
    """Rank 0's result of a method, with the slowest rank's seconds and the busiest one's bytes."""
    ranks = [result["runs"][i] for result in results]
    return {**ranks[0], "seconds": slowest(ranks), "bytes_sent": max(rank["bytes_sent"] for rank in ranks)}


def about(rows: Sequence[NUQSGDRow]) -> str:
    first = rows[0]
    who = f"{first.ranks} workers simulated on one device" if first.simulated else f"{first.ranks} ranks"
    return (
        f"{who}, mini-batches of {first.batch_size} each, {first.n_iterations} iterations on the same images "
        f"({first.source}, {first.n_train:,} to train on). Shorter than the paper; 1-D parameters stay in float32."
    )


def _by_coder(rows: list[Row]) -> list[Row]:
    """Rows that have bits by coder, with these at the top."""
    return [{**row, **coded} for row in rows if isinstance(coded := row.get("bits_by_coder"), Mapping) and coded]


PRESENTATION = Presentation(
    lambda document: text_in(document, "title") or "NUQSGD: published and measured",
    [
        Text(noise),
        *PUBLISHED,
        RowTable(
            lambda rows: f"{text_in(rows[0], 'problem')}, {shown(number_in(rows[0], 'n'), 'n')} parameters",
            [
                text("method", "contender"),
                Column("variance, own run", "variance"),
                Column("at fp32's gradients", "variance_at_fp32"),
                Column("bound", "bound"),
                Column("loss", "loss", digits=4),
                Column("accuracy", "accuracy", "%", 4),
                Column("ms", "seconds", "ms"),
                Column("s per epoch", "seconds_per_epoch"),
            ],
            "variance: of a worker's gradient, E‖Q(g) − g‖² / ‖g‖², mean over the run. ms: of an iteration of all.",
            by="problem",
        ),
        RowTable(
            "Bits per coordinate by coder, on the same gradients",
            [
                text("method", "contender"),
                *(Column(coder, coder) for coder in CODERS),
                Column("entropy", "entropy"),
                Column("kB sent", "bytes_sent", "kB"),
            ],
            "Norms, headers included.",
            rows=_by_coder,
        ),
        Text(losses),
        LineChart(Axis("loss", "training loss"), by="problem"),
        LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
        LineChart(Axis("accuracy", "test accuracy", "%"), by="problem"),
        speedups("float32", group="problem"),
        BarChart("Bits per coordinate", "bits_per_coordinate", "bits", group="problem", limit=("entropy", "entropy")),
        BarChart(
            "Variance, mean over the run",
            "variance",
            group="problem",
            log=True,
            limit=("bound", "proved bound"),
            rows=lambda rows: [row for row in rows if row.get("variance")],
        ),
    ],
    lambda document: text_in(document, "about"),
)
