"""The suite `scaling`: SGD and CA-SGD on 1 to 16 ranks and links of several rates, beside the plan's predictions.

strong   the same total number of columns for any number of ranks
weak     the same number of columns on every rank

and on paper: the cost model's curve to 10,000 ranks, with the latency, bandwidth and compute rates that it assumes.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.training.jobs import left_out
from laconic.atomic_write import atomic_write
from laconic.bench.glm.runs import FP32, SEED, Given, load, objective
from laconic.bench.glm.suite import GLMOptions
from laconic.bench.protocol import Spread
from laconic.bench.ranks import on_ranks, slowest
from laconic.bench.suite import Progress, Suite, no_progress, row_fields
from laconic.data import SHAPES
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.emulated_network import bits_per_second
from laconic.exchange.launch import inside_torchrun
from laconic.glm import FitOptions, Problem, solve
from laconic.glm.precision import AUTO
from laconic.glm.solvers import Progress as At
from laconic.measure.calibrate import Calibration, calibrate_here
from laconic.measure.solvers import Contender
from laconic.options import option
from laconic.planner import DEFAULT, Cluster, GlmJob
from laconic.planner.glm import AVERAGING_SHARE, average_cost, blocks_per_average, cost
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, Text, text
from laconic.report.values import Row, number_in, rows_in, text_in

PROBLEM = "epsilon"
SCALE = 0.01
"""Fraction of the rows of PROBLEM: 4,000."""
WEAK_COLUMNS = 256
"""Columns per rank in weak scaling."""
CALIBRATED_RANKS = 4
RACE_FUNCTION = "benchmarks.scaling:race_on_rank"
RACE_EPOCHS, RACE_RANKS, RACE_TOL, RACE_AVERAGE = 6, 8, 1e-3, 256
"""Epochs of one team, ranks, tolerance of the adaptive step size, and iterations between averages of teams."""
NEAR = 0.005
"""The race ends at this relative loss above one team's final loss: the gap that the paper allows recipe C."""
RACE_PROBLEMS = {"higgs": 0.002, PROBLEM: SCALE}
"""Problems of the race, with few columns and many rows and vice versa, and the fraction of their rows."""
PAPER_RANKS = tuple(round(10 ** (i / 4)) for i in range(17))
"""Ranks on paper: 1 to 10,000, four per decade."""
PAPER_RATE = 1e10


