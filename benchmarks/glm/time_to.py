"""The race to an objective in one process: all of `fit`, ours and scikit-learn's, on float32 rows."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.glm import rivals
from benchmarks.glm.objective import COVTYPE_ROWS, Point, TrainingRows, covtype_like
from laconic.bench.checks import WrongResult
from laconic.bench.glm.data import Given, load
from laconic.bench.protocol import Spread
from laconic.exchange import Communicator
from laconic.glm import Diverged, Progress
from laconic.glm.estimators import CASGDClassifier, CASGDRegressor
from laconic.measure.solvers import ALPHA

WITHIN = 0.01
"""Of the optimum, relatively."""
EPOCHS = (1, 2, 3, 4, 5, 6, 7, 8)
ITERATIONS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
SCHEDULES = (("adaptive", 8), ("cosine", 1), ("cosine", 2), ("cosine", 3), ("cosine", 5))
"""Ours, with the epochs that they are told to run."""
RECIPES = ("fp32", "C")
WARMUP_ROWS = 2000

Fit = Callable[[], Point]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """A contender's best way to the objective.

    config  in words
    fit     runs it, and ends within reach of the optimum
    """

    config: str
    fit: Fit


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One contender on the way to an objective within 1 % of the optimum.

    contender   "laconic fp32", "laconic C", "SGDClassifier", "LogisticRegression(lbfgs)", "PoissonRegressor(lbfgs)"
    config      the best of those tried; None where none got there
    seconds     of all of `fit` with it: for ours, stopped by a callback as soon as it was there
    over_ours   those over the seconds of the faster of ours, round by round
    objective   reached, and
    optimum     the least there is
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
    """What to run.

    file        the rows; None for some of the shape of the forest cover data
    n_rows      of those
    batch_size  of ours
    repeats     timed rounds
    file_bytes  size of the LIBSVM file that is read besides
    """

    file: Given | None = None
    n_rows: int = COVTYPE_ROWS
    batch_size: int = 32
    repeats: int = 5
    file_bytes: int = 64_000_000

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar: the rows, the optimum, a search for each contender, rounds, and the file's three."""
        return 1 + 1 + len(RECIPES) + 2 + self.repeats + 3


def race(options: TimeToOptions, tell: Tell = lambda label: None) -> list[TimeRow]:
    """Read or make the rows, and let everyone run."""
    tell("the rows")
    file = options.file
    problem = load(file, Communicator())[0] if file else covtype_like(options.n_rows)
    name, rows = file.name if file else "covtype-like", TrainingRows.of(problem, ALPHA)
    return time_to_rows(name, rows, batch_size=options.batch_size, repeats=options.repeats, tell=tell)


def time_to_rows(
    problem: str, rows: TrainingRows, *, batch_size: int = 32, repeats: int = 5, tell: Tell = lambda label: None
) -> list[TimeRow]:
    """Find each contender's best way, then time all of them in turn, `repeats` times around."""
    tell("the optimum")
    best = rivals.optimum(rows)
    limit = best + WITHIN * abs(best)
    chosen: dict[str, Choice | None] = {}
    for label, find in searches(rows, batch_size).items():
        tell(f"trying {label}")
        chosen[label] = find(limit)
    seconds: dict[str, list[float]] = {label: [] for label, choice in chosen.items() if choice}
    points: dict[str, float] = {}
    for turn in range(repeats):
        tell(f"round {turn + 1} of {repeats}")
        for label in seconds:
            taken, points[label] = _run(label, chosen[label], rows, limit)
            seconds[label].append(taken)
    return [_row(problem, rows, label, choice, seconds, points, best) for label, choice in chosen.items()]


def searches(rows: TrainingRows, batch_size: int) -> dict[str, Callable[[float], Choice | None]]:
    """By contender: what finds its best way to an objective."""

    def ours(recipe: str) -> Callable[[float], Choice | None]:
        return lambda limit: find_ours(rows, recipe, batch_size, limit)

    found: dict[str, Callable[[float], Choice | None]] = {f"laconic {recipe}": ours(recipe) for recipe in RECIPES}
    if rows.family.name == "bernoulli":
        found["SGDClassifier"] = lambda limit: find_sgd(rows, limit)
    found[rivals.lbfgs_name(rows)] = lambda limit: find_lbfgs(rows, limit)
    return found


def find_ours(rows: TrainingRows, recipe: str, batch_size: int, limit: float) -> Choice | None:
    """The schedule that is first there; kernels are compiled on a few rows before."""
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
    """Seconds and iterations of the first iterate within the limit; objectives are looked at after the fit."""
    seen: list[tuple[float, int, Point]] = []
    began = time.perf_counter()

    def keep(progress: Progress) -> None:
        seen.append((time.perf_counter() - began, progress.iteration, _point(progress)))

    with suppress(Diverged):  # what came before may have been good enough
        fit_ours(rows, recipe, schedule, epochs, batch_size, keep)
    return next(((taken, n) for taken, n, point in seen if rows.objective(point) <= limit), None)


def _stopping(rows: TrainingRows, recipe: str, schedule: str, epochs: int, batch_size: int, stop: int) -> Fit:
    return lambda: fit_ours(rows, recipe, schedule, epochs, batch_size, lambda progress: progress.iteration >= stop)


def fit_ours(
    rows: TrainingRows,
    recipe: str,
    schedule: str,
    epochs: int,
    batch_size: int,
    callback: Callable[[Progress], bool | None] = lambda progress: None,
) -> Point:
    """Our estimator, with the step size that it finds itself."""
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
    """The schedule that is first there, after 1, 2, 3, … epochs."""
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
    """The fewest iterations of those tried."""
    for n in ITERATIONS:
        if rows.objective(rivals.lbfgs(rows, n)) <= limit:
            return Choice(f"max_iter={n}", lambda n=n: rivals.lbfgs(rows, n))  # type: ignore[misc]
    return None


def _point(progress: Progress) -> Point:
    state = progress.state
    return state.coef.double().numpy().reshape(-1).copy(), float(state.intercept[0])


def _run(label: str, choice: Choice | None, rows: TrainingRows, limit: float) -> tuple[float, float]:
    if choice is None:
        raise ValueError(f"{label} has no way to the objective")
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
    """Round by round, the seconds of that one of ours whose median is least; empty where none of ours got there."""
    ours = [taken for label, taken in seconds.items() if label.startswith("laconic")]
    return min(ours, key=median) if ours else []
