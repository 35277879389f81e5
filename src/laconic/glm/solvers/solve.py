"""The loop of a fit: epoch after epoch, until the loss no longer falls."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from laconic.errors import Option
from laconic.exchange import Communicator
from laconic.glm.problem import Problem
from laconic.glm.settings import SHRINK, SMALLEST_FACTOR, Settings
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.device import DeviceSolver, device_solver
from laconic.glm.solvers.state import (
    Callback,
    Diverged,
    Outcome,
    Progress,
    Segment,
    Solution,
    State,
    TrainingLog,
    segment,
)
from laconic.glm.solvers.wire import Wire
from laconic.kernels import Stream

SEGMENTS = 16
"""Segments per epoch, about; callbacks are called after each."""
LEAST_ON_DEVICE = 8192
"""The least iterations per segment on a GPU, since the host waits for it after each segment."""

Advance = Callable[[Segment], float]
"""Steps through a segment, changing the state's weights; returns Σ w φ."""


def begin(problem: Problem, settings: Settings) -> State:
    """The state before the first iteration: no weights, and the intercept of a model without features."""
    state = State.zeros(
        problem.n_outputs,
        problem.columns.n,
        settings.precision.carrier,
        momentum=settings.momentum > 0,
        average=settings.average is not None,
        fitted=settings.fit_intercept,
        device=problem.columns.device,
    )
    if settings.fit_intercept:
        own = state.weights.intercept
        own.value.copy_(_start(problem))
        own.average.copy_(own.value)
    return state


def _start(problem: Problem) -> torch.Tensor:
    rows = slice(None) if problem.rows is None else torch.from_numpy(problem.rows)
    y, w = problem.y[rows].double(), problem.weights_as(torch.float64)[rows]
    if float(w.sum()) == 0:
        raise ValueError("all sample weights are zero")
    offset = None if problem.offset is None else problem.offset_as(torch.float64)[rows]
    return problem.family.null(y, w, offset)


def solve(
    problem: Problem,
    settings: Settings,
    *,
    comm: Communicator | None = None,
    state: State | None = None,
    callbacks: Sequence[Callback] = (),
) -> Solution:
    """Minimise the problem; every rank of `comm` calls this with its own columns and all else the same.

    comm       the ranks; by default those of the default process group, or this process alone
    state      to go on from, changed in place; None to begin

    >>> import numpy as np
    >>> from laconic.glm import Constant, DenseColumns, Gaussian, Penalty, Problem, Settings, solve
    >>> A = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> problem = Problem(DenseColumns(A), Gaussian(), A @ torch.tensor([1.0, 2.0, 3.0]))
    >>> solve(problem, Settings(schedule=Constant(0.1), penalty=Penalty(0.0), tol=1e-9)).state.coef.round(decimals=3)
    tensor([[1., 2., 3.]])
    """
    wire = Wire(
        Communicator.over() if comm is None else comm, settings.precision.gram_wire, Stream(settings.sampling.seed)
    )
    state = begin(problem, settings) if state is None else state
    problem = problem.cast(settings.precision.carrier)
    advance, fused = advance_for(problem, settings, state, wire)
    log = TrainingLog(state, wire)
    outcome = Outcome.MAX_ITER
    while state.epoch < settings.max_iter:
        stop = _epoch(problem, settings, state, wire, advance, callbacks, log)
        if stop is not None:
            outcome = stop
            break
    return Solution(state, outcome, state.history, wire.accounting, wire.messages, _ran(problem, settings, wire, fused))


def advance_for(problem: Problem, settings: Settings, state: State, wire: Wire) -> tuple[Advance, DeviceSolver | None]:
    """What steps through a segment, and the fused kernels of a GPU if it is these."""
    fused = device_solver(problem, settings, state, wire) if problem.columns.device.type == "cuda" else None
    run = ca_sgd.advance if settings.solver == "ca_sgd" else sgd.advance
    return partial(run, problem, settings, state, wire=wire) if fused is None else fused.advance, fused