@dataclass(frozen=True, slots=True)
class ScalingOptions:
    """The grid of ranks and links, and a time limit."""

    ranks: Sequence[int] = option((1, 2, 4, 8, 16), "Ranks to start, each number in turn; 1,2,4,8,16.", metavar="N,...")
    rates: Sequence[str] = option(
        ("1gbit", "10gbit", "25gbit", "loopback"),
        "Emulated links; they need root and iproute2, unless it is loopback; 1gbit,10gbit,25gbit,loopback.",
        metavar="RATE,...",
    )
    device: str | None = option(None, "cuda: ranks with a GPU each, over NCCL; they share one.", metavar="DEVICE")
    s: int = option(32, "Iterations that share a message.")
    batch_size: int = option(8, "Rows of a batch.")
    iterations: int = option(128, "Of a round, a multiple of s and of the number of teams.")
    repeats: int = option(3, "Timed rounds.")
    race: bool = option(
        True, "Race one team against several to the same loss, on 8 ranks and the first link.", flag="--race/--no-race"
    )
    seconds: float = option(120.0, "After which no further cell of the grid is begun.")
    kept: Path | None = option(  # noqa: RUF009
        None, "Folder of cells that are done: a later run takes them from there.", metavar="FOLDER"
    )
    earlier: Path | None = option(  # noqa: RUF009
        None, "A document of this suite: its cells are not measured again, and its rows stay.", metavar="FILE.json"
    )

    def __post_init__(self) -> None:
        if inside_torchrun():
            raise InvalidOption("the suite scaling starts ranks of its own for each network; run it without torchrun")
        if self.iterations % (self.s * max(map(teams_of, self.ranks))):
            raise InvalidOption(
                Option("iterations"), f" must be a multiple of s and of the teams; got {self.iterations}"
            )
        for rate in self.rates:
            if rate != "loopback":
                bits_per_second(rate)

    @property
    def cells(self) -> list[tuple[int, str | None]]:
        """(ranks, rate), link by link; a single rank has no links."""
        links = [None if rate == "loopback" else rate for rate in self.rates]
        return list(dict.fromkeys((ranks, rate if ranks > 1 else None) for rate in links for ranks in self.ranks))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.cells) + 1 + (len(RACE_PROBLEMS) if self.race else 0)

    def contenders(self, ranks: int) -> list[Contender]:
        """Contenders that show the effects of s, of precision, and of a 2-D grid of ranks."""
        ours = [Contender("ca_sgd", recipe, self.s) for recipe in ("fp32", "C", "D")]
        teams = [Contender("ca_sgd", "C", self.s, teams=teams_of(ranks))] if ranks > 1 else []
        return [Contender("sgd", "fp32"), *ours, *teams]

    def published(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {**asdict(self), "kept": None, "earlier": None, "cells": self.cells}


def teams_of(ranks: int) -> int:
    """Number of teams (rows) of a grid of ranks that is square, or has more rows than columns.

    >>> [teams_of(ranks) for ranks in (1, 2, 4, 8, 16)]
    [1, 2, 2, 4, 4]
    """
    return int(2 ** math.ceil(math.log2(ranks) / 2))


def problems(ranks: int) -> dict[str, Given]:
    """The problem of each kind of scaling."""
    return {"strong": Given(PROBLEM, SCALE), "weak": Given(PROBLEM, SCALE, n_features=WEAK_COLUMNS * ranks)}


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One contender on one number of ranks and one link.

    kind       strong or weak
    column     heading in the table: sgd, ca_sgd, C, D, 2-D
    seconds    per batch, on the slowest rank; several teams work on several batches at once
    predicted  seconds by the planner, from one calibration; None on GPUs, and for SGD on one rank, which is other code
    over_sgd   speed over SGD in float32 in the same cell
    over_one   speed over the same contender on one rank (weak: times the ranks, as there are more columns)
    loss_gap   relative loss above SGD's in float32 on as many batches
    """

    kind: str
    ranks: int
    rate: str | None
    device: str | None
    n_features: int
    contender: str
    column: str
    seconds: Spread
    predicted: float | None
    over_sgd: float
    over_one: float | None
    loss_gap: float


COLUMNS = {"fp32": "ca_sgd fp32", "C": "C", "D": "D"}


def column_of(one: Contender) -> str:
    """A contender's heading in the table."""
    return FP32 if one.solver == "sgd" else "2-D" if one.teams > 1 else COLUMNS[one.recipe]


def scaling_rows(options: ScalingOptions, progress: Progress = no_progress) -> Mapping[str, Any]:
    """Measure cell after cell until time is up, then calibrate; if it is too late, typical rates are used."""
    began = time.monotonic()
    earlier: Row = {} if options.earlier is None else json.loads(options.earlier.read_text())
    rows = [dict(row) for row in rows_in(earlier)]
    done = {(row["ranks"], row["rate"]) for row in rows if row["device"] == options.device}
    left: list[str] = []

    def kept(label: str, run: Callable[[], Any]) -> Any:
        progress(label)
        return _kept(options, label, run, late=time.monotonic() - began > options.seconds)

    for ranks, rate in options.cells:
        label = f"{ranks} ranks, {rate or 'loopback'}"
        if (ranks, rate) in done:
            progress(label)
        elif (found := kept(label, partial(_cell, options, ranks, rate))) is None:
            left.append(label)
        else:
            rows += _rows(options, ranks, rate, found, rows)
    race = [dict(row) for row in rows_in(earlier, "race")]
    for name in RACE_PROBLEMS if options.race and not race else ():
        race += kept(f"race {name}", partial(_race, options, name)) or []
    calibrated = None if options.device else kept("calibration", calibration) or earlier.get("calibration")
    cluster = DEFAULT if calibrated is None else Calibration.from_json(calibrated).cluster
    rows = [{**row, "predicted": _predicted(row, options, cluster)} for row in rows]
    said = {"left_out": left, "race": race, "calibrated": calibrated is not None, "calibration": calibrated}
    on_paper = {} if options.device else {"paper": paper(options, cluster), "rests_on": _model_parameters(cluster)}
    return {"rows": rows, **said, **on_paper}


def _kept(options: ScalingOptions, label: str, run: Any, *, late: bool = False) -> Any:
    """The result of an earlier run with this label and these options, or of `run()`; None if it is too late."""
    name = "-".join(str(part) for part in (label, options.device or "cpu", options.s, options.batch_size))
    path = None if options.kept is None else options.kept / f"{name.replace(', ', '-').replace(' ', '-')}.json"
    if path is not None and path.exists():
        return json.loads(path.read_text())
    if late:
        return None
    found = run()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps(found))
    return found


