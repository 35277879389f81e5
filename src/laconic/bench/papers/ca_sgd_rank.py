"""What each rank does in the suite `papers ca-sgd`."""

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
from laconic.bench.glm.rank import SEED, distance, first_rows, objective
from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.glm import Problem, Sampling, Settings, State, auto_eta0, begin
from laconic.glm.ranks import together
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.segment import segment
from laconic.glm.solvers.wire import Wire

Tell = Callable[[str], None]


@dataclass(slots=True)
class Lane:
    """One contender on one rank, and what was seen of it.

    seconds  of an iteration, round by round
    losses   at the start and after each round
    total    the sum of losses that the solver itself has met
    checked  see `distance`
    """

    problem: Problem
    settings: Settings
    state: State
    wire: Wire
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    total: float = 0.0
    checked: tuple[float, float] = (0.0, 0.0)

    def run(self, rows: np.ndarray) -> None:
        """Go on with batches of these rows, timed."""
        n = len(rows) // self.settings.sampling.batch_size
        advance = ca_sgd.advance if self.settings.solver == "ca_sgd" else sgd.advance
        self.state.batch = 0
        part = segment(self.problem, self.settings, self.state, rows, n)
        began = time.perf_counter()
        self.total += advance(self.problem, self.settings, self.state, part, self.wire)
        self.seconds.append((time.perf_counter() - began) / n)
        self.state.iteration += n

    def found(self) -> dict[str, Any]:
        """As JSON values."""
        n = self.state.iteration
        bits = self.state.intercept.double().numpy().tobytes() + np.float64(self.total).tobytes()
        return {
            "digest": hashlib.blake2b(bits, digest_size=16).hexdigest(),
            "checked": self.checked,
            "seconds": self.seconds,
            "losses": self.losses,
            "messages": self.wire.messages / n,
            "bytes_sent": self.wire.accounting.bytes_sent / n,
        }


def ca_sgd_on_rank(
    tell: Tell,
    *,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    iterations: int,
    points: int,
) -> dict[str, Any]:
    """All contenders on each problem, the same batches, round by round in turn.

    What is the user's to mend comes back as {"complaint": …}.
    """
    comm = Communicator.open(n_channels=1)
    everyone = [Contender(**values) for values in contenders]
    found: dict[str, Any] = {}
    try:
        for values in problems:
            given = Given.from_json(values)
            tell(f"{given.name}: reading")
            with together(comm):
                problem, n_features = load(given, comm)
            lanes = new_lanes(problem, comm, everyone, batch_size)
            rows = first_rows(Sampling(seed=SEED), problem.n_rows, (points - 1) * iterations * batch_size)
            run_lanes(lanes, problem, comm, rows.reshape(points - 1, -1), _saying(tell, given.name))
            found[given.name] = {
                "family": problem.family.name,
                "n_rows": problem.columns.m,
                "n_features": n_features,
                "lanes": {label: lane.found() for label, lane in lanes.items()},
            }
    except LaconicError as error:
        return {"complaint": str(error)}
    finally:
        comm.close()
    return found


def _saying(tell: Tell, name: str) -> Tell:
    return lambda text: tell(f"{name}: {text}")


def new_lanes(problem: Problem, comm: Communicator, everyone: Sequence[Contender], batch_size: int) -> dict[str, Lane]:
    """Every contender at its start, with the step size that suits this problem."""
    eta0 = auto_eta0(problem, everyone[0].settings(1.0, batch_size, SEED), comm)
    lanes, matrices = {}, {torch.float32: problem.columns}
    for contender in everyone:
        settings = contender.settings(eta0, batch_size, SEED)
        dtype = settings.precision.format("data").storage
        if dtype not in matrices:
            matrices[dtype] = stored(problem.columns, dtype)
        own = replace(problem, columns=matrices[dtype]).cast(settings.precision.carrier)
        lanes[contender.label] = Lane(own, settings, begin(own, settings), Wire(comm, settings.precision.gram_wire))
    return lanes


def run_lanes(lanes: Mapping[str, Lane], problem: Problem, comm: Communicator, rounds: np.ndarray, tell: Tell) -> None:
    """Each round's rows through every lane; losses are over the rows as given, whatever a lane keeps of them."""
    tell("the start")
    for lane in lanes.values():
        lane.losses.append(objective(problem, lane.settings, lane.state, comm))
    for turn, rows in enumerate(rounds, start=1):
        tell(f"point {turn} of {len(rounds)}")
        for lane in lanes.values():
            barrier(comm)
            lane.run(rows)
        for lane in lanes.values():
            lane.losses.append(objective(problem, lane.settings, lane.state, comm))
            if turn == 1:
                lane.checked = distance(lane.state, lanes[FP32].state, comm.rank)
