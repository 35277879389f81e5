"""The suite `lm`: seconds and bytes until a language model has a loss, on slow links.

What a codec does to the loss does not depend on the link, and what a step takes does not depend on the weights. So each
codec's curve of validation loss by step is trained once, by simulated workers (`benchmarks.training`: runs that stop
and go on), and the seconds of a step are measured in a few steps of DDP with a transformer of as many parameters, on
ranks over each emulated link (`laconic bench ddp`), or of FSDP2 (`laconic bench fsdp`, weights gathered in float32).
Their product is the time to the loss that fp32 has after N steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.training.jobs import run_jobs
from benchmarks.training.members import MEMBERS
from benchmarks.training.run import Job
from laconic.bench.ddp import BASELINES, HOOKS, DDPOptions, DDPRow, ddp_rows
from laconic.bench.fsdp import FSDPOptions
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.options import check_counts, check_names, option
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, text
from laconic.report.values import Row, number_in, rows_in, text_in

TASK, WIDTH, BATCH_SIZE, WORKERS = "lm-large", 512, 16, 4
SIZE = 25_000_000
"""Parameters of the transformer that steps are timed with; that of the curves has 25.6 million."""
CONTENDERS = {
    "fp32": BASELINES[0],
    "bf16": BASELINES[1],
    "powersgd": "DDP PowerSGD hook",
    "nuqsgd-4/512": "nuqsgd-4/512",
    "dithered-0.1@metric": "dithered-0.1",
    "rotated-4": "rotated-4",
}
"""Members whose curves are trained, and what their steps are timed by."""
SHARDED = {"fp32": "FSDP2 fp32", "bf16": "FSDP2 bf16", "nuqsgd-4/512": "nuqsgd-4/512"}
WAYS = {"ddp": ("DDP", DDPOptions, CONTENDERS), "fsdp": ("FSDP2", FSDPOptions, SHARDED)}
"""Of data-parallel training: its name, what times it, and by what."""
NOTHING = "nothing"
"""Exchanges nothing: how fast a step could be; it has no curve."""


@dataclass(frozen=True, slots=True)
class LMOptions:
    """What to run."""

    data: Path | None = option(None, "Text to train on; by default Python's standard library.", metavar="FILE")  # noqa: RUF009
    members: Sequence[str] = option(
        tuple(CONTENDERS), f"{', '.join(CONTENDERS)}; all.", flag="--member", metavar="NAME,..."
    )
    steps: int = option(600, "N: fp32's loss after so many is the one to reach; all train a quarter longer.")
    seeds: int = option(2, "Seeds of a curve, all at once.")
    rates: Sequence[str] = option(("1gbit", "10gbit"), "Of every rank's link.", flag="--rate", metavar="RATE,...")
    ways: Sequence[str] = option(("ddp", "fsdp"), "ddp,fsdp: whose steps are timed.", flag="--way", metavar="NAME,...")
    repeats: int = option(10, "Timed steps on each link.")
    width: int = option(WIDTH, "Of the transformer, a multiple of 32.")
    size: int = option(SIZE, "Parameters of the transformer that is timed, at least.")
    device: str = option("cpu", "cpu or cuda.", metavar="NAME")
    out: Path = option(Path("runs/lm"), "Folder of runs, which go on where they stopped.", metavar="DIR")  # noqa: RUF009
    processes: int = option(1, "Runs side by side.")
    seconds: float = option(math.inf, "Stop curves after so many seconds; 0 only gathers what is there.")

    def __post_init__(self) -> None:
        check_counts(self)
        check_names(self.members, list(CONTENDERS), "member")
        check_names(self.ways, list(WAYS), "way")
        if self.width % 32:
            raise InvalidOption(Option("width"), f" must be a multiple of 32; got {self.width}")

    def jobs(self) -> list[Job]:
        """fp32 first."""
        names = dict.fromkeys(["fp32", *self.members])
        precision = "bf16" if self.device == "cuda" else "fp32"
        settings: dict[str, Any] = {"width": self.width, "device": self.device, "precision": precision}
        data = None if self.data is None else str(self.data)
        n = self.steps * 5 // 4
        known = [name for name in names if name in MEMBERS]
        return [Job(TASK, name, WORKERS, self.seeds, n, BATCH_SIZE, data=data, **settings) for name in known]

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.jobs()) + len(self.rates) * len(self.ways)

    def published(self) -> dict[str, Any]:
        """What was asked for, without paths."""
        names = ("members", "steps", "seeds", "rates", "ways", "repeats", "width", "size", "device")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class LMRow:
    """One codec on one link.

    way              DDP or FSDP2
    n                parameters of the network that was trained; `n_timed` of the one whose steps were timed
    loss, loss_at_n  on what is held out, mean over seeds: at the end, and after the steps that fp32 has
    steps_to_loss    until the loss is fp32's after N steps, between two points of the curve; None if never
    seconds          of a step, the slowest rank's median; bytes_sent by a rank in a step
    seconds_to_loss, megabytes_to_loss  the products
    speedup, speedup_over_bf16  fp32's seconds to the loss, and the bf16 hook's, over its own
    curve            steps, seconds on this link, and the mean validation loss
    """

    problem: str
    contender: str
    baseline: bool
    rate: str
    way: str
    source: str
    n: int
    n_timed: int
    n_seeds: int
    workers: int
    bits: float | None
    loss: float | None
    loss_at_n: float | None
    steps_to_loss: float | None
    seconds: float
    bytes_sent: float | None
    seconds_to_loss: float | None
    megabytes_to_loss: float | None
    speedup: float | None
    speedup_over_bf16: float | None
    curve: Sequence[Mapping[str, Any]]


Curve = list[tuple[float, float]]
"""Step and loss."""


def lm_rows(options: LMOptions, progress: Progress = no_progress) -> list[LMRow] | None:
    """Train the curves that are missing, time steps on every link, and multiply."""
    found = run_jobs(options.jobs(), options.out, options.processes, options.seconds, progress)
    results = {one["job"]["member"]: one["result"] for one in found}
    if "fp32" not in results:
        raise InvalidOption(f"{options.out} has no curve of fp32; give ", Option("seconds"), " time for it")
    rows: list[LMRow] = []
    for rate, way in product(options.rates, options.ways):
        progress(f"steps at {rate}, {way}")
        _, kind, labels = WAYS[way]
        asked = [labels[name] for name in options.members if name in labels and name not in ("fp32", "bf16")]
        codecs = [HOOKS.get(label, label) for label in asked] + ([NOTHING] if way == "ddp" else [])
        timed = ddp_rows(
            kind(problem="text", size=options.size, batch_size=BATCH_SIZE, repeats=options.repeats, ranks=WORKERS,
                 rate=rate, device=options.device if options.device == "cuda" else None, codecs=codecs)
        )  # fmt: skip
        if timed is None:
            return None
        rows += on_link(rate, way, {row.contender: row for row in timed}, results, options)
    return rows


def on_link(
    rate: str, way: str, timed: Mapping[str, DDPRow], results: Mapping[str, Mapping[str, Any]], options: LMOptions
) -> list[LMRow]:
    """Rows of one link, fp32 first."""
    target = loss_after(mean_curve(results["fp32"]), options.steps)
    source, n, n_seeds = results["fp32"]["source"], results["fp32"]["n"], options.seeds
    shown, _, labels = WAYS[way]
    rows = []
    for name in [*dict.fromkeys(["fp32", "bf16", *options.members]), NOTHING]:
        step = timed.get(labels.get(name, name))
        if step is None:
            continue
        result = results.get(name)
        curve = mean_curve(result) if result else []
        steps = steps_to(curve, target)
        sent = step.bytes_sent
        rows.append(
            LMRow(
                problem=f"byte-level transformer, {shown} at {rate}", contender=name, baseline=name == "fp32",
                rate=rate, way=shown, source=source, n=n, n_timed=step.n, n_seeds=n_seeds, workers=WORKERS,
                bits=result["bits"] if result else None,
                loss=curve[-1][1] if curve else None,
                loss_at_n=loss_after(curve, options.steps) if curve else None,
                steps_to_loss=steps, seconds=step.seconds.median, bytes_sent=sent,
                seconds_to_loss=_times(steps, step.seconds.median),
                megabytes_to_loss=_times(steps, None if sent is None else sent / 1e6),
                speedup=None, speedup_over_bf16=None,
                curve=[{"iteration": t, "seconds": t * step.seconds.median, "loss": loss} for t, loss in curve],
            )
        )  # fmt: skip
    by = {row.contender: row.seconds_to_loss for row in rows}
    return [_compared(row, by) for row in rows]


def _compared(row: LMRow, seconds: Mapping[str, float | None]) -> LMRow:
    def over(name: str) -> float | None:
        base = seconds.get(name)
        return base / row.seconds_to_loss if base and row.seconds_to_loss else None

    return replace(row, speedup=over("fp32"), speedup_over_bf16=over("bf16"))


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def mean_curve(result: Mapping[str, Any]) -> Curve:
    """Steps and the mean over seeds of the validation loss, as far as no seed has diverged."""
    points = [(point["step"], point["losses"]) for point in result["curve"]]
    return [(float(step), fmean(losses)) for step, losses in points if None not in losses]


def loss_after(curve: Curve, step: float) -> float:
    """On the line between two points.

    >>> loss_after([(0, 4.0), (10, 2.0), (20, 1.0)], 15)
    1.5
    """
    for (a, high), (b, low) in pairwise(curve):
        if a <= step <= b:
            return high + (low - high) * (step - a) / (b - a)
    return curve[-1][1]


def steps_to(curve: Curve, target: float) -> float | None:
    """The first step at which a curve is at the target or below, on the line between two points; None if it never is.

    >>> steps_to([(0, 4.0), (10, 2.0), (20, 1.0)], 1.5), steps_to([(0, 4.0), (10, 2.0)], 1.5)
    (15.0, None)
    """
    for (a, high), (b, low) in pairwise(curve):
        if low <= target:
            return b if high <= low else a + (b - a) * max(0.0, high - target) / (high - low)
    return None


def about(document: Row) -> str:
    first = next(iter(rows_in(document)), {})
    steps = number_in(document.get("options"), "steps") or 0
    return (
        f"{number_in(first, 'n') or 0:,.0f} parameters, AdamW, {text_in(first, 'workers')} workers, "
        f"{text_in(first, 'n_seeds')} seeds; {text_in(first, 'source')}. The loss to reach is that of fp32 after "
        f"{steps:.0f} steps. Curves are of simulated workers, seconds those of steps on {text_in(first, 'workers')} "
        f"ranks with {number_in(first, 'n_timed') or 0:,.0f} parameters."
    )


PRESENTATION = Presentation(
    "A language model on slow links",
    [
        RowTable(
            lambda rows: f"{text_in(rows[0], 'way')} at {text_in(rows[0], 'rate')}: time to fp32's loss",
            [
                text("codec", "contender"),
                Column("steps", "steps_to_loss"),
                Column("ms per step", "seconds", "ms"),
                Column("MB per step", "bytes_sent", "MB"),
                Column("s to loss", "seconds_to_loss"),
                Column("× fp32", "speedup"),
                Column("× bf16 hook", "speedup_over_bf16"),
                Column("loss after N", "loss_at_n", digits=4),
            ],
            "steps: until the loss of fp32 after N steps is reached. MB sent by a rank, where laconic sent them. "
            "nothing: no exchange at all. FSDP2 gathers weights in float32.",
            by="problem",
        ),
        LineChart(Axis("loss", "validation loss"), axes=[Axis("seconds", "seconds on this link")], by="problem"),
    ],
    about,
)

SUITE = Suite(
    "lm",
    LMOptions,
    lm_rows,
    """A language model on slow links: seconds and bytes to the loss that fp32 reaches.

    Curves of loss by step are trained by simulated workers, once for each codec, in runs that are kept and go on; steps
    are timed under DDP and FSDP2 on ranks over emulated links. Needs the rights to emulate links.
    """,
)
