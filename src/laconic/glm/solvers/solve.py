"""The loop of a fit: epoch after epoch, until little is left to gain."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch

from laconic.exchange import Accounting, Communicator
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire, gather_array
from laconic.glm.resolve import resolve
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.conjugate_gradients import newton_step
from laconic.glm.solvers.device import device_solver
from laconic.glm.solvers.newton import confirmed, descend, newton_epoch, relative
from laconic.glm.solvers.objective import ONCE, SAMPLE_FROM, Advance, Objective, Point, Requests, serve_alone
from laconic.glm.solvers.state import (
    Callback,
    Outcome,
    Progress,
    Segment,
    Solution,
    State,
    begin,
    diverged,
    segment,
)
from laconic.glm.solvers.teams import Averaged
from laconic.kernels.glm import Weights
from laconic.kernels.threads import serial_libraries

SEGMENTS = 16
"""Segments per epoch, about; callbacks are called after each."""
LEAST_ON_DEVICE = 8192
"""The least iterations per segment on a GPU, since the host waits for it after each segment."""
ONE_THREAD = 2**22
"""Values of X times outputs up to which a fit on a CPU does with one thread."""
RISE, SMALL_RISE = 0.5, 0.05
"""A loss diverges that rises by half of what had been gained, and by a twentieth of that of the best constant."""
RETURNS = 20
"""To the best iterate, at most, before a fit gives up."""
SMALL_LOSS = 0.1
"""Share of `tol` up to which a bound on what rounding costs need not be looked into."""
HAND_OVER = 1e-2
"""Newton's steps take over when an epoch gains less than this share of what was gained."""
SAMPLE, SAMPLED_ROWS, SAMPLED_VALUES = 16, 64, 2**24
"""A large X is first fitted to a 16th of its rows, if these are 64 per weight; to fewer where they have more values."""
SAMPLE_EPOCHS, SAMPLE_TOL = 10, 1e-4
"""Of the fit to a part of the rows that Newton's method begins with."""
PATIENCE = 32
"""Epochs of Newton's method after which Hessians are factorised that are dear to form, and one is formed every step;
fewer where these no longer gain anything."""
IDLE, PACE = 8, 1e-2
"""Newton's method ends where so many epochs together gain less than this share of `tol`, of what was gained in all."""
SHRINK = 0.2
"""What the adaptive learning rate multiplies η by when the loss no longer falls."""
SMALLEST_FACTOR = 1e-4
"""Where it gives up shrinking."""
SMALLER_STEP = 0.25
"""What the step is multiplied by when the loss has risen."""

Order = Callable[[int], np.ndarray]
"""The order of the rows in an epoch."""


class Ahead:
    """Orders of the rows, each drawn by a thread while a GPU still works on the epoch before."""

    def __init__(self, order: Order) -> None:
        self.order, self.thread = order, ThreadPoolExecutor(1)
        self.next: tuple[int, Future[np.ndarray]] | None = None

    def __call__(self, epoch: int) -> np.ndarray:
        found = self.next[1].result() if self.next and self.next[0] == epoch else self.order(epoch)
        self.next = epoch + 1, self.thread.submit(self.order, epoch + 1)
        return found


def order_of(problem: Problem, options: FitOptions) -> Order:
    """Of a problem's rows, as the options say."""
    order = partial(options.order, problem.n_train)
    return Ahead(order) if problem.columns.device.type == "cuda" else order


@dataclass(frozen=True, slots=True)
class Shared:
    """What a model of a sweep has in common with others, which differ from it in penalty and step size alone.

    objective  of one of them
    order      of the rows in an epoch
    ran        what steps through segments with all of them at once, in words; "" where each steps by itself
    """

    objective: Objective
    order: Order
    ran: str = ""


