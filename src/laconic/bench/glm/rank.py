"""What each rank does in the suite `glm`."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from laconic.bench.exchange.rank import barrier
from laconic.bench.glm.contenders import FP32, Contender
from laconic.bench.glm.data import Given, load, stored
from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.exchange.inbox import Wait
from laconic.glm import Problem, Sampling, Settings, State, auto_eta0, begin
from laconic.glm.ranks import together
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.segment import Segment
from laconic.glm.solvers.wire import Wire

Found = dict[str, Any]
SEED = 0


class SilentCommunicator(Communicator):
    """As many ranks as there are, none of which hears another: sums stay what they were."""

    def all_reduce(self, v: torch.Tensor, *, phase: int = 0) -> Wait:
        return lambda: None


@dataclass(slots=True)
class _Lane:
    """One contender on one rank, and what was seen of it."""

    problem: Problem
    settings: Settings
    state: State
    wire: Wire
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    loss: float = 0.0

    def run(self, rows: np.ndarray) -> None:
        """Go on with batches of these rows."""
        size = self.settings.sampling.batch_size
        n = len(rows) // size
        rates = self.settings.schedule.rates(self.state.iteration + np.arange(n))
        part = Segment(rows, size * np.arange(n + 1), rates, np.empty(0))
        advance = ca_sgd.advance if self.settings.solver == "ca_sgd" else sgd.advance
        self.loss += advance(self.problem, self.settings, self.state, part, self.wire)
        self.state.iteration += n


def glm_on_rank(
    tell: Callable[[str], None],
    *,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    iterations: int,
    repeats: int,
) -> Found:
    """All contenders on each problem; by problem and label the seconds of each round, and what is to be checked.

    What is the user's to mend comes back as {"complaint": …}.
    """
    comm = Communicator.open(n_channels=1)
    everyone = [Contender(**values) for values in contenders]
    found: Found = {}
    try:
        for values in problems:
            given = Given.from_json(values)
            tell(f"{given.name}: reading")
            with together(comm):
                problem, n_features = load(given, comm)
            run = _Run(problem, comm, batch_size, iterations, repeats, _saying(tell, given.name))
            found[given.name] = {
                "family": problem.family.name,
                "n_rows": problem.columns.m,
                "n_features": n_features,
                "lanes": run.all(everyone),
            }
    except LaconicError as error:
        return {"complaint": str(error)}
    finally:
        comm.close()
    return found


def _saying(tell: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda label: tell(f"{name}: {label}")


@dataclass(frozen=True, slots=True)
class _Run:
    """One problem: every contender sees the same batches, one contender after another in each round."""

    problem: Problem
    comm: Communicator
    batch_size: int
    iterations: int
    repeats: int
    tell: Callable[[str], None]

    def all(self, everyone: Sequence[Contender]) -> Found:
        """Round 0 is not timed; after it iterates are compared with those of SGD in float32."""
        lanes = self._lanes(everyone)
        rows = first_rows(
            Sampling(seed=SEED), self.problem.n_rows, (1 + self.repeats) * self.iterations * self.batch_size
        )
        found: Found = {label: {} for label in lanes}
        for turn, part in enumerate(rows.reshape(1 + self.repeats, -1)):
            self.tell(f"round {turn} of {self.repeats}" if turn else "warm-up and checks")
            for lane in lanes.values():
                barrier(self.comm)
                began, cpu = time.perf_counter(), time.process_time()
                lane.run(part)
                if turn:
                    lane.seconds.append((time.perf_counter() - began) / self.iterations)
                    lane.cpu_seconds.append((time.process_time() - cpu) / self.iterations)
            if turn == 0:
                for label, lane in lanes.items():
                    found[label]["checked"] = distance(lane.state, lanes[FP32].state, self.comm.rank)
        for label, lane in lanes.items():
            found[label] |= self._look(lane)
        return found

    def _lanes(self, everyone: Sequence[Contender]) -> dict[str, _Lane]:
        eta0 = auto_eta0(self.problem, everyone[0].settings(1.0, self.batch_size, SEED), self.comm)
        silent = SilentCommunicator(self.comm.rank, self.comm.size, self.comm.channels)
        matrices = {torch.float32: self.problem.columns}
        lanes = {}
        for contender in everyone:
            settings = contender.settings(eta0, self.batch_size, SEED)
            dtype = settings.precision.format("data").storage
            if dtype not in matrices:
                matrices[dtype] = stored(self.problem.columns, dtype)
            problem = replace(self.problem, columns=matrices[dtype]).cast(settings.precision.carrier)
            wire = Wire(silent if contender.silent else self.comm, settings.precision.gram_wire)
            lanes[contender.label] = _Lane(problem, settings, begin(problem, settings), wire)
        return lanes

    def _look(self, lane: _Lane) -> Found:
        n = lane.state.iteration
        bits = lane.state.intercept.double().numpy().tobytes() + np.float64(lane.loss).tobytes()
        return {
            "digest": hashlib.blake2b(bits, digest_size=16).hexdigest(),
            "seconds": lane.seconds,
            "cpu_seconds": lane.cpu_seconds,
            "wire_seconds": lane.wire.accounting.wire_seconds / n,
            "messages": lane.wire.messages / n,
            "bytes_sent": lane.wire.accounting.bytes_sent / n,
            "n_iterations": n,
            "objective": objective(self.problem, lane.settings, lane.state, self.comm),
        }


def first_rows(sampling: Sampling, n_rows: int, n: int) -> np.ndarray:
    """The first n rows of one epoch's order after another.

    >>> first_rows(Sampling("cyclic"), 3, 7).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    """
    return np.concatenate([sampling.epoch(n_rows, epoch) for epoch in range(-(-n // n_rows))])[:n]


def distance(state: State, other: State, rank: int) -> tuple[float, float]:
    """‖x − x'‖² and ‖x'‖² over this rank's columns, the intercept counted on rank 0."""
    ours, theirs = ([s.coef.double().reshape(-1)] + [s.intercept.double()] * (rank == 0) for s in (state, other))
    a, b = torch.cat(ours), torch.cat(theirs)
    return float((a - b).square().sum()), float(b.square().sum())


def objective(problem: Problem, settings: Settings, state: State, comm: Communicator) -> float:
    """(1/m) Σ w · deviance / 2 + penalty, over all rows as they were given: 0 is a perfect fit."""
    wire = Wire(comm)
    z = wire.all_reduce(problem.columns.margins(state.coef.double())) + state.intercept.double()
    if problem.offset is not None:
        z = z + problem.offset_as(torch.float64)
    penalty = wire.all_reduce(z.new_tensor([settings.penalty.value(state.coef)]))
    half = problem.family.deviance(z, problem.y.double()) / 2
    return float((problem.weights_as(torch.float64) * half).mean() + penalty)
