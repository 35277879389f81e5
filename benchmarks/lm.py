"""The suite `lm`: seconds and bytes until a language model reaches a loss, on slow links.

A codec's effect on the loss does not depend on the link, and the time of a step does not depend on the weights. So each
codec's curve of validation loss by step is trained once, by simulated workers (`benchmarks.training`, whose runs can be
interrupted), and the seconds of a step are measured in a few steps of the same network and optimizer on random bytes,
on ranks over each emulated link, under DDP or under FSDP2 with weights gathered in float32 or as differences. The
product is the time to the loss that fp32 has after N steps. Runs, one for each codec and seed, and the steps of each
link are files in one folder; existing ones are not computed again.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product, takewhile
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch

from benchmarks.training.jobs import check_same, keep, left_out, result_of, run_jobs
from benchmarks.training.members import MEMBERS
from benchmarks.training.networks import CONTEXT, N_BYTES, ByteModule, ByteTransformer
from benchmarks.training.run import TASKS, Job
from laconic.atomic_write import atomic_write
from laconic.bench.ddp import ASKED_BY, BASELINES, HOOKS, LOW_RANK, DDPOptions, DDPRow, ddp_on_rank, ddp_rows  # noqa: F401
from laconic.bench.fsdp import FSDPOptions, fsdp_on_rank  # noqa: F401
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import PROBLEMS, NetworkProblem
from laconic.errors import InvalidOption, Option
from laconic.options import check_counts, check_names, option
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, Text, text
from laconic.report.values import Row, number_in, rows_in, text_in

TASK, WIDTH, BATCH_SIZE, WORKERS = "lm-large", 512, 16, 4
TIMED, N_ROWS = "bytes", 256
"""The problem whose steps are timed, and its samples."""
CONTENDERS = {
    "fp32": BASELINES[0],
    "bf16": BASELINES[1],
    **{name: label for label, name in LOW_RANK.items()},
    **{name: name for name in ("nuqsgd-4/512", "dithered-0.1@metric", "rotated-4")},
}
"""Members whose curves are trained, and the contender that times their steps."""
SHARDED = {
    "fp32": "FSDP2 fp32",
    "bf16": "FSDP2 bf16",
    **{name: name for name in ("bf16+bf16", "nuqsgd-4/512", "nuqsgd-4/512+differences-8")},
}
ON_GPU, CURVES = ("bf16+bf16",), {"bf16+bf16": "bf16"}
"""Weights in bfloat16 need products in it, which not every CPU has; a GPU's are anyway, so it shares bf16's curve."""
ALL = tuple({**CONTENDERS, **SHARDED})
NOTHING = "nothing"
"""Exchanges nothing: the lower bound of a step's time; it has no curve."""


