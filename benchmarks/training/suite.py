"""The suite `training`: bits against validation loss, for SGD and AdamW, by simulated workers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from benchmarks.training.jobs import DECIDING, job_for, planned, run_jobs
from benchmarks.training.members import MEMBERS, OPTIMIZER
from benchmarks.training.run import TASKS, WIDTH, Job
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.options import check_counts, check_names, option
from laconic.report import Axis, Cell, Column, LineChart, Presentation, Row, RowTable, Text, text
from laconic.report.values import names_in, number_in, rows_in, text_in

PRECISIONS = ("fp32", "tf32", "bf16")
FP32 = "fp32"
PLAIN = (FP32, "bf16")


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What to run."""

    tasks: Sequence[str] = option(tuple(DECIDING), f"{', '.join(DECIDING)}; all.", flag="--task", metavar="NAME,...")
    members: Sequence[str] | None = option(
        None, "Members, such as fp32,dithered-0.1@metric; by default those of each task.", flag="--member",
        metavar="NAME,...",
    )  # fmt: skip
    workers: Sequence[int] = option((4, 16), "Simulated workers; 4,16.", metavar="N,...")
    seeds: int = option(5, "Seeds, all of a run at once.")
    steps: int = option(1000, "Steps.")
    batch_size: int | None = option(None, "Of a worker; by default 32 images or 16 windows of 128 bytes.")
    width: int = option(WIDTH, "Of the transformer, a multiple of 32; the convolutional network's is a quarter.")
    device: str = option("cpu", "cpu or cuda.", metavar="NAME")
    precision: str | None = option(
        None, "Of matrix products: fp32, tf32 (by default on a GPU) or bf16 (autocast).", metavar="NAME"
    )
    text: Path | None = option(None, "Text to train on; by default Python's standard library.", metavar="FILE")  # noqa: RUF009
    images: Path | None = option(  # noqa: RUF009
        None, "Folder with CIFAR-10 or Fashion-MNIST; by default scikit-learn's digits.", metavar="DIR"
    )
    out: Path = option(Path("runs/training"), "Folder of finished runs, which are not run again.", metavar="DIR")  # noqa: RUF009
    processes: int = option(1, "Runs side by side.")
    seconds: float = option(math.inf, "Stop after so many seconds, to go on later; 0 only gathers what is there.")

    def __post_init__(self) -> None:
        check_counts(self)
        check_names(self.tasks, list(DECIDING), "task")
        check_names(["fp32"] if self.members is None else self.members, list(MEMBERS), "member")
        check_names([self.device], ("cpu", "cuda"), "device")
        check_names([FP32 if self.precision is None else self.precision], PRECISIONS, "precision")
        for member, task in product(self.members or (), self.tasks):
            if MEMBERS[member].metric == OPTIMIZER and TASKS[task].optimizer != "adamw":
                raise InvalidOption(
                    f"{member} needs second moments, which {task} has none of; give ", Option("tasks", ...)
                )
        if self.width % 32:
            raise InvalidOption(Option("width"), f" must be a multiple of 32; got {self.width}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InvalidOption(Option("device", "cuda"), " needs a GPU that torch can use")

    def jobs(self) -> list[Job]:
        """Jobs, the most informative first."""
        precision = self.precision or ("tf32" if self.device == "cuda" else FP32)
        settings: dict[str, Any] = {name: getattr(self, name) for name in ("seeds", "steps", "width", "device")}
        settings |= {"precision": precision}
        paths = {name: None if path is None else str(path) for name, path in (("lm", self.text), ("cnn", self.images))}
        runs = planned(self.tasks, self.workers, self.members)
        return [job_for(*one, batch_size=self.batch_size, data=paths[TASKS[one[0]].kind], **settings) for one in runs]

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.jobs())

    def published(self) -> dict[str, Any]:
        """The options as JSON values, without paths."""
        names = ("seeds", "steps", "batch_size", "width", "device")
        return {"tasks": list(self.tasks), "workers": list(self.workers), **{n: getattr(self, n) for n in names}}


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A task with one member and a number of workers.

    family          members of one family differ in one number
    metric          by which gradients are divided before they are quantised: "", "tensor" or "optimizer"
    losses          validation loss of each seed; None where a run diverged
    loss, deviation  their mean and standard deviation
    loss_over_fp32  mean over seeds of the loss over that of fp32 with the same initial weights and batches
    ratio_error     standard error of that mean
    bits            per compressed value, actually encoded; the fewer of fixed width and RANS, for symbols of a width
    bits_uncoded    at fixed width
    bits_in_all     per parameter: the others, biases and normalisations, are sent in float32
    error           ‖Q(v) − v‖² / ‖v‖² of a worker's gradient in the metric; squared_error of the gradient itself
    seconds         of a step of all seeds and workers, on one device, beside other runs
    source          the training data
    """

    task: str
    contender: str
    family: str
    config: str
    metric: str
    workers: int
    batch_size: int
    n_steps: int
    n_seeds: int
    precision: str
    n: int
    n_compressed: int
    losses: list[float | None]
    loss: float | None
    deviation: float | None
    loss_over_fp32: float | None
    ratio_error: float | None
    bits: float
    bits_uncoded: float | None
    bits_in_all: float
    error: float
    squared_error: float
    seconds: float
    source: str


def training_rows(options: TrainingOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Run what is missing; returns rows of all finished runs, and how many are still missing."""
    found = run_jobs(options.jobs(), options.out, options.processes, options.seconds, progress)
    if not found:
        raise InvalidOption(f"{options.out} has no finished runs; give ", Option("seconds"), " time for one")
    fp32 = {_key(one): one["result"]["losses"] for one in found if one["job"]["member"] == FP32}
    rows = [_row(one["job"], one["result"], fp32.get(_key(one))) for one in found]
    return {"n_missing": options.n_parts - len(rows), "rows": rows}


