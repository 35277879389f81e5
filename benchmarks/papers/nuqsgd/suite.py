"""The suite `papers-nuqsgd`: residual networks trained by k workers, whose gradients are quantised by each method.

Runs are those of `benchmarks.training`: one for each method and seed, in a folder, and can be interrupted and resumed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.papers.checks import check_at_least, check_device
from benchmarks.papers.claims import PUBLISHED
from benchmarks.papers.nuqsgd.gradients import CODERS
from benchmarks.papers.nuqsgd_claims import losses
from benchmarks.training.jobs import keep, run_jobs
from benchmarks.training.members import MEMBERS
from benchmarks.training.run import PAPER, TASKS, Job
from laconic.bench.protocol import WrongResult
from laconic.bench.ranks import noise
from laconic.bench.suite import Progress, no_progress
from laconic.errors import InvalidOption, Option
from laconic.options import check_names
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, RowTable, Text, text
from laconic.report.values import Row, number_in, text_in
from laconic.units import shown

FULL = "fp32"
"""SuperSGD: every worker's gradient in full precision."""
SEVERAL_SEEDS = (FULL, *PAPER[:3])
"""Methods that are run with every seed; others only with the first."""
MODELS = tuple(task for task in TASKS if task.startswith("resnet"))


@dataclass(frozen=True, slots=True)
class NUQSGDOptions:
    """Options of the suite; by default the paper's numbers.

    data        folder with CIFAR-10 or Fashion-MNIST; None for synthetic images
    images      most images to train on, and to test; None for all
    model       such as "resnet-110"
    methods     members of the suite `training`, with every seed; None for the paper's and ours
    workers     k, simulated on one device
    batch_size  images of one worker's mini-batch
    epochs      passes over the training set
    lr, warmup  the highest learning rate, and epochs over which it rises; None for 0.1 and a hundredth of all
    precision   of matrix products: tf32 is PyTorch's default for convolutions on a GPU
    out         folder of the runs
    processes   parallel runs
    seconds     after which runs stop, to be resumed later; 0 only gathers finished runs
    earlier     a document of this suite: its runs are put into the folder, and not run again
    """

    data: str | None = None
    images: int | None = None
    model: str = "resnet-110"
    methods: Sequence[str] | None = None
    workers: int = 4
    batch_size: int = 128
    epochs: int = 160
    seeds: int = 3
    device: str = "cpu"
    lr: float | None = None
    warmup: float | None = None
    precision: str | None = None
    out: str = "runs/nuqsgd"
    processes: int = 1
    seconds: float = math.inf
    earlier: str | None = None

    def __post_init__(self) -> None:
        check_names([self.model], MODELS, "model")
        check_names(self.methods or [FULL], list(MEMBERS), "method")
        check_names([self.precision or FULL], ("fp32", "tf32", "bf16"), "precision")
        check_at_least(1, self, "workers", "images", "epochs", "seeds", "processes")
        check_at_least(2, self, "batch_size")
        check_at_least(0, self, "lr", "warmup")
        check_device(self.device, instead="run on the CPU")
        if self.data is not None and not Path(self.data).is_dir():
            raise InvalidOption(Option("data"), f": there is no folder {self.data}")
        if self.earlier is not None and not Path(self.earlier).is_file():
            raise InvalidOption(Option("earlier"), f": there is no file {self.earlier}")

    def jobs(self) -> list[Job]:
        """The paper's comparison of all methods first, then its other seeds; always with full precision."""
        names = dict.fromkeys([FULL, *(SEVERAL_SEEDS if self.methods is None else self.methods)])
        pairs = [(name, seed) for seed in range(self.seeds) for name in names]
        if self.methods is None:
            pairs += [(name, 0) for name in PAPER if name not in names]
        settings = {name: getattr(self, name) for name in ("batch_size", "device", "data", "images", "epochs")}
        settings |= {"learning_rate": self.lr, "warmup": self.warmup}
        precision = self.precision or ("tf32" if self.device == "cuda" else "fp32")
        return [
            Job(self.model, name, self.workers, 1, None, precision=precision, seed=seed, **settings)
            for name, seed in pairs
        ]

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.jobs())

    def published(self) -> dict[str, Any]:
        """The options as JSON values, without paths."""
        hidden = ("data", "out", "seconds", "earlier")
        return {name: value for name, value in asdict(self).items() if name not in hidden}