def solve(
    problem: Problem,
    options: FitOptions,
    *,
    comm: Communicator | None = None,
    state: State | None = None,
    callbacks: Sequence[Callback] = (),
    last_epoch: int | None = None,
    ours: bool | None = None,
) -> Solution:
    """Minimise the problem; every rank of `comm` calls this with its own columns and all else the same.

    options     what is "auto" in them is resolved first
    comm        the ranks, or this rank's team of them (`Communicator.split`); by default those of the default process
                group, or this process alone. With teams, the problem has the rows of this team
    state       to go on from, changed in place; None to begin. Where a fit has ended, no epoch is left to do
    last_epoch  epochs after which to stop, those of `state` included; by default max_iter
    ours        whether the step size is ours to shrink where the loss rises; by default, if eta0 is "auto"

    >>> from laconic.glm import DenseColumns, FitOptions, Gaussian, Problem, solve
    >>> A = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> problem = Problem(DenseColumns(A), Gaussian(), A @ torch.tensor([1.0, 2.0, 3.0]))
    >>> solve(problem, FitOptions(alpha=0.0, tol=1e-9)).state.coef.round(decimals=3)
    tensor([[1., 2., 3.]])
    """
    with few_threads(problem):
        run = Run(problem, options, Communicator.over() if comm is None else comm, state, callbacks, ours)
        return serve_alone(run.solve(last_epoch), run.advance)


def few_threads(problem: Problem) -> AbstractContextManager[object]:
    """One thread, where X is so small that libraries' threads would spend more time on waiting for each other."""
    columns, values = problem.columns, problem.columns.m * problem.columns.row_values
    small = columns.device.type == "cpu" and (values * problem.family.n_outputs < ONE_THREAD or values <= ONCE)
    return serial_libraries() if small else nullcontext()


def advance_for(problem: Problem, options: FitOptions, state: State, wire: Wire) -> tuple[Advance, str]:
    """What steps through a segment, and its name: fused kernels of a GPU, a compiled loop, or plain torch."""
    fused = device_solver(problem, options, state, wire)
    if fused is not None:
        return fused[0], f"{fused[1]}, {problem.columns.device}"
    if options.solver == "sgd" and sgd.is_compiled(problem, options, wire):
        return partial(sgd.advance_compiled, problem, options, state.weights), "sgd, compiled"
    how = "compiled" if ca_sgd.is_compiled(problem, options) else "torch"
    name = "sgd, torch" if options.solver == "sgd" else f"ca_sgd s={options.s}, {how} recurrence"
    together = torch_steps(problem, [options], state.weights, wire, state)
    return lambda segment: float(together([segment])[0]), name


def torch_steps(
    problem: Problem, models: Sequence[FitOptions], weights: Weights, wire: Wire, state: State
) -> Callable[[Sequence[Segment]], np.ndarray]:
    """What steps through segments with one or several models; `state` is that of one of them."""
    if models[0].solver == "ca_sgd":
        return lambda segments: ca_sgd.advance(problem, models, weights, wire, segments, state.iteration)
    return partial(sgd.advance, problem, models, weights, wire)


def _grid(options: FitOptions, comm: Communicator) -> str:
    """The teams of ranks, and how they average."""
    often = f"averaged every {int(options.average_every) * options.step} iterations in {options.average_codec}"
    return f"; {comm.peers.size} teams of {comm.size} rank{'s' * (comm.size > 1)}, {often}"


