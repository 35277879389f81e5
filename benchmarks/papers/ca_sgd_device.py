"""The suite `papers-ca-sgd` on one GPU: ours beside SGD in float32, eager and in CUDA graphs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks.glm.device import Ours, device_problem, loss_of, ours
from benchmarks.glm.device_rivals import EagerSGD, GraphedSGD, Rival
from benchmarks.papers.ca_sgd import CASGDOptions, CASGDRow, curve, gaps, source_of
from laconic.bench.glm.runs import SEED, Given, load, rounds_of
from laconic.bench.protocol import Spread, WrongResult, speedup
from laconic.bench.suite import Progress
from laconic.data import BadTable
from laconic.exchange import Communicator
from laconic.glm import DenseColumns, Problem, auto_eta0, begin
from laconic.measure.solvers import Contender, Copies

EAGER_MOST = 256
"""Most iterations of a round of eager SGD, which is only timed."""
LARGEST_GAP = 1e-3
"""Allowed relative gap of the loss of CA-SGD in float32 to that of SGD in float32."""
Made = tuple[Contender, Callable[[], Rival]]


def device_rows(options: CASGDOptions, progress: Progress) -> list[CASGDRow]:
    """Every contender on every problem; the baseline is SGD in float32, 64 iterations in a CUDA graph."""
    return [row for given in options.problems for row in _Runs(given, options, progress).rows()]


class _Runs:
    """All contenders on one problem."""

    def __init__(self, given: Given, options: CASGDOptions, progress: Progress) -> None:
        self.given, self.options, self.progress = given, options, progress
        progress(f"{given.name}: the rows")
        device = torch.device(options.device)
        self.problem = on_device(given, device)
        self.copies = Copies(self.problem)
        settings = Contender("sgd", "fp32").options(1.0, options.batch_size, SEED)
        self.eta = auto_eta0(self.problem, settings, Communicator())
        self.start = float(begin(self.problem, settings).intercept)
        self.iterations = options.between_points(self.problem.n_rows)
        rounds = rounds_of(self.problem.n_rows, options.points - 1, self.iterations * options.batch_size)
        self.rounds = torch.from_numpy(rounds).long().to(device)

    def rows(self) -> list[CASGDRow]:
        """Rows of all contenders, the baseline first."""
        eager = self._eager_seconds()
        base_losses: list[float] = []
        base_seconds: list[float] = []
        found = []
        for contender, make in self._everyone():
            losses, seconds, label = self._run(contender, make)
            if not base_losses:
                base_losses, base_seconds = losses, seconds
            found.append(self._row(contender, label, losses, seconds, base_losses, base_seconds, eager))
        return found

    def _everyone(self) -> Iterator[Made]:
        yield Contender("torch", "fp32"), partial(self._torch, GraphedSGD)
        for contender in self.options.contenders[1:]:
            yield contender, partial(self._ours, contender)

    def _torch(self, kind: type[EagerSGD]) -> EagerSGD:
        X: torch.Tensor = self.problem.columns.X  # type: ignore[attr-defined]
        given = (self.problem.y, self.problem.family.name, self.options.batch_size, self.eta, self.start)
        return kind(X, *given)

    def _ours(self, contender: Contender) -> Ours:
        return ours(contender, self.copies, self.options.batch_size, self.eta)

    def _eager_seconds(self) -> float:
        self.progress(f"{self.given.name}: eager")
        rival, size = self._torch(EagerSGD), self.options.batch_size
        n = min(EAGER_MOST, self.iterations)
        return Spread.of([_seconds(rival, rows[: n * size]) / n for rows in self.rounds][1:]).median

    def _run(self, contender: Contender, make: Callable[[], Rival]) -> tuple[list[float], list[float], str]:
        """Losses at every point, seconds of an iteration of every round, and the label."""
        self.progress(f"{self.given.name}: {contender.label}")
        make().run(self.rounds[0])  # compiles the kernels
        rival = make()
        losses, seconds = [loss_of(rival, self.problem)], []
        for rows in self.rounds:
            seconds.append(_seconds(rival, rows) / self.iterations)
            losses.append(loss_of(rival, self.problem))
        return losses, seconds, rival.label

    def _row(
        self,
        contender: Contender,
        label: str,
        losses: list[float],
        seconds: list[float],
        base: list[float],
        base_seconds: list[float],
        eager: float,
    ) -> CASGDRow:
        o, columns = self.options, self.problem.columns
        found = gaps(losses, base)
        gap = found["largest_gap"]
        if contender.recipe == "fp32" and (gap is None or abs(gap) > LARGEST_GAP):
            raise WrongResult(f"{self.given.name}, {label}: the loss is not that of SGD in float32, but {gap} away")
        spread = Spread.of(seconds)
        return CASGDRow(
            problem=self.given.name,
            contender=label,
            baseline=losses is base,
            source=source_of(self.given),
            family=self.problem.family.name,
            n_rows=columns.m,
            n_features=columns.n,
            solver=contender.solver,
            recipe=contender.recipe,
            s=contender.s,
            batch_size=o.batch_size,
            ranks=1,
            ranks_per_core=0.0,
            rate=None,
            device=o.device,
            n_iterations=self.iterations * (o.points - 1),
            n_epochs=self.iterations * (o.points - 1) * o.batch_size / columns.m,
            seconds=spread,
            speedup_over_fp32=speedup(base_seconds, seconds),
            speedup_over_eager=eager / spread.median,
            messages=0.0,
            bytes_sent=0.0,
            difference=None,
            curve=curve(self.iterations, losses, seconds, 0.0),
            **found,
        )


def on_device(given: Given, device: torch.device) -> Problem:
    """The rows in float32 on the device: generated there, or read and copied there."""
    if given.source is None:
        return device_problem(given.name, given.scale, device, SEED)
    problem = load(given, Communicator())
    if not isinstance(problem.columns, DenseColumns):
        raise BadTable(f"{source_of(given)}: sparse rows do not go to the GPU; give the LIBSVM file")
    return replace(problem, columns=DenseColumns(problem.columns.X.float().to(device)), y=problem.y.to(device))


def _seconds(rival: Rival, rows: torch.Tensor) -> float:
    torch.cuda.synchronize(rows.device)
    began = time.perf_counter()
    rival.run(rows)
    torch.cuda.synchronize(rows.device)
    return time.perf_counter() - began
