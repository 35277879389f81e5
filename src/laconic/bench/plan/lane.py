"""One solver at work on rows of noise, an outer iteration at a time: what calibration and the suite `plan` time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from laconic.bench.glm.contenders import Contender
from laconic.bench.glm.lane import SilentCommunicator
from laconic.exchange import Communicator
from laconic.glm import Bernoulli, Columns, DenseColumns, Problem, State, begin, recipe
from laconic.glm.solvers import ca_sgd, sgd
from laconic.glm.solvers.segment import Segment
from laconic.glm.solvers.wire import Wire

ETA = 1e-3
LONE_ITERATIONS = 64
"""Of SGD in one process, whose compiled loop runs through them in one call."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Rows of a rank, m × n_p, in the storage that recipes ask for; made once for each shape."""

    blocks: Mapping[torch.dtype, Columns]
    y: torch.Tensor
    order: np.ndarray

    @classmethod
    def of(cls, m: int, n_p: int, seed: int = 0) -> "Noise":
        """The same on every rank, which does not matter for time."""
        X = torch.randn(m, n_p, generator=torch.Generator().manual_seed(seed)) / max(1, n_p) ** 0.5
        y = (X[:, 0] > 0).float()
        order = np.random.default_rng(seed).integers(0, m, 1 << 16)
        return cls({torch.float32: DenseColumns(X), torch.bfloat16: DenseColumns(X.bfloat16())}, y, order)


@dataclass(slots=True)
class Lane:
    """A solver with its state; `run` goes on by `iterations` iterations."""

    contender: Contender
    problem: Problem
    state: State
    wire: Wire
    batch_size: int
    iterations: int
    order: np.ndarray
    at: int = field(default=0)

    @classmethod
    def of(cls, contender: Contender, noise: Noise, batch_size: int, comm: Communicator) -> "Lane":
        """On all ranks of `comm`, or without messages if the contender is silent."""
        settings = contender.settings(ETA, batch_size)
        columns = noise.blocks[settings.precision.format("data").storage]
        problem = Problem(columns, Bernoulli(), noise.y).cast(settings.precision.carrier)
        if contender.silent and comm.size > 1:
            comm = SilentCommunicator(comm.rank, comm.size, comm.channels)
        lone = contender.solver == "sgd" and comm.size == 1
        iterations = LONE_ITERATIONS if lone else contender.s
        wire = Wire(comm, recipe(contender.recipe).gram_wire)
        return cls(contender, problem, begin(problem, settings), wire, batch_size, iterations, noise.order)

    def run(self) -> None:
        """The next batches."""
        k = self.iterations * self.batch_size
        if self.at + k > len(self.order):
            self.at = 0
        rows = np.resize(self.order[self.at : self.at + k], k)
        self.at += k
        settings = self.contender.settings(ETA, self.batch_size)
        rates = np.full(self.iterations, ETA)
        part = Segment(rows, self.batch_size * np.arange(self.iterations + 1), rates, np.empty(0))
        advance = ca_sgd.advance if self.contender.solver == "ca_sgd" else sgd.advance
        advance(self.problem, settings, self.state, part, self.wire)