class Run:
    """A fit on its way; arguments as in `solve`.

    shared     what it has in common with other models of a sweep
    objective  F, by passes over all rows, and
    hessian    of a part of them, which Newton's method begins with
    point      where Newton's method stands
    advance    steps through a segment, unless models of a sweep do so at once, and
    ran        its name
    newton     whether Newton's steps have taken over
    gap        the relative decrement that was measured last
    before     when it would have begun had it not been stopped in between, and bytes and messages sent before this run
    """

    def __init__(
        self,
        problem: Problem,
        options: FitOptions,
        comm: Communicator,
        state: State | None = None,
        callbacks: Sequence[Callback] = (),
        ours: bool | None = None,
        shared: Shared | None = None,
    ) -> None:
        comm = comm if comm.peers.size > 1 else comm.split(options.teams)
        self.ours = options.eta0 == AUTO if ours is None else ours
        self.options = options = resolve(options, problem, comm)
        self.state = state = begin(problem, options) if state is None else state
        self.wire = wire = Wire(comm, options.precision.gram_wire, options.seed)
        least = int(min(gather_array(np.array(problem.n_train), comm.peers))) if comm.peers.size > 1 else None
        own = shared is None
        if shared is None:
            objective = Objective(problem, options, wire, narrow=options.solver == "newton")
            shared = Shared(objective, order_of(problem, options))
        self.objective = shared.objective if own else shared.objective.penalised(options, wire)
        wire.accounting, wire.messages = Accounting(), 0  # a fit that was stopped counts as one that was not
        self.before = time.perf_counter() - state.seconds, state.bytes_sent, state.messages
        exact = options.solver == "newton" and least is None  # which has its own copy of targets, in float64
        self.problem = problem if exact else problem.cast(options.precision.carrier, least)
        self.callbacks = callbacks
        self.order = shared.order
        self.hessian: torch.Tensor | None = None
        self.point: Point | None = None
        self.gap: float | None = None
        self.newton, self.ran = options.solver == "newton" or state.polishing, shared.ran
        self.advance: Advance | None = None
        if not self.ran and options.solver != "newton":
            self.advance, self.ran = advance_for(self.problem, options, state, wire)
        self.averaged = Averaged(options, state, wire) if comm.peers.size > 1 and options.solver != "newton" else None

    def solve(self, last_epoch: int | None = None) -> Requests[Solution]:
        """All epochs up to the last."""
        options, state, comm = self.options, self.state, self.wire.comm
        last, outcome = options.max_iter if last_epoch is None else last_epoch, None
        state.at_best, ended = False, state.ended
        if ended:
            outcome = Outcome[ended]
        elif options.solver == "newton":
            yield from self.start_newton()
        while outcome is None and state.epoch < last:
            outcome = yield from (self.newton_epoch() if self.newton else self.epoch())
        outcome = yield from self.end(outcome or Outcome.MAX_ITER)
        ran = f"{self.ran}, {options.precision.short_name()}{_grid(options, comm) if comm.peers.size > 1 else ''}"
        ran = "nothing: with these options no epoch is left to do" if ended else ran
        return Solution(state, outcome, state.history, self.wire.accounting, self.wire.messages, ran, self.gap)

    def epoch(self) -> Requests[Outcome | None]:
        """What is left of an epoch, segment by segment; returns why to stop, or None to go on."""
        problem, options, state = self.problem, self.options, self.state
        order = self.order(state.epoch)[: problem.n_rows]
        n_batches, block = options.n_batches(problem.n_rows), options.step
        least = LEAST_ON_DEVICE if problem.columns.device.type == "cuda" else 1
        if self.wire.comm.peers.size > 1:  # every segment ends with an average, so that all teams stand alike there
            block *= int(options.average_every)
        step = max(1, round(max(n_batches / SEGMENTS, least) / block)) * block
        while True:
            loss = yield from self.step(segment(problem, options, state, order, step))
            if not math.isfinite(loss):
                if not self.go_back():
                    raise diverged(options, state, loss)
                continue
            progress = Progress(state.epoch, state.iteration, state.batch / n_batches, loss, state)
            outcome = None
            if state.batch == n_batches:
                outcome = yield from self.end_epoch(loss)
                state.epoch, state.batch, state.epoch_loss, state.epoch_weight = state.epoch + 1, 0, 0.0, 0.0
                state.ended = "" if outcome is None else outcome.name
            stopped = self.tell(progress)
            if stopped or state.batch == 0:
                return Outcome.STOPPED if stopped else outcome

    def step(self, part: Segment) -> Requests[float]:
        """Step through a segment and count it; returns the mean loss of the epoch so far."""
        state, weights, rows = self.state, self.problem.weights, torch.from_numpy(part.rows)
        loss = (yield part) if self.averaged is None else (yield from self.averaged(part))
        weight = len(rows) if weights is None else float(weights[rows].sum(dtype=torch.float64))
        loss, weight = self.wire.sum_over_teams(loss, weight)
        state.epoch_loss += loss
        state.epoch_weight += weight
        state.iteration += part.n_batches
        state.batch += part.n_batches
        self.count()
        return state.epoch_loss / max(state.epoch_weight, 1e-300)

    def go_back(self) -> bool:
        """The loss has risen: begin an epoch at the best iterate, with a smaller step; False where that is in vain."""
        state = self.state
        if not self.ours or state.returns >= RETURNS:
            return False
        state.go_back()
        state.returns, state.factor, state.stalls = state.returns + 1, state.factor * SMALLER_STEP, 0
        state.batch, state.epoch_loss, state.epoch_weight = 0, 0.0, 0.0
        return True

    def forget(self) -> None:
        """Keep of a fit that has ended what others of a path begin with: where it ended, and F there."""
        if self.point is not None:
            none = self.point.z.new_empty(0)
            self.point = replace(self.point, theta=none, z=none, slope=none, hessian=None)
        self.objective.spectrum = None

    def count(self) -> None:
        """Write the totals of the fit to its state, those parts included that ran before a stop."""
        began, n_bytes, n_messages = self.before
        self.state.seconds = time.perf_counter() - began
        self.state.bytes_sent = n_bytes + self.wire.accounting.bytes_sent
        self.state.messages = n_messages + self.wire.messages

    def end_epoch(self, loss: float) -> Requests[Outcome | None]:
        """Record the epoch, shrink an adaptive step, and return why to stop, or None to go on."""
        problem, options, state = self.problem, self.options, self.state
        x, t = state.weights.x, np.array([state.iteration - 1])
        penalty = self.wire.all_reduce(x.new_tensor([options.penalty(x)], dtype=torch.float64))
        judged = state.epoch_loss / (problem.n_rows * self.wire.comm.peers.size) + float(penalty)
        row = {"loss": loss, "objective": judged}
        if problem.validation is not None:
            judged = row["validation_loss"] = validation_loss(problem, state, self.wire)
        row["eta"] = float(state.factor * options.rates(t, problem.n_rows)[0])
        self.record(row)
        if options.tol is None:
            return None
        null = self.objective.null
        best = min(state.best_loss, null)
        if self.ours and judged > best + max(RISE * (null - best), SMALL_RISE * abs(null)):
            return None if self.go_back() else Outcome.STALLED
        gained = null - best
        least = (HAND_OVER if options.polish else options.tol) * gained
        state.stalls = state.stalls + 1 if judged > state.best_loss - least else 0
        state.keep(judged, held_back=problem.validation is not None)
        patience = 1 if options.polish else options.n_iter_no_change
        return None if state.stalls < patience else (yield from self.at_rest())

    def record(self, row: dict[str, float]) -> None:
        """Add an epoch to the history."""
        state = self.state
        self.count()
        totals = {"seconds": state.seconds, "bytes_sent": state.bytes_sent, "messages": state.messages}
        state.history.append({"epoch": state.epoch, "iteration": state.iteration} | row | totals)

    def at_rest(self) -> Requests[Outcome | None]:
        """The loss no longer falls: converged, handed over to Newton's method, or on with an adaptive step."""
        options, state = self.options, self.state
        if self.problem.validation is None:
            point = yield from self.objective.at(self.objective.theta(state))
            self.point = point if options.polish else None
            if (yield from self.measure(point)) <= cast(float, options.tol):
                return Outcome.CONVERGED
        if options.polish:
            if not point.value <= self.objective.null:  # a better place to begin with
                self.put_null()
            self.newton = state.polishing = True
            self.ran, state.stalls = f"{self.ran}, then newton", 0
            return None
        smallest = SMALLEST_FACTOR * SMALLER_STEP**state.returns
        if options.learning_rate == "adaptive" and state.factor * SHRINK >= smallest:
            state.factor, state.stalls = state.factor * SHRINK, 0
            return None
        return Outcome.STALLED if self.problem.validation is None else Outcome.HELD_BACK

    def put_null(self) -> None:
        """Go to the null model."""
        self.state.weights.x.zero_()
        self.state.weights.intercept.value.copy_(self.problem.null * self.options.fit_intercept)

    def measure(self, point: Point) -> Requests[float]:
        """The relative Newton decrement at a point."""
        objective, tol = self.objective, cast(float, self.options.tol)
        enough = tol * max(0.0, objective.null - point.value)
        step, gap = yield from newton_step(objective, point, enough, judged=True)
        if gap <= enough:
            _, gap = yield from confirmed(objective, point, step, gap, enough)
        self.gap = relative(objective, point, gap)
        return self.gap

    def rounded(self) -> Requests[float]:
        """What it costs that weights for X as given are rounded to float32, relative to what was gained; 0 where that
        is little by a bound: of an intercept far larger than what margins differ by, or of weights that cancel."""
        F, state, scaling = self.objective, self.state, self.problem.scaling
        coef, b, alone = state.coef, state.intercept, self.wire.comm.whole.size == 1
        if coef.dtype == F.dtype or coef.device.type != "cpu" or not alone:
            return 0.0
        x, shift = coef.double(), b.new_zeros(len(b), dtype=torch.float64)
        if scaling is not None:
            coef, shift = scaling.undo(coef)
            x = coef.double() * scaling.deviation
        b = (b.double() - shift).to(coef.dtype).double()
        size = float(b.square().sum() + x.shape[1] * x.square().sum())
        most = size * torch.finfo(coef.dtype).eps ** 2 * self.problem.family.curvature(F.y, F.w)
        start = self.point or (yield from F.at(F.theta(state)))
        if most <= SMALL_LOSS * cast(float, self.options.tol) * (F.null - start.value):
            return 0.0
        theta = torch.cat([x if F.basis is None else x @ F.basis.onto, (b + shift)[:, None]], 1)
        there = yield from F.at(theta)
        return relative(F, start, there.value - start.value)

    def start_newton(self) -> Requests[None]:
        """Begin with Newton's method: from the solution of a part of the rows, where that is cheap, or where L-BFGS has
        led. A callback cannot stop the latter, so that a fit that was stopped goes on as if it had not been."""
        state, problem, x = self.state, self.objective.problem, self.state.weights.x
        where = "" if problem.columns.device.type == "cpu" else f", {problem.columns.device}"
        how = "Cholesky" if self.objective.direct else "conjugate gradients"
        self.ran = f"newton, {how if self.objective.l1 is None else 'coordinate descent'}{where}"
        m, n_weights = problem.n_train, x.numel() + len(x)
        small = m * problem.columns.n < SAMPLE_FROM or m < SAMPLE * SAMPLED_ROWS * n_weights
        if state.epoch or bool(x.any()):
            return
        if small and self.objective.descends:

            def tell(point: Point, share: float) -> None:
                self.tell(Progress(0, 0, share, point.loss, state))

            self.point = yield from descend(self.objective, self.objective.theta(state), tell)
            self.objective.put(self.point.theta, state)
        if small:
            return
        sample, gap = self.objective.sample, math.inf
        if not sample:
            most = max(SAMPLED_ROWS * n_weights, SAMPLED_VALUES // problem.columns.n)
            kept = np.flatnonzero(np.random.default_rng(self.options.seed).random(m) < min(1 / SAMPLE, most / m))
            sample.append(Objective(problem.taken(kept), self.options, self.wire))
        few = sample[0].penalised(self.options, self.wire)
        point: Point | None = None
        for _ in range(SAMPLE_EPOCHS):
            if gap > SAMPLE_TOL:
                point, gap = yield from newton_epoch(few, state, SAMPLE_TOL, point)
        if few.direct and point is not None:
            point = point if point.hessian is not None else (yield from few.at(point.theta, curved=True))
            rare = bool((cast(torch.Tensor, point.hessian).diagonal() <= 0).any())  # columns that are in no row of it
            self.hessian = None if rare else point.hessian
        sample.clear()

    def newton_epoch(self) -> Requests[Outcome | None]:
        """One epoch of Newton's method; returns why to stop, or None to go on. The first may do with fewer rows."""
        state, target = self.state, min(self.options.tol or 0.0, self.objective.target)
        values = [row["objective"] for row in state.history if "gap" in row]
        slow = state.epoch >= PATIENCE or any(self.idles(values[:k]) for k in range(2, len(values) + 1))
        if slow and self.objective.slow_direct:
            self.ran += "" if self.objective.direct else ", then Cholesky"
            self.objective.direct = self.objective.eager = True
        before = state.weights.x.clone(), state.weights.intercept.value.clone()
        point, self.gap = yield from newton_epoch(self.objective, state, target, self.point, self.hessian)
        self.hessian, self.point = None, point
        state.iteration += 1
        self.record({"loss": point.loss, "objective": point.value, "gap": self.gap})
        moved = not (torch.equal(before[0], state.weights.x) and torch.equal(before[1], state.weights.intercept.value))
        outcome = None
        if self.gap <= target:
            outcome = Outcome.CONVERGED
        elif self.objective.direct or not self.objective.slow_direct:  # nothing else is left to try
            gained = bool(self.wire.all_reduce(torch.tensor([float(moved)])))
            outcome = None if gained and not self.idles([*values, point.value]) else Outcome.STALLED
        progress = Progress(state.epoch, state.iteration, 1.0, point.loss, state)
        state.epoch, state.ended = state.epoch + 1, "" if outcome is None else outcome.name
        return Outcome.STOPPED if self.tell(progress) and outcome is None else outcome

    def idles(self, values: Sequence[float]) -> bool:
        """Whether the last of Newton's epochs, which ended at these values of F, gained nothing, or several of them
        nothing worth the time: rounding errors are left, or flat directions that nobody needs."""
        if self.options.tol is None:
            return False
        before, best = min(values[:-IDLE], default=math.inf), min(values)
        return values[-2:-1] == values[-1:] or before - best <= PACE * self.options.tol * (self.objective.null - best)

    def tell(self, progress: Progress) -> bool:
        """Call all callbacks; whether one of them stops the fit."""
        stopped = False
        for callback in self.callbacks:
            stopped = bool(callback(progress)) or stopped
        return stopped

    def end(self, outcome: Outcome) -> Requests[Outcome]:
        """The outcome, once it is known whether the criterion is met; the best iterate is then the result.

        With `tol` None the last iterate is, whatever the loss did.
        """
        options, state = self.options, self.state
        if outcome is Outcome.CONVERGED and options.tol is not None and self.problem.validation is None:
            lost = yield from self.rounded()
            self.gap = max(lost, self.gap or 0.0) if lost else self.gap
            return outcome if lost <= options.tol else Outcome.STALLED
        if options.tol is None or outcome in (Outcome.CONVERGED, Outcome.STOPPED):
            return outcome
        if self.problem.validation is not None:
            state.at_best = options.average_after is None and state.history[-1]["validation_loss"] > state.best_loss
            return outcome
        point = yield from self.objective.at(self.objective.theta(state))
        if not point.value <= self.objective.null and self.newton:
            self.put_null()
            point = yield from self.objective.at(self.objective.theta(state))
        if not self.newton and options.average_after is None:
            state.at_best = True
            best = yield from self.objective.at(self.objective.theta(state))
            state.at_best, point = best.value < point.value, min(best, point, key=lambda one: one.value)
        return Outcome.CONVERGED if (yield from self.measure(point)) <= options.tol else outcome


def validation_loss(problem: Problem, state: State, wire: Wire) -> float:
    """Mean loss of the rows held back."""
    if problem.validation is None:
        raise ValueError("no rows were held back")
    rows = torch.from_numpy(problem.validation)
    z = wire.all_reduce(problem.columns.margins(state.coef, problem.validation)) + state.intercept
    if problem.offset is not None:
        z = z + problem.offset_as(z.dtype)[rows]
    w = problem.weights_as(torch.float64)[rows]
    loss = (w * problem.family.loss(z.double(), problem.y[rows].double())).sum()
    total, weight = wire.sum_over_teams(float(loss), float(w.sum()))
    return total / weight