def calibration() -> dict[str, Any]:
    """A calibration of ranks started here, as JSON."""
    found = calibrate_here(CALIBRATED_RANKS)
    if found is None:
        raise InvalidOption("the suite scaling starts ranks of its own; run it without torchrun")
    return found.to_json()


def _cell(options: ScalingOptions, ranks: int, rate: str | None) -> list[dict[str, Any]]:
    """Results of `laconic bench glm` by rank, for both problems on these ranks and one link."""
    arguments = {
        "problems": [asdict(given) for given in problems(ranks).values()],
        "contenders": [asdict(one) for one in options.contenders(ranks)],
        "batch_size": options.batch_size,
        "iterations": options.iterations,
        "repeats": options.repeats,
        "device": options.device,
    }
    return on_ranks(GLMOptions.function, arguments, ranks, rate, no_progress, options.device) or []


def _rows(
    options: ScalingOptions, ranks: int, rate: str | None, results: Sequence[Any], before: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """Rows of one cell; `before` are the rows of earlier cells, including those of one rank."""
    alone = {
        (row["kind"], row["column"]): row for row in before if (row["ranks"], row["device"]) == (1, options.device)
    }
    for i, (kind, given) in enumerate(problems(ranks).items()):
        runs = [result[i]["runs"] for result in results]
        seconds = {label: Spread.of(slowest([run[label] for run in runs])) for label in runs[0]}
        for one in options.contenders(ranks):
            took, column = seconds[one.label], column_of(one)
            single = alone.get((kind, "C" if one.teams > 1 else column), {}).get("seconds", {}).get("median")
            first = took.median if ranks == 1 else single
            made = ScalingRow(
                kind=kind,
                ranks=ranks,
                rate=rate,
                device=options.device,
                n_features=given.n_features or SHAPES[PROBLEM].n_features,
                contender=one.label,
                column=column,
                seconds=took,
                predicted=None,
                over_sgd=seconds[FP32].median / took.median,
                over_one=first and (1 if kind == "strong" else ranks) * first / took.median,
                loss_gap=runs[0][one.label]["losses"][-1] / runs[0][FP32]["losses"][-1] - 1,
            )
            yield row_fields(made)


def _predicted(row: Row, options: ScalingOptions, cluster: Cluster) -> float | None:
    """Predicted seconds of a row; None on GPUs, and for SGD on one rank."""
    ranks, rate, column = int(row["ranks"]), row["rate"], text_in(row, "column")
    if row["device"] or (ranks == 1 and column == FP32):
        return None
    job = GlmJob(round(SCALE * SHAPES[PROBLEM].n_rows), int(row["n_features"]), batch_size=options.batch_size)
    (one,) = (one for one in options.contenders(ranks) if column_of(one) == column)
    whole = cluster.what_if(ranks, rate and bits_per_second(rate))
    blocks = blocks_per_average(job, one, one.teams, DEFAULT.what_if(ranks // one.teams))
    return predicted(job, one, whole, min(blocks * one.s, options.iterations // one.teams))


def predicted(job: GlmJob, one: Contender, cluster: Cluster, batches: int | None = None) -> float:
    """Predicted seconds per batch. Teams average every `batches`, by default so that it takes a tenth of the rest."""
    team = cluster.what_if(cluster.n_ranks // one.teams)
    work = cost(job, one, team).seconds
    average = average_cost(job, one.teams, team).seconds / batches if batches else AVERAGING_SHARE * work
    return (work + (average if one.teams > 1 else 0)) / one.teams


def paper(options: ScalingOptions, cluster: Cluster) -> list[dict[str, Any]]:
    """The cost model to 10,000 ranks on links of 10 Gbit/s: seconds per batch at the best s (and teams)."""
    job = GlmJob(400_000, 2000, batch_size=options.batch_size)
    curves: dict[str, list[dict[str, float]]] = {}
    for ranks in PAPER_RANKS:
        there = cluster.what_if(ranks, PAPER_RATE, algorithm="best")
        blocks = job.blocks()
        best = {FP32: predicted(job, Contender("sgd", "fp32"), there)}
        for recipe, name in COLUMNS.items():
            best[name] = min(predicted(job, Contender("ca_sgd", recipe, s), there) for s in blocks)
        grids = [2**i for i in range(14) if ranks % 2**i == 0 and ranks >= 2**i]
        best["2-D"] = min(predicted(job, Contender("ca_sgd", "C", s, teams=t), there) for s in blocks for t in grids)
        for name, seconds in best.items():
            curves.setdefault(name, []).append({"ranks": ranks, "seconds": seconds})
    return [{"contender": name, "curve": curve} for name, curve in curves.items()]


def _model_parameters(cluster: Cluster) -> list[dict[str, Any]]:
    """α, β, ω and γ of the cost model, γ by solver and recipe."""
    alpha, omega = cluster.all_reduce.alpha_seconds, cluster.all_reduce.wait_seconds
    links = {"alpha_seconds": alpha, "beta_seconds_per_byte": 8 / PAPER_RATE, "wait_seconds": omega}
    return [{"contender": name, **links, **asdict(rates)} for name, rates in cluster.solvers.items()]


@dataclass(slots=True)
class Judge:
    """A callback that records (seconds, objective over all rows) after every segment, excluding its own time.

    target  objective at which to stop
    """

    rows: Problem
    options: FitOptions
    team: Communicator
    target: float
    curve: list[tuple[float, float]] = field(default_factory=list)
    judging: float = 0.0

    def __call__(self, at: At) -> bool:
        """Whether the target is reached."""
        began = time.perf_counter()
        found = objective(self.rows, self.options, at.state, self.team)
        self.curve.append((at.state.seconds - self.judging, found))
        self.judging += time.perf_counter() - began
        return found <= self.target


def race_on_rank(
    progress: Progress, *, problem: Mapping[str, Any], contenders: Sequence[Mapping[str, Any]], batch_size: int
) -> dict[str, Any]:
    """By contender, (seconds, objective) after each segment; all but the first stop near the first's last objective."""
    comm, given, curves, target = Communicator.over(), Given(**problem), dict[str, Any](), -math.inf
    for values in contenders:
        one = Contender(**values)
        team = comm.split(one.teams)
        fit: dict[str, Any] = {"learning_rate": "adaptive", "eta0": AUTO, "tol": RACE_TOL, "n_iter_no_change": 1}
        fit |= {"max_iter": RACE_EPOCHS * one.teams, "average_every": max(1, RACE_AVERAGE // one.s)}
        options, rows = replace(one.options(1.0, batch_size, SEED), **fit), load(given, team)
        stored, judge = rows.stored_as(options.precision), Judge(rows, options, team, target)
        solve(stored, options, comm=team, last_epoch=1)  # compiles kernels and opens links
        solve(stored, options, comm=team, callbacks=[judge])
        curves[one.label] = judge.curve
        target = (1 + NEAR) * judge.curve[-1][1] if len(curves) == 1 else target
    return curves


def _race(options: ScalingOptions, name: str) -> list[dict[str, Any]]:
    """Time until teams come near the final loss of one team, on 8 ranks and the first link."""
    rate = None if options.rates[0] == "loopback" else options.rates[0]
    everyone = [Contender("ca_sgd", "C", options.s, teams=teams) for teams in (1, 2, 4)]
    everyone.append(Contender("sgd", "C", teams=RACE_RANKS))  # alone in its team, where SGD is one compiled loop
    arguments: dict[str, Any] = {"problem": asdict(Given(name, RACE_PROBLEMS[name])), "batch_size": options.batch_size}
    arguments["contenders"] = [asdict(one) for one in everyone]
    (curves, *_) = on_ranks(RACE_FUNCTION, arguments, RACE_RANKS, rate, no_progress) or [{}]
    target = (1 + NEAR) * curves[everyone[0].label][-1][1]
    about = {"problem": name, "ranks": RACE_RANKS, "rate": rate, "target": target}
    reached = {label: next((s for s, value in curve if value <= target), None) for label, curve in curves.items()}
    return [{**about, "contender": label, "seconds": reached[label], "curve": curve} for label, curve in curves.items()]


def _link(row: Row) -> str:
    return f"{text_in(row, 'kind')}, {text_in(row, 'rate', 'loopback')}" + ", NCCL" * bool(row.get("device"))


def _by_ranks(rows: Sequence[Row]) -> list[Row]:
    """A row for each kind, link and number of ranks, with a number for each column."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = _link(row), text_in(row, "ranks")
        column = text_in(row, "column")
        cell = found.setdefault(key, {"link": key[0], "ranks": key[1]})
        cell[column], cell[f"{column} predicted"] = row.get("seconds"), row.get("predicted")
    return list(found.values())


def _on_paper(curves: Sequence[Row]) -> list[Row]:
    """A row for each power of ten of ranks, with a number for each contender."""
    found: dict[int, dict[str, Any]] = {}
    for row in curves:
        for point in rows_in(row, "curve"):
            ranks = int(number_in(point, "ranks") or 0)
            found.setdefault(ranks, {"ranks": f"{ranks:,}"})[text_in(row, "contender")] = point.get("seconds")
    return [cells for ranks, cells in found.items() if ranks > 0 and math.log10(ranks).is_integer()]


def _links(rows: Sequence[Row]) -> str:
    names = ("alpha_seconds", "beta_seconds_per_byte", "wait_seconds")
    alpha, beta, omega = (number_in(rows[0], name) or 0.0 for name in names)
    waiting = f", ω = {1e6 * omega:.3g} µs per doubling of the ranks" if omega else ""
    said = f"α = {1e6 * alpha:.3g} µs per message, β = {1e9 * beta:.3g} ns per byte{waiting}"
    return f"What the curve rests on: {said}, and γ"


GAMMA = ("iteration", "step", "row", "gather", "gemv", "gemm", "pair")
"""Rates of the cost model; see `planner.cluster`."""
NAMES = (FP32, *COLUMNS.values(), "2-D")
PRESENTATION = Presentation(
    "Scaling of generalised linear models",
    [
        RowTable(
            lambda rows: f"{text_in(rows[0], 'link')}: time per batch",
            [
                text("ranks", "ranks"),
                *(
                    Column(*spec)
                    for name in NAMES
                    for spec in ((name, name, "µs"), ("plan", f"{name} predicted", "µs"))
                ),
            ],
            "µs per batch of the slowest rank. 2-D: teams of ranks, each at a batch of its own.",
            rows=_by_ranks,
            by="link",
        ),
        RowTable(
            lambda rows: (
                f"To the same loss on {text_in(rows[0], 'ranks')} ranks, {text_in(rows[0], 'rate', 'loopback')}"
            ),
            [
                text("problem", "problem"),
                text("contender", "contender"),
                Column("seconds", "seconds", "s"),
                Column("loss", "target"),
            ],
            "The loss is 0.5 % above that which one team ends with; no time: not reached.",
            of="race",
        ),
        Text(left_out),
        RowTable(
            "On paper: the cost model to 10,000 ranks, links of 10 Gbit/s",
            [text("ranks", "ranks"), *(Column(name, name, "µs") for name in NAMES)],
            "µs per batch of 400,000 × 2,000, each at its best s, 2-D at its best number of teams as well.",
            of="paper",
            rows=_on_paper,
        ),
        RowTable(
            _links,
            [
                text("γ of", "contender"),
                *(Column(name, f"{name}_seconds", "s") for name in GAMMA),
            ],
            "Per outer iteration, inner step, sampled row, value read of it, flop of Y x and Yᵀ r, flop of Y Yᵀ, "
            "and entry of the Gram triangle.",
            of="rests_on",
        ),
        LineChart(
            Axis("seconds", "s per batch"),
            title="On paper: the cost model to 10,000 ranks",
            of="paper",
            axes=[Axis("ranks", "ranks")],
            log=True,
            log_x=True,
        ),
    ],
)
SUITE = Suite(
    "scaling",
    ScalingOptions,
    scaling_rows,
    """Strong and weak scaling of SGD and CA-SGD over ranks and links, beside the plan; the cost model to 10,000 ranks.

    With --kept, a run goes on where an earlier one stopped.
    """,
)