def random_bytes(width: int) -> NetworkProblem:
    """Sequences of random bytes, with the network and the optimizer of the curves; a trial's size is the width."""
    rows = torch.randint(N_BYTES, (N_ROWS, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    task = TASKS[TASK]
    network = partial(ByteModule, ByteTransformer(width, task.depth))
    optimizer = partial(torch.optim.AdamW, weight_decay=task.weight_decay)
    return NetworkProblem(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), network, task.learning_rate, optimizer)


PROBLEMS[TIMED] = random_bytes


class DDPSteps(DDPOptions):
    """Options that time steps of DDP. Ranks import this module, which registers the problem."""

    function = f"{__name__}:ddp_on_rank"
    asked_by: ClassVar[Mapping[str, Sequence[str]]] = {**{label: (label,) for label in CONTENDERS.values()}, **ASKED_BY}


class FSDPSteps(FSDPOptions):
    """Options that time steps of FSDP2."""

    function = f"{__name__}:fsdp_on_rank"
    asked_by: ClassVar[Mapping[str, Sequence[str]]] = {**FSDPOptions.asked_by, **{name: (name,) for name in ON_GPU}}


WAYS = {"ddp": ("DDP", DDPSteps, CONTENDERS), "fsdp": ("FSDP2", FSDPSteps, SHARDED)}
"""Kinds of data-parallel training: name, options that time it, and contender by member."""


@dataclass(frozen=True, slots=True)
class LMOptions:
    """What to run."""

    data: Path | None = option(None, "Text to train on; by default Python's standard library.", metavar="FILE")  # noqa: RUF009
    members: Sequence[str] = option(
        ALL, f"{', '.join(ALL)}; all. After a plus, how FSDP2 gathers weights.", flag="--member", metavar="NAME,..."
    )
    steps: int = option(600, "N: fp32's loss after so many is the one to reach; all train a quarter longer.")
    seeds: int = option(2, "Seeds of a curve, each a run of its own.")
    rates: Sequence[str] = option(("1gbit", "10gbit"), "Of every rank's link.", flag="--rate", metavar="RATE,...")
    ways: Sequence[str] = option(("ddp", "fsdp"), "ddp,fsdp: whose steps are timed.", flag="--way", metavar="NAME,...")
    repeats: int = option(10, "Timed steps on each link.")
    width: int = option(WIDTH, "Of the transformer, a multiple of 32.")
    device: str = option("cpu", "cpu or cuda.", metavar="NAME")
    out: Path = option(Path("runs/lm"), "Folder of runs, which go on where they stopped.", metavar="DIR")  # noqa: RUF009
    processes: int = option(1, "Runs side by side.")
    seconds: float = option(math.inf, "After which curves stop and no link is begun; 0 only gathers what is there.")
    earlier: Path | None = option(  # noqa: RUF009
        None, "A result whose curves and steps are taken, and not measured again.", metavar="FILE"
    )

    def __post_init__(self) -> None:
        check_counts(self)
        if self.earlier is not None and not self.earlier.is_file():
            raise InvalidOption(Option("earlier"), f": there is no file {self.earlier}")
        check_names(self.members, list(ALL), "member")
        check_names(self.ways, list(WAYS), "way")
        if self.width % 32:
            raise InvalidOption(Option("width"), f" must be a multiple of 32; got {self.width}")

    def jobs(self) -> list[Job]:
        """One job for each member and seed, those of fp32 first."""
        names = dict.fromkeys(["fp32", *self.members])
        precision = "bf16" if self.device == "cuda" else "fp32"
        settings: dict[str, Any] = {"width": self.width, "device": self.device, "precision": precision}
        data = None if self.data is None else str(self.data)
        n = self.steps * 5 // 4
        known = [name for name in names if name in MEMBERS]
        pairs = product(known, range(self.seeds))
        return [Job(TASK, name, WORKERS, 1, n, BATCH_SIZE, data=data, seed=seed, **settings) for name, seed in pairs]

    def timing(self, rate: str, way: str) -> DDPOptions:
        """The options that time the steps on one link."""
        _, kind, labels = WAYS[way]
        left = ("fp32", "bf16", *(ON_GPU if self.device == "cpu" else ()))
        asked = [labels[name] for name in self.members if name in labels and name not in left]
        codecs = [HOOKS.get(label, label) for label in asked] + ([NOTHING] if way == "ddp" else [])
        device = self.device if self.device == "cuda" else None
        sizes: dict[str, Any] = {"size": self.width, "batch_size": BATCH_SIZE, "ranks": WORKERS}
        how: dict[str, Any] = {"rate": rate, "device": device, "repeats": self.repeats}
        return kind(problem=TIMED, codecs=codecs or ["fp32"], **sizes, **how)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.jobs()) + len(self.rates) * len(self.ways)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, without paths."""
        names = ("members", "steps", "seeds", "rates", "ways", "repeats", "width", "device")
        return {**{name: getattr(self, name) for name in names}, "mps": "CUDA_MPS_PIPE_DIRECTORY" in os.environ}


@dataclass(frozen=True, slots=True)
class LMRow:
    """One codec on one link.

    way              DDP or FSDP2
    n                parameters of the network
    loss, loss_at_n  validation loss, mean over seeds: at the end, and after the N steps that fp32 has
    losses_at_n      loss_at_n by seed
    steps_to_loss    until the loss is that of fp32 after N steps, interpolated on the curve; None if never
    seconds          of a step, median of the slowest rank; bytes_sent by a rank in a step
    seconds_to_loss, megabytes_to_loss  steps_to_loss times seconds and bytes_sent
    speedup, speedup_over_bf16  seconds to the loss of fp32, and of the bf16 hook, over its own
    curve            steps, seconds on this link, and the mean validation loss
    """

    problem: str
    contender: str
    baseline: bool
    rate: str
    way: str
    source: str
    n: int
    n_seeds: int
    workers: int
    bits: float | None
    loss: float | None
    loss_at_n: float | None
    losses_at_n: Sequence[float]
    steps_to_loss: float | None
    seconds: float
    bytes_sent: float | None
    seconds_to_loss: float | None
    megabytes_to_loss: float | None
    speedup: float | None
    speedup_over_bf16: float | None
    curve: Sequence[Mapping[str, Any]]


Curve = list[tuple[float, float]]
"""Points (step, loss)."""


Steps = Mapping[str, Mapping[str, Any]]
"""Seconds and bytes_sent of a step, by the label of the contender timed."""
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Results of the seeds, by member."""


