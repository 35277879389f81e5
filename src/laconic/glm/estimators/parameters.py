"""From an estimator's parameters to the solver's settings; a parameter that makes no sense is refused by name."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from laconic.checks import check_int
from laconic.exchange import Communicator
from laconic.glm.auto_recipe import is_auto, tolerance_of
from laconic.glm.automatic import auto_eta0, auto_s, pays_in_blocks
from laconic.glm.penalty import Penalty
from laconic.glm.precision import RECIPES, Precision
from laconic.glm.problem import Problem
from laconic.glm.sampling import Sampling
from laconic.glm.schedule import SCHEDULES, schedule
from laconic.glm.solvers import Settings
from laconic.glm.solvers.settings import GRADIENTS, SOLVERS

_CHOICES: dict[str, tuple[str, ...]] = {
    "solver": ("auto", *SOLVERS),
    "learning_rate": SCHEDULES,
    "gradient": GRADIENTS,
    "sampling": ("shuffle", "cyclic", "replacement"),
}
_FLAGS = ("fit_intercept", "shuffle", "early_stopping", "warm_start")


@dataclass(frozen=True, slots=True)
class Run:
    """How this call differs from the parameters.

    max_iter  epochs in all, those of former calls included
    tol       as in `Settings`
    eta0      a step size that was found before; None to find one where the parameter is "auto"
    seed      the same on every rank
    """

    max_iter: int
    tol: float | None
    eta0: float | None
    seed: int


def check_parameters(estimator: Any, losses: Sequence[str]) -> None:
    """Raise `ValueError` or `TypeError` for the first parameter that is not what it can be."""
    _choose("loss", estimator.loss, losses)
    for name, choices in _CHOICES.items():
        _choose(name, getattr(estimator, name), choices)
    for name in _FLAGS:
        if getattr(estimator, name) not in (True, False):
            raise ValueError(f"{name} must be True or False, got {getattr(estimator, name)!r}")
    for name in ("max_iter", "batch_size", "n_iter_no_change"):
        check_int(name, getattr(estimator, name), 1)
    _real("alpha", estimator.alpha, 0, math.inf)
    _real("l1_ratio", estimator.l1_ratio, 0, 1)
    _real("momentum", estimator.momentum, 0, 1, last=False)
    _real("power_t", estimator.power_t, -math.inf, math.inf)
    _real("validation_fraction", estimator.validation_fraction, 0, 1, first=False, last=False)
    _device(estimator.device)
    if estimator.tol is not None:
        _real("tol", estimator.tol, -math.inf, math.inf)
    if not (isinstance(estimator.eta0, str) and estimator.eta0 == "auto"):
        _real("eta0", estimator.eta0, 0, math.inf, first=False, hint=', or "auto"')
    if not (isinstance(estimator.s, str) and estimator.s == "auto"):
        check_int("s", estimator.s, 1, hint=', or "auto"')
    if not isinstance(estimator.average, bool):
        check_int("average", estimator.average, 0, hint=", True or False")
    if not isinstance(estimator.callbacks, Iterable) or not all(map(callable, estimator.callbacks)):
        raise TypeError(f"callbacks must be functions in a list, got {estimator.callbacks!r}")
    if not estimator.shuffle and estimator.sampling == "replacement":
        raise ValueError('shuffle=False takes rows as they come; it cannot be combined with sampling="replacement"')
    if not is_auto(estimator.recipe):
        if not isinstance(estimator.recipe, (str, Precision)):
            raise TypeError(f"recipe must be a name or a Precision, got {estimator.recipe!r}")
        if isinstance(estimator.recipe, str) and estimator.recipe not in RECIPES:
            known = ", ".join(map(repr, ("auto", *RECIPES)))
            raise ValueError(f"unknown recipe {estimator.recipe!r}; choose one of {known}, or pass a Precision")
    elif estimator.recipe != "auto":
        tolerance_of(estimator.recipe)


def settings_for(estimator: Any, problem: Problem, precision: Precision, run: Run, comm: Communicator) -> Settings:
    """The solver's settings; what is "auto" is found here."""
    solver = estimator.solver
    if solver == "auto":
        solver = "sgd" if comm.size == 1 and not pays_in_blocks(problem, int(estimator.batch_size)) else "ca_sgd"
    sampling = Sampling(estimator.sampling if estimator.shuffle else "cyclic", int(estimator.batch_size), run.seed)
    eta0 = run.eta0 if estimator.eta0 == "auto" else float(estimator.eta0)
    n_iterations = int(estimator.max_iter) * sampling.n_batches(problem.n_rows)
    on_gpu = problem.columns.device.type == "cuda"
    times = {"power_t": float(estimator.power_t), "n_iterations": n_iterations}
    settings = Settings(
        solver=solver,
        s=auto_s(sampling.batch_size, comm.size, on_gpu=on_gpu) if estimator.s == "auto" else int(estimator.s),
        sampling=sampling,
        schedule=schedule(estimator.learning_rate, eta0 or 1.0, **times),  # type: ignore[arg-type]
        penalty=Penalty(float(estimator.alpha), float(estimator.l1_ratio)),
        fit_intercept=bool(estimator.fit_intercept),
        gradient=estimator.gradient,
        momentum=float(estimator.momentum),
        average=_average(estimator.average, sampling.batch_size),
        precision=precision,
        max_iter=run.max_iter,
        tol=run.tol,
        n_iter_no_change=int(estimator.n_iter_no_change),
    )
    if eta0 is not None:
        return settings
    found = auto_eta0(problem, settings, comm)
    return replace(settings, schedule=replace(settings.schedule, eta0=found))


def _average(average: "bool | int", batch_size: int) -> int | None:
    """Iterations after which averaging begins, from rows seen."""
    if average is False or (not isinstance(average, bool) and average == 0):
        return None
    return 0 if average is True else -(-int(average) // batch_size)


def _device(device: Any) -> None:
    if device is None:
        return
    if not isinstance(device, str):
        raise TypeError(f'device must be a name such as "cuda", or None, got {device!r}')
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(
            f'unknown device {device!r}; choose "cpu", "cuda", a GPU by its number such as "cuda:1", or None'
        )


def _choose(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(map(repr, choices))}")


def _real(
    name: str, value: Any, low: float, high: float, *, first: bool = True, last: bool = True, hint: str = ""
) -> None:
    """A number from low to high; `first` and `last` say whether those are allowed themselves (infinity never is)."""
    good = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    good = good and low <= value <= high and (first or value != low) and (last or value != high)
    if not good:
        between = f"from {low:g}{'' if first else ' (excluded)'} to {high:g}{'' if last else ' (excluded)'}"
        raise ValueError(f"{name} must be a number {between}{hint}; got {value!r}")
