"""The suite `glm-time-to`: seconds of `fit` to a good model in one process, ours and scikit-learn's.

It also reads and converts a LIBSVM file; see `libsvm_speed`.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.glm import libsvm_speed
from benchmarks.glm import sklearn_rivals as rivals
from benchmarks.glm.sklearn_rivals import COVTYPE_ROWS, Point, TrainingRows, covtype_like
from laconic.bench.glm.runs import Given, load
from laconic.bench.glm.suite import OF_FILES, GLMOptions, problems
from laconic.bench.protocol import Spread, WrongResult
from laconic.bench.suite import Progress, Suite, no_progress, row_fields
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm import Diverged
from laconic.glm import Progress as FitProgress
from laconic.glm.estimators import CASGDClassifier, CASGDRegressor
from laconic.measure.solvers import ALPHA
from laconic.options import check_counts, like, option
from laconic.report import BarChart, Column, Presentation, RowTable, Text, text
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.units import shown

WITHIN = 0.01
"""Relative distance from the optimum that counts as reached."""
EPOCHS = (1, 2, 3, 4, 5, 6, 7, 8)
ITERATIONS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
SCHEDULES = (("adaptive", 8), ("cosine", 1), ("cosine", 2), ("cosine", 3), ("cosine", 5))
"""Our schedules, each with its number of epochs."""
RECIPES = ("fp32", "C")
WARMUP_ROWS = 2000

Fit = Callable[[], Point]


@dataclass(frozen=True, slots=True)
class Choice:
    """A contender's fastest configuration that reaches the objective.

    config  for tables
    fit     runs it to within 1 % of the optimum
    """

    config: str
    fit: Fit


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One contender: how long it takes to an objective within 1 % of the optimum.

    contender   "laconic fp32", "laconic C", "SGDClassifier", "LogisticRegression(lbfgs)", "PoissonRegressor(lbfgs)"
    config      the best of those tried; None where none reached the objective
    seconds     of the whole `fit` with it; ours is stopped by a callback as soon as it reaches the objective
    over_ours   seconds over those of the faster of ours, round by round
    objective   reached
    optimum     the least objective
    """

    problem: str
    family: str
    n_rows: int
    n_features: int
    contender: str
    config: str | None
    seconds: Spread | None
    over_ours: Spread | None
    objective: float | None
    optimum: float

    @property
    def above_optimum(self) -> float | None:
        """objective / optimum − 1."""
        return None if self.objective is None else self.objective / self.optimum - 1


@dataclass(frozen=True, slots=True)
class TimeToOptions:
    """What to run: on a file, whose options are those of `laconic bench glm`, or on rows like the forest cover data."""

    data: Path | None = like(GLMOptions, "data")  # noqa: RUF009
    family: str | None = like(GLMOptions, "family")
    target: str | None = like(GLMOptions, "target")
    positive: str | None = like(GLMOptions, "positive")
    sample_weight: str | None = like(GLMOptions, "sample_weight")
    offset: str | None = like(GLMOptions, "offset")
    exposure: str | None = like(GLMOptions, "exposure")
    one_hot: Sequence[str] = like(GLMOptions, "one_hot")
    exclude: Sequence[str] = like(GLMOptions, "exclude")
    dense: bool = like(GLMOptions, "dense")
    standardize: bool = like(GLMOptions, "standardize")
    n_rows: int | None = option(None, f"Rows without --data; {COVTYPE_ROWS:,}.", flag="--rows")
    batch_size: int = option(32, "Rows of a batch of ours.")
    repeats: int = option(11, "Timed rounds.")
    file_bytes: int = option(64_000_000, "Bytes of the LIBSVM file that is read besides.", flag="--file-size")

    def __post_init__(self) -> None:
        check_counts(self)
        if self.data is not None and self.n_rows is not None:
            raise InvalidOption(Option("n_rows"), " is for synthetic rows; leave it out beside ", Option("data"))
        self.file  # noqa: B018 (raises if its options do not fit)

    @property
    def file(self) -> Given | None:
        """The file, if one was given. Raises `InvalidOption` if there are options about a file but no file."""
        asked = {name: getattr(self, name) for name in ("data", *OF_FILES)}
        return GLMOptions(**asked).problems[0] if any(asked.values()) else None

    def published(self) -> dict[str, Any]:
        """The options as JSON values; files are named without their folders."""
        return {**asdict(self), "data": self.data and self.data.name}

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar: the rows, the optimum, a search for each contender, rounds, and the file's three."""
        return 1 + 1 + len(RECIPES) + 2 + self.repeats + 3