@dataclass(frozen=True, slots=True)
class NUQSGDRow:
    """One method, over its seeds.

    n                 parameters of the network; n_compressed of them are quantised, the others sent in float32
    n_epochs          passes over the training set, n_iterations in total
    learning_rate     the highest
    seconds_per_epoch of all workers on one device, beside other runs
    bits              per compressed value with the default coder, norms and headers included, in its own run
    bits_by_coder     the same under each coder, on the gradients of the full-precision run
    entropy           of the symbols, on the same gradients
    variance          E‖Q(g) − g‖² / ‖g‖² along its own run; for error feedback, of what is sent with the memory
    variance_at_fp32  on the gradients of the full-precision run, the same for all methods and so comparable
    bound             the proved bound
    losses, loss      on training images at the end, by seed and their mean
    accuracies        on the test images at the end, by seed; accuracy their mean, deviation their standard deviation
    below_fp32        points of accuracy below full precision's, seed by seed: the mean; below_error its standard error,
                      None of one seed
    curve             loss, accuracy and both variances over the run, means over seeds
    runs              each seed's result, with its job
    environment       that of an earlier document which has the same runs
    """

    problem: str
    contender: str
    baseline: bool
    source: str
    n: int
    n_compressed: int
    workers: int
    batch_size: int
    n_epochs: int
    n_iterations: int
    learning_rate: float
    precision: str
    seeds: Sequence[int]
    seconds_per_epoch: float
    bits: float
    bits_by_coder: Mapping[str, float] | None
    entropy: float | None
    variance: float | None
    variance_at_fp32: float | None
    bound: float | None
    losses: Sequence[float | None]
    loss: float | None
    accuracies: Sequence[float]
    accuracy: float
    deviation: float | None
    below_fp32: float
    below_error: float | None
    curve: Sequence[Mapping[str, Any]]
    runs: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any] | None = None


Found = Mapping[int, Mapping[str, Any]]
"""Runs of one method, or their results, by seed."""


def nuqsgd_rows(options: NUQSGDOptions, progress: Progress = no_progress) -> list[NUQSGDRow]:
    """Run what is missing, and make rows of all methods that share a seed with full precision."""
    rows = [] if options.earlier is None else json.loads(Path(options.earlier).read_text())["rows"]
    keep([run for row in rows for run in row.get("runs", [])], Path(options.out))
    where = {(row["contender"], tuple(row["seeds"])): row.get("environment") for row in rows}
    done = run_jobs(options.jobs(), Path(options.out), options.processes, options.seconds, progress)
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for one in done:
        found.setdefault(one["job"]["member"], {})[one["job"]["seed"]] = one
    if FULL not in found:
        raise InvalidOption(f"{options.out} has no finished run of {FULL}; give ", Option("seconds"), " time for one")
    full = {seed: one["result"] for seed, one in found[FULL].items()}
    if any(result["losses"][0] is None for result in full.values()):
        raise WrongResult("training in full precision has diverged")
    made = [_row(options, member, kept, full) for member, kept in found.items() if kept.keys() & full.keys()]
    return [replace(row, environment=where.get((row.contender, tuple(row.seeds)))) for row in made]


def _row(options: NUQSGDOptions, member: str, kept: Found, full: Found) -> NUQSGDRow:
    runs = {seed: one["result"] for seed, one in kept.items()}
    first, quantizer, lossy = next(iter(runs.values())), MEMBERS[member].quantizer, member != FULL
    points = full[0]["samples"]["at_fp32"].get(member, []) if 0 in full else []
    ends = [run["curve"][-1] for run in runs.values()]
    below = [100 * (_accuracy(full[seed]) - _accuracy(run)) for seed, run in runs.items() if seed in full]
    return NUQSGDRow(
        problem=f"{first['source'].partition(',')[0]} {options.model}",
        contender=member,
        baseline=not lossy,
        source=first["source"],
        n=first["n"],
        n_compressed=first["n_compressed"],
        workers=options.workers,
        batch_size=options.batch_size,
        n_epochs=options.epochs,
        n_iterations=ends[0]["step"],
        learning_rate=options.lr or TASKS[options.model].learning_rate,
        precision=options.jobs()[0].precision,
        seeds=list(runs),
        seconds_per_epoch=fmean(run["seconds"] * ends[0]["step"] / options.epochs for run in runs.values()),
        bits=fmean(sent[0] for run in runs.values() for sent in run["samples"]["bits"]),
        bits_by_coder={c: fmean(p["bits"][c] for p in points) for c in points[0]["bits"]} if points else None,
        entropy=_mean([point["entropy"] for point in points]),
        variance=fmean(run["error"] for run in runs.values()) if lossy else None,
        variance_at_fp32=_mean([point["variance"] for point in points]),
        bound=quantizer.core.variance_bound(first["n_compressed"]) if lossy else None,
        losses=[end["train_losses"][0] for end in ends],
        loss=_mean([end["train_losses"][0] for end in ends]),
        accuracies=[end["accuracies"][0] for end in ends],
        accuracy=fmean(end["accuracies"][0] for end in ends),
        deviation=stdev(end["accuracies"][0] for end in ends) if len(ends) > 1 else None,
        below_fp32=fmean(below),
        below_error=stdev(below) / math.sqrt(len(below)) if len(below) > 1 else None,
        curve=_curve(runs, points),
        runs=list(kept.values()),
    )