def _epoch(
    problem: Problem,
    settings: Settings,
    state: State,
    wire: Wire,
    advance: Advance,
    callbacks: Sequence[Callback],
    log: TrainingLog,
) -> Outcome | None:
    order = settings.sampling.epoch(problem.n_rows, state.epoch)
    n_batches = settings.sampling.n_batches(problem.n_rows)
    least = LEAST_ON_DEVICE if problem.columns.device.type == "cuda" else 1
    step = max(1, round(max(n_batches / SEGMENTS, least) / settings.step)) * settings.step
    while True:
        part = segment(problem, settings, state, order, step)
        state.epoch_loss += advance(part)
        state.epoch_weight += _total_weight(problem, part)
        state.iteration += part.n_batches
        state.batch += part.n_batches
        log.update()
        loss = state.epoch_loss / max(state.epoch_weight, 1e-300)
        if not math.isfinite(loss):
            raise _diverged(settings, state, loss)
        progress = Progress(state.epoch, state.iteration, state.batch / n_batches, loss, state)
        stop = None
        if state.batch == n_batches:
            stop = _end_epoch(problem, settings, state, wire, loss, log)
            state.epoch, state.batch, state.epoch_loss, state.epoch_weight = state.epoch + 1, 0, 0.0, 0.0
        answers = [callback(progress) for callback in callbacks]
        if any(answers):
            return Outcome.STOPPED
        if state.batch == 0:
            return stop


def _total_weight(problem: Problem, part: Segment) -> float:
    if problem.weights is None:
        return float(len(part.rows))
    return float(problem.weights[torch.from_numpy(part.rows)].sum(dtype=torch.float64))


def _end_epoch(
    problem: Problem, settings: Settings, state: State, wire: Wire, loss: float, log: TrainingLog
) -> Outcome | None:
    """Record the epoch, shrink the step of `Adaptive`, and return why to stop, or None to go on."""
    row = {"epoch": state.epoch, "iteration": state.iteration, "loss": loss}
    penalty = wire.all_reduce(
        state.weights.x.new_tensor([settings.penalty.value(state.weights.x)], dtype=torch.float64)
    )
    row["objective"] = state.epoch_loss / problem.n_rows + float(penalty)
    judged = row["objective"]
    if problem.validation is not None:
        judged = row["validation_loss"] = validation_loss(problem, state, wire)
    row["eta"] = float(state.factor * settings.schedule.rates(torch.tensor([state.iteration - 1]).numpy())[0])
    log.record(row)
    if settings.tol is None:
        return None
    state.stalls = state.stalls + 1 if judged > state.best_loss - settings.tol else 0
    state.best_loss = min(state.best_loss, judged)
    if state.stalls < settings.n_iter_no_change:
        return None
    if settings.schedule.adapts and state.factor * SHRINK >= SMALLEST_FACTOR:
        state.factor, state.stalls = state.factor * SHRINK, 0
        return None
    return Outcome.CONVERGED


def validation_loss(problem: Problem, state: State, wire: Wire) -> float:
    """Mean loss of the rows held back."""
    if problem.validation is None:
        raise ValueError("no rows were held back")
    rows = torch.from_numpy(problem.validation)
    z = wire.all_reduce(problem.columns.margins(state.coef, problem.validation)) + state.intercept
    if problem.offset is not None:
        z = z + problem.offset_as(z.dtype)[rows]
    w = problem.weights_as(torch.float64)[rows]
    return float((w * problem.family.loss(z.double(), problem.y[rows].double())).sum() / w.sum())


def _diverged(settings: Settings, state: State, loss: float) -> Diverged:
    eta0, momentum = settings.schedule.eta0, settings.momentum
    return Diverged(
        f"the loss became {loss} near iteration {state.iteration} of epoch {state.epoch + 1}: lower ",
        Option("eta0"),
        f" (it is {eta0:g}; try {eta0 / 10:g})",
        *((" or ", Option("momentum"), f" (it is {momentum:g})") if momentum else ()),
        ", or standardise the columns of X",
    )


def _ran(problem: Problem, settings: Settings, wire: Wire, fused: DeviceSolver | None) -> str:
    if fused is not None:
        return f"{fused.name}, {problem.columns.device}, {settings.precision.short_name()}"
    if settings.solver == "sgd":
        how = "compiled" if sgd.is_compiled(problem, settings, wire) else "torch"
        return f"sgd, {how}, {settings.precision.short_name()}"
    how = "compiled recurrence" if ca_sgd.is_compiled(problem, settings) else "torch recurrence"
    return f"ca_sgd s={settings.s}, {how}, {settings.precision.short_name()}"
