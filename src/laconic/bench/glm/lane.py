"""One contender at work on one rank, and what was seen of it."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from laconic.bench.glm.contenders import FP32, Contender
from laconic.bench.glm.data import Copies
from laconic.bench.ranks import barrier
from laconic.exchange import Communicator
from laconic.glm import Problem, Sampling, Settings, State, auto_eta0, begin
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.segment import segment
from laconic.glm.solvers.wire import Wire
from laconic.measure.solvers import SilentCommunicator

SEED = 0


@dataclass(slots=True)
class Lane:
    """A solver with its rows and its state.

    seconds, cpu_seconds  of an iteration, round by round
    losses                see `objective`, whenever it was looked at
    total                 the sum of losses that the solver itself has met
    checked               see `distance`, after the first round
    """

    problem: Problem
    settings: Settings
    state: State
    wire: Wire
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    total: float = 0.0
    checked: tuple[float, float] = (0.0, 0.0)

    def run(self, rows: np.ndarray) -> None:
        """Go on with batches of these rows, timed."""
        n = len(rows) // self.settings.sampling.batch_size
        advance = ca_sgd.advance if self.settings.solver == "ca_sgd" else sgd.advance
        self.state.batch = 0
        began, cpu = time.perf_counter(), time.process_time()
        part = segment(self.problem, self.settings, self.state, rows, n)
        self.total += advance(self.problem, self.settings, self.state, part, self.wire)
        self.seconds.append((time.perf_counter() - began) / n)
        self.cpu_seconds.append((time.process_time() - cpu) / n)
        self.state.iteration += n

    def found(self) -> dict[str, Any]:
        """As JSON values. The digest is of the intercept and the losses met, which depend on every sum over ranks."""
        n = self.state.iteration
        bits = self.state.intercept.double().numpy().tobytes() + np.float64(self.total).tobytes()
        return {
            "digest": hashlib.blake2b(bits, digest_size=16).hexdigest(),
            "checked": self.checked,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "wire_seconds": self.wire.accounting.wire_seconds / n,
            "messages": self.wire.messages / n,
            "bytes_sent": self.wire.accounting.bytes_sent / n,
            "n_iterations": n,
            "losses": self.losses,
        }


def new_lanes(problem: Problem, comm: Communicator, everyone: Sequence[Contender], batch_size: int) -> dict[str, Lane]:
    """Every contender at its start, with the step size that suits this problem."""
    eta0 = auto_eta0(problem, everyone[0].settings(1.0, batch_size, SEED), comm)
    silent = SilentCommunicator(comm.rank, comm.size, comm.channels)
    lanes, copies = {}, Copies(problem)
    for contender in everyone:
        settings = contender.settings(eta0, batch_size, SEED)
        own = copies.stored_as(settings.precision.format("data").storage).cast(settings.precision.carrier)
        wire = Wire(silent if contender.silent else comm, settings.precision.gram_wire)
        lanes[contender.label] = Lane(own, settings, begin(own, settings), wire)
    return lanes


def run_round(lanes: Mapping[str, Lane], rows: np.ndarray, comm: Communicator) -> None:
    """The same rows through every lane in turn."""
    for lane in lanes.values():
        barrier(comm)
        lane.run(rows)


def check(lanes: Mapping[str, Lane], rank: int) -> None:
    """How far each lane's iterate is from that of SGD in float32, now."""
    for lane in lanes.values():
        lane.checked = distance(lane.state, lanes[FP32].state, rank)


def look(lanes: Mapping[str, Lane], problem: Problem, comm: Communicator) -> None:
    """Add every lane's loss over the rows as they were given, whatever it keeps of them."""
    for lane in lanes.values():
        lane.losses.append(objective(problem, lane.settings, lane.state, comm))


def rounds_of(n_rows: int, n_rounds: int, size: int) -> np.ndarray:
    """The rows (n_rounds, size) that every contender sees."""
    return first_rows(Sampling(seed=SEED), n_rows, n_rounds * size).reshape(n_rounds, size)


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