def _accuracy(run: Mapping[str, Any]) -> float:
    return float(run["curve"][-1]["accuracies"][0])


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if there are no values, or one of them is None."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _curve(runs: Found, points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Points of a curve, means over seeds; errors were measured at the last step before each point but the first."""
    found = []
    for i, same in enumerate(zip(*(run["curve"] for run in runs.values()), strict=True)):
        point = {"iteration": same[0]["step"], "seconds": fmean(one["seconds"] for one in same)}
        point["loss"] = _mean([one["train_losses"][0] for one in same])
        point["accuracy"] = fmean(one["accuracies"][0] for one in same)
        if i:
            point["variance"] = fmean(run["samples"]["errors"][i - 1][1] for run in runs.values())
        if i and points:
            point["variance_at_fp32"] = points[i - 1]["variance"]
        found.append(point)
    return found


def about(rows: Sequence[NUQSGDRow]) -> str:
    first = rows[0]
    return (
        f"{first.workers} workers simulated on one device, mini-batches of {first.batch_size} each, {first.n_epochs} "
        f"epochs of {first.n_iterations // first.n_epochs} iterations ({first.source}); learning rate "
        f"{first.learning_rate:g} at its highest, products in {first.precision}. "
        "1-D parameters, and tensors of fewer than 1024 values, stay in float32."
    )


def _by_coder(rows: list[Row]) -> list[Row]:
    """Rows that have bits by coder, with these as top-level fields."""
    return [{**row, **coded} for row in rows if isinstance(coded := row.get("bits_by_coder"), Mapping) and coded]


def _several(rows: list[Row]) -> list[Row]:
    """Rows with the number of seeds, and the deviation in points."""
    return [{**row, "n_seeds": len(s) if isinstance(s := row.get("seeds"), list) else None} for row in rows]


PRESENTATION = Presentation(
    lambda document: text_in(document, "title") or "NUQSGD: published and measured",
    [
        Text(noise),
        *PUBLISHED,
        RowTable(
            lambda rows: f"{text_in(rows[0], 'problem')}, {shown(number_in(rows[0], 'n'), 'n')} parameters",
            [
                text("method", "contender"),
                Column("seeds", "n_seeds", "n"),
                Column("accuracy", "accuracy", "%", 4),
                Column("±", "deviation", "%", 2),
                Column("below fp32", "below_fp32"),
                Column("loss", "loss", digits=4),
                Column("bits", "bits"),
                Column("variance", "variance"),
                Column("s per epoch", "seconds_per_epoch"),
            ],
            "accuracy: on the test images, mean over seeds ± standard deviation. below fp32: points, seed by seed. "
            "loss: on training images. bits: per value, as sent by default. variance: E‖Q(g) − g‖² / ‖g‖² of a "
            "worker's gradient along the method's own run. s per epoch: of all workers on one device, beside other "
            "runs.",
            by="problem",
            rows=_several,
        ),
        RowTable(
            "Variance, and bits per coordinate by coder, on the gradients of full precision",
            [
                text("method", "contender"),
                Column("variance", "variance_at_fp32"),
                Column("bound", "bound"),
                *(Column(coder, coder) for coder in (*CODERS, "tables")),
                Column("entropy", "entropy"),
            ],
            "variance: of a worker's gradient, E‖Q(g) − g‖² / ‖g‖², mean over the run. Norms and headers included.",
            rows=_by_coder,
        ),
        Text(losses),
        LineChart(Axis("loss", "training loss"), by="problem"),
        LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
        LineChart(Axis("accuracy", "test accuracy", "%"), by="problem"),
        BarChart("Bits per coordinate, as sent by default", "bits", "bits", group="problem"),
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