def lm_rows(options: LMOptions, progress: Progress = no_progress) -> Mapping[str, Any]:
    """Train missing curves and time steps on every link, until time is up, and combine them."""
    until, jobs = time.monotonic() + options.seconds, options.jobs()
    if options.earlier is not None:
        earlier = json.loads(options.earlier.read_text())
        keep(earlier.get("runs", []), options.out)
        for name, steps in earlier.get("steps", {}).items():
            if not (path := options.out / f"{name}.json").is_file():
                _write(path, steps)
    runs: dict[str, list[Mapping[str, Any]]] = {}
    done = run_jobs(jobs, options.out, options.processes, options.seconds, progress)
    for one in done:
        runs.setdefault(one["job"]["member"], []).append(one["result"])
    left = [job.label for job in jobs if result_of(job, options.out) is None]
    whole = {name: found for name, found in runs.items() if len(found) == options.seeds}
    rows: list[LMRow] = []
    for rate, way in product(options.rates, options.ways):
        progress(f"steps at {rate}, {way}")
        steps = timed_steps(options, rate, way, late=time.monotonic() >= until)
        left += [] if steps else [f"steps at {rate}, {way}"]
        rows += on_link(rate, way, steps, whole, options) if steps and "fp32" in whole else []
    kept = {path.stem: json.loads(path.read_text()) for path in sorted(options.out.glob("steps-*.json"))}
    return {"rows": rows, "left_out": left, "runs": done, "steps": kept}


def timed_steps(options: LMOptions, rate: str, way: str, *, late: bool) -> Steps | None:
    """Steps on one link, from the folder or timed now; None if there are none and it is too late."""
    asked, path = options.timing(rate, way), options.out / f"steps-{way}-{rate}.json"
    settings = {"labels": asked.labels, "size": asked.size, "repeats": asked.repeats, "device": asked.device}
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        check_same(path, found, settings)
        steps: Steps = found["steps"]
        return steps
    timed = None if late else ddp_rows(asked)
    if timed is None:
        return None
    steps = {row.contender: {"seconds": row.seconds.median, "bytes_sent": _bytes_sent(row)} for row in timed}
    _write(path, {**settings, "steps": steps})
    return steps


def _write(path: Path, found: Mapping[str, Any]) -> None:
    with atomic_write(path) as file:
        json.dump(found, file, indent=2, allow_nan=False)


def _bytes_sent(row: DDPRow) -> float | None:
    """Bytes of gradients, and of weights if they are gathered."""
    return None if row.bytes_sent is None else row.bytes_sent + (row.weight_bytes_sent or 0.0)