def race(options: TimeToOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Load or make the rows, run every contender, then read and convert a LIBSVM file: `file` is its row."""
    progress("the rows")
    file = options.file
    problem = load(file, Communicator()) if file else covtype_like(options.n_rows or COVTYPE_ROWS)
    name, rows = file.name if file else "covtype-like", TrainingRows.of(problem, ALPHA)
    found = time_to_rows(name, rows, batch_size=options.batch_size, repeats=options.repeats, progress=progress)
    converted = libsvm_speed.file_row(options.file_bytes, options.repeats, progress)
    return {"file": row_fields(converted), "rows": found}


def time_to_rows(
    problem: str, rows: TrainingRows, *, batch_size: int = 32, repeats: int = 5, progress: Progress = no_progress
) -> list[TimeRow]:
    """Find each contender's fastest configuration, then time all of them in turn, `repeats` times."""
    progress("the optimum")
    best = rivals.optimum(rows)
    limit = best + WITHIN * abs(best)
    chosen: dict[str, Choice | None] = {}
    for label, find in searches(rows, batch_size).items():
        progress(f"trying {label}")
        chosen[label] = find(limit)
    seconds: dict[str, list[float]] = {label: [] for label, choice in chosen.items() if choice}
    points: dict[str, float] = {}
    for turn in range(repeats):
        progress(f"round {turn + 1} of {repeats}")
        for label in seconds:
            taken, points[label] = _run(label, chosen[label], rows, limit)
            seconds[label].append(taken)
    return [_row(problem, rows, label, choice, seconds, points, best) for label, choice in chosen.items()]


def searches(rows: TrainingRows, batch_size: int) -> dict[str, Callable[[float], Choice | None]]:
    """By contender, a function that finds its fastest configuration."""

    def ours(recipe: str) -> Callable[[float], Choice | None]:
        return lambda limit: find_ours(rows, recipe, batch_size, limit)

    found: dict[str, Callable[[float], Choice | None]] = {f"laconic {recipe}": ours(recipe) for recipe in RECIPES}
    if rows.family.name == "bernoulli":
        found["SGDClassifier"] = lambda limit: find_sgd(rows, limit)
    found[rivals.lbfgs_name(rows)] = lambda limit: find_lbfgs(rows, limit)
    return found


def find_ours(rows: TrainingRows, recipe: str, batch_size: int, limit: float) -> Choice | None:
    """The schedule that reaches the limit first; kernels are compiled on a few rows before."""
    fit_ours(rows.head(WARMUP_ROWS), recipe, "adaptive", 1, batch_size)
    best, choice = math.inf, None
    for schedule, epochs in SCHEDULES:
        there = _first(rows, limit, recipe, schedule, epochs, batch_size)
        if there is not None and there[0] < best:
            best, stop = there
            n_epochs = stop * batch_size / len(rows.y)
            config = f"{schedule} max_iter={epochs}, {n_epochs:.2f} epochs of batches of {batch_size}"
            choice = Choice(config, _stopping(rows, recipe, schedule, epochs, batch_size, stop))
    return choice


def _first(
    rows: TrainingRows, limit: float, recipe: str, schedule: str, epochs: int, batch_size: int
) -> tuple[float, int] | None:
    """Seconds and iterations of the first iterate within the limit; objectives are computed after the fit."""
    points: list[tuple[float, int, Point]] = []
    began = time.perf_counter()

    def keep(progress: FitProgress) -> None:
        points.append((time.perf_counter() - began, progress.iteration, _point(progress)))

    with suppress(Diverged):  # an earlier iterate may be within the limit
        fit_ours(rows, recipe, schedule, epochs, batch_size, keep)
    return next(((taken, n) for taken, n, point in points if rows.objective(point) <= limit), None)


def _stopping(rows: TrainingRows, recipe: str, schedule: str, epochs: int, batch_size: int, stop: int) -> Fit:
    return lambda: fit_ours(rows, recipe, schedule, epochs, batch_size, lambda progress: progress.iteration >= stop)


def fit_ours(
    rows: TrainingRows,
    recipe: str,
    schedule: str,
    epochs: int,
    batch_size: int,
    callback: Callable[[FitProgress], bool | None] = lambda progress: None,
) -> Point:
    """Our estimator, with its automatic step size."""
    options: dict[str, Any] = {
        "alpha": rows.alpha,
        "max_iter": epochs,
        "learning_rate": schedule,
        "batch_size": batch_size,
        "recipe": recipe,
        "random_state": 0,
        "callbacks": [callback],
    }
    model: CASGDClassifier | CASGDRegressor
    model = CASGDRegressor("poisson", **options) if rows.family.name == "poisson" else CASGDClassifier(**options)
    with rivals.unconverged_is_fine():
        model.fit(rows.X, rows.y, sample_weight=rows.w)
    return np.asarray(model.coef_, np.float64).reshape(-1), float(np.asarray(model.intercept_).reshape(-1)[0])


def find_sgd(rows: TrainingRows, limit: float) -> Choice | None:
    """The schedule that reaches the limit first, after 1, 2, 3, … epochs."""
    best, choice = math.inf, None
    for schedule in rivals.SCHEDULES:
        for epochs in EPOCHS:
            began = time.perf_counter()
            point = rivals.sgd_classifier(rows, schedule, epochs)
            taken = time.perf_counter() - began
            if taken >= best:
                break
            if rows.objective(point) <= limit:
                best, choice = taken, Choice(f"{schedule} max_iter={epochs}", _sgd(rows, schedule, epochs))
                break
    return choice


def _sgd(rows: TrainingRows, schedule: str, epochs: int) -> Fit:
    return lambda: rivals.sgd_classifier(rows, schedule, epochs)


def find_lbfgs(rows: TrainingRows, limit: float) -> Choice | None:
    """The least of the tried `max_iter` that reaches the limit."""
    for n in ITERATIONS:
        if rows.objective(rivals.lbfgs(rows, n)) <= limit:
            return Choice(f"max_iter={n}", lambda n=n: rivals.lbfgs(rows, n))  # type: ignore[misc]
    return None


def _point(progress: FitProgress) -> Point:
    state = progress.state
    return state.coef.double().numpy().reshape(-1).copy(), float(state.intercept[0])


def _run(label: str, choice: Choice | None, rows: TrainingRows, limit: float) -> tuple[float, float]:
    if choice is None:
        raise ValueError(f"{label} does not reach the objective")
    began = time.perf_counter()
    point = choice.fit()
    taken, reached = time.perf_counter() - began, rows.objective(point)
    if not reached <= limit:
        raise WrongResult(f"{label}: {choice.config} reached {reached:.6g}, which is above {limit:.6g}")
    return taken, reached


def _row(
    problem: str,
    rows: TrainingRows,
    label: str,
    choice: Choice | None,
    seconds: dict[str, list[float]],
    points: dict[str, float],
    best: float,
) -> TimeRow:
    ours, taken = _fastest(seconds), seconds.get(label)
    return TimeRow(
        problem=problem,
        family=rows.family.name,
        n_rows=len(rows.y),
        n_features=int(rows.X.shape[1]),
        contender=label,
        config=choice.config if choice else None,
        seconds=Spread.of(taken) if taken else None,
        over_ours=Spread.of([t / o for t, o in zip(taken, ours, strict=True)]) if taken and ours else None,
        objective=points.get(label),
        optimum=best,
    )


def _fastest(seconds: dict[str, list[float]]) -> list[float]:
    """Seconds per round of our contender with the least median; empty if none of ours reached the objective."""
    ours = [taken for label, taken in seconds.items() if label.startswith("laconic")]
    return min(ours, key=median) if ours else []


def losses(document: Row) -> list[str]:
    """Sentences on contenders that are faster than ours, and on those that do not reach the objective."""
    rows = rows_in(document)
    faster = [text_in(row, "contender") for row in rows if (number_in(row, "over_ours") or 1.0) < 1]
    unable = [text_in(row, "contender") for row in rows if number_in(row, "seconds") is None]
    found = [f"{name} is faster than ours." for name in faster]
    found += [f"{name} does not come within 1 % of the optimum." for name in unable]
    return ["Where we lose:" + ("" if found else " nowhere in this run."), *found]


def _file(document: Row) -> list[str]:
    """A sentence on the LIBSVM file."""
    file = document.get("file") or {}
    size, speed, ratio = (number_in(file, key) for key in ("n_bytes", "mb_per_second", "ratio_to_sklearn"))
    if size is None:
        return []
    peak = number_in(file, "peak_bytes")
    memory = "" if peak is None else f"; converted in {shown(peak, 'B')} of memory"
    return [
        f"LIBSVM, {shown(size, 'B')}: read at {shown(speed)} MB/s, {shown(ratio)} times scikit-learn's speed{memory}."
    ]


def _optimum(document: Row) -> list[str]:
    optimum = next((number_in(row, "optimum") for row in rows_in(document)), None)
    return [f"The optimum: {shown(optimum, digits=6)}."]


PRESENTATION = Presentation(
    lambda document: f"Time to a good model: {problems(document)}",
    [
        RowTable(
            lambda rows: f"{text_in(rows[0], 'problem')}: to within 1 % of the optimum",
            [
                text("contender", "contender"),
                text("fastest configuration", "config"),
                Column("s", "seconds"),
                Column("÷ ours", "over_ours"),
                Column("objective", "objective", digits=5),
                Column("above the optimum", "above_optimum", "%"),
            ],
            "s: all of fit, float32 rows in memory. ÷ ours: over the faster of laconic's. Each contender runs the best "
            "of the settings tried.",
        ),
        Text(_optimum),
        Text(_file),
        Text(losses),
        BarChart("Seconds to within 1 % of the optimum", "seconds", "s"),
        BarChart("Times as long as ours", "over_ours", "×", reference=1.0),
    ],
)


SUITE = Suite(
    "glm-time-to",
    TimeToOptions,
    race,
    """Seconds to within 1 % of the optimum in one process, beside scikit-learn; and reading LIBSVM files.

    Every contender runs the fastest of its configurations that get there.
    """,
)