def _key(one: Mapping[str, Any]) -> tuple[str, int]:
    return one["job"]["task"], one["job"]["workers"]


def _row(job: Mapping[str, Any], result: Mapping[str, Any], fp32: Sequence[float | None] | None) -> TrainingRow:
    member, kept = MEMBERS[job["member"]], dict(result)
    losses = kept.pop("losses")
    kept = {name: value for name, value in kept.items() if name not in ("curve", "samples")}
    loss, deviation = _mean(losses)
    ratio, ratio_deviation = _mean([_ratio(a, b) for a, b in zip(losses, fp32 or [None] * len(losses), strict=True)])
    return TrainingRow(
        **{name: job[name] for name in ("task", "workers", "batch_size", "precision")},
        contender=job["member"],
        family=member.family,
        config=repr(member.quantizer),
        metric=member.metric,
        n_steps=job["steps"],
        n_seeds=job["seeds"],
        losses=losses,
        loss=loss,
        deviation=deviation,
        loss_over_fp32=ratio,
        ratio_error=None if ratio_deviation is None else ratio_deviation / math.sqrt(len(losses)),
        **kept,
    )


def _ratio(loss: float | None, fp32: float | None) -> float | None:
    return None if loss is None or not fp32 else loss / fp32


def _mean(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None if a value is missing, since a run has diverged."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return fmean(known), stdev(known) if len(known) > 1 else 0.0


def _plus_minus(key: str, deviation: str, digits: int) -> Any:
    """A cell with a number and its deviation."""

    def cell(row: Row) -> Cell:
        value, around = number_in(row, key), number_in(row, deviation)
        if value is None:
            return Cell("diverged" if key == "loss" else "–")
        return Cell(f"{value:.{digits}f}" + (f" ± {around:.{digits}f}" if around else ""), value)

    return cell


def _named(row: Row) -> str:
    return f"{text_in(row, 'task')}, {text_in(row, 'workers')} workers"


def _tables(rows: list[Row]) -> list[Row]:
    """Rows sorted by task and workers, then by bits."""
    named = [{**row, "problem": _named(row)} for row in rows]
    order = names_in(named, "problem")
    return sorted(named, key=lambda row: (order.index(text_in(row, "problem")), number_in(row, "bits") or 0.0))


def _title(rows: list[Row]) -> str:
    first = rows[0]
    said = TASKS.get(text_in(first, "task"))
    return f"{_named(first)}: {said.about if said else ''}"


def about(document: Row) -> str:
    """Sentences with steps, seeds, sizes and data of the first row of each task."""
    firsts = {text_in(row, "task"): row for row in reversed(rows_in(document))}
    said = [
        f"{task}: {number_in(row, 'n') or 0:,.0f} parameters, {text_in(row, 'n_steps')} steps, "
        f"{text_in(row, 'n_seeds')} seeds, batches of {text_in(row, 'batch_size')} per worker, "
        f"products in {text_in(row, 'precision')}; {text_in(row, 'source')}."
        for task, row in sorted(firsts.items())
    ]
    return " ".join(said)


def _missing(document: Row) -> list[str]:
    n = number_in(document, "n_missing")
    return [f"{n:.0f} runs are not there yet; the same command goes on with them."] if n else []


def _families(rows: list[Row]) -> list[Row]:
    """A row for each family, task and number of workers, with its members as points; without fp32 and bf16."""
    lossy = [{**row, "label": row.get("contender")} for row in _tables(rows) if row.get("contender") not in PLAIN]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lossy:
        groups.setdefault((row["problem"], text_in(row, "family")), []).append(row)
    return [{"problem": problem, "family": family, "curve": own} for (problem, family), own in groups.items()]


PRESENTATION = Presentation(
    "Bits against validation loss",
    [
        RowTable(
            _title,
            [
                text("member", "contender"),
                Column("bits", "bits"),
                Column("fixed width", "bits_uncoded"),
                Column("per parameter", "bits_in_all"),
                Column("error", "error"),
                Column("of the gradient", "squared_error"),
                Column("loss", _plus_minus("loss", "deviation", 4)),
                Column("÷ fp32", _plus_minus("loss_over_fp32", "ratio_error", 4)),
            ],
            "bits: per compressed value, really encoded. per parameter: with biases and normalisations, which go in "
            "float32. error: ‖Q(v) − v‖² / ‖v‖² of a worker, in the metric where there is one; of the gradient: of the "
            "gradient itself. loss: on what is held out, ± standard deviation over seeds; ÷ fp32: seed by seed, ± "
            "standard error.",
            rows=_tables,
            by="problem",
        ),
        LineChart(
            Axis("loss_over_fp32", "validation loss ÷ fp32's"),
            axes=[Axis("bits", "bits per value")],
            rows=_families,
            name="family",
            by="problem",
            log_x=True,
        ),
        Text(_missing),
    ],
    about,
)

SUITE = Suite(
    "training",
    TrainingOptions,
    training_rows,
    """Bits against validation loss: train with simulated workers under every member.

    A convolutional network with SGD, a byte-level transformer with AdamW and with SGD; all seeds and workers of a run
    at once. Each run is a file in the folder of --out, and is not run again: the same command goes on where the last
    one stopped, and its document has all that is there.
    """,
)