def on_link(rate: str, way: str, timed: Steps, runs: Runs, options: LMOptions) -> list[LMRow]:
    """The rows of one link, fp32 first."""
    target, first = loss_after(mean_curve(runs["fp32"]), options.steps), runs["fp32"][0]
    shown, _, labels = WAYS[way]
    rows = []
    for name in [*dict.fromkeys(["fp32", "bf16", *options.members]), NOTHING]:
        step = timed.get(labels.get(name, name))
        if step is None:
            continue
        own = runs.get(CURVES.get(name, name), [])
        curve = mean_curve(own)
        steps, seconds, sent = steps_to(curve, target), step["seconds"], step["bytes_sent"]
        rows.append(
            LMRow(
                problem=f"byte-level transformer, {shown} at {rate}", contender=name, baseline=name == "fp32",
                rate=rate, way=shown, source=first["source"], n=first["n"], n_seeds=options.seeds,
                workers=WORKERS,
                bits=fmean(run["bits"] for run in own) if own else None,
                loss=curve[-1][1] if curve else None,
                loss_at_n=loss_after(curve, options.steps) if curve else None,
                losses_at_n=[loss_after(mean_curve([run]), options.steps) for run in own],
                steps_to_loss=steps, seconds=seconds, bytes_sent=sent,
                seconds_to_loss=_times(steps, seconds),
                megabytes_to_loss=_times(steps, None if sent is None else sent / 1e6),
                speedup=None, speedup_over_bf16=None,
                curve=[{"iteration": t, "seconds": t * seconds, "loss": loss} for t, loss in curve],
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


def mean_curve(runs: Sequence[Mapping[str, Any]]) -> Curve:
    """The mean over seeds of the validation loss by step, up to where a seed diverges."""
    points = zip(*(run["curve"] for run in runs), strict=True)
    found = ((float(same[0]["step"]), [point["losses"][0] for point in same]) for same in points)
    return [(step, fmean(losses)) for step, losses in takewhile(lambda point: None not in point[1], found)]


def loss_after(curve: Curve, step: float) -> float:
    """The loss after a number of steps, linear between two points.

    >>> loss_after([(0, 4.0), (10, 2.0), (20, 1.0)], 15)
    1.5
    """
    for (a, high), (b, low) in pairwise(curve):
        if a <= step <= b:
            return high + (low - high) * (step - a) / (b - a)
    return curve[-1][1]


def steps_to(curve: Curve, target: float) -> float | None:
    """The first step at which a curve reaches the target, linear between two points; None if it never does.

    >>> steps_to([(0, 4.0), (10, 2.0), (20, 1.0)], 1.5), steps_to([(0, 4.0), (10, 2.0)], 1.5)
    (15.0, None)
    """
    for (a, high), (b, low) in pairwise(curve):
        if low <= target:
            return b if high <= low else a + (b - a) * max(0.0, high - target) / (high - low)
    return None


def about(document: Row) -> str:
    first = next(iter(rows_in(document)), None)
    if first is None:
        return ""
    options = document.get("options")
    steps = number_in(options, "steps") or 0
    shared = ", which share a GPU by MPS" if isinstance(options, dict) and options.get("mps") else ""
    return (
        f"{number_in(first, 'n') or 0:,.0f} parameters, AdamW, {text_in(first, 'workers')} workers, "
        f"{text_in(first, 'n_seeds')} seeds; {text_in(first, 'source')}. The loss to reach is that of fp32 after "
        f"{steps:.0f} steps. Curves are of simulated workers, seconds those of steps of the same network and optimizer "
        f"on {text_in(first, 'workers')} ranks{shared}."
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
                Column("× bf16", "speedup_over_bf16"),
                Column("loss after N", "loss_at_n", digits=4),
            ],
            "steps: until the loss of fp32 after N steps is reached. MB sent by a rank, where laconic sent them. "
            "nothing: no exchange at all. bf16: gradients in bfloat16, under DDP by PyTorch's hook. FSDP2 gathers "
            "weights in float32, or as it says after a plus: in bfloat16 (with the curve of bf16), or as 8-bit "
            "differences to those before.",
            by="problem",
        ),
        Text(left_out),
        LineChart(Axis("loss", "validation loss"), axes=[Axis("seconds", "seconds on this link")], by="problem"),
    ],
    about,
)

SUITE = Suite(
    "lm",
    LMOptions,
    lm_rows,
    """A language model on slow links: seconds and bytes to the loss that fp32 reaches.

    Curves of loss by step are trained by simulated workers, once for each codec and seed; steps are timed under DDP and
    FSDP2 on ranks over emulated links, which needs the rights to emulate them. All is kept in a folder: the same
    command goes on where one with --seconds stopped.
    """,
)
