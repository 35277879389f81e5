"""Several ways to train the same network, step by step in turn: what the suites `ddp` and `decentralised` share."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.bench.batches import batch_rows
from laconic.bench.problems import Problem, problem
from laconic.bench.ranks import barrier
from laconic.exchange import Accounting, Communicator
from laconic.kernels import Stream
from laconic.training import Decentralised
from laconic.training.compressor import Compressor

WARMUP_STEPS = 3
"""PowerSGD begins after two, DDP rebuilds its buckets after the first; decentralised nodes first send whole models."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What to train on, and for how long.

    problem       by name, with the `width` of its hidden layers
    batch_size    samples a rank and step
    steps         that count
    warmup_steps  before them, in which kernels are compiled
    """

    problem: str
    width: int
    batch_size: int
    steps: int
    warmup_steps: int = WARMUP_STEPS

    @property
    def n_steps(self) -> int:
        """In all."""
        return self.warmup_steps + self.steps

    def task(self) -> Problem:
        """The problem itself; made anew by every call."""
        return problem(self.problem, self.width)


@dataclass(slots=True)
class Lane:
    """One way to train, on this rank.

    compressor  laconic's, where it averages gradients
    seconds     of each step that counts, forward to update
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | Decentralised
    compressor: Compressor | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def talker(self) -> Compressor | Decentralised | None:
        """What sends messages and counts them; None where PyTorch does."""
        return self.optimizer if isinstance(self.optimizer, Decentralised) else self.compressor

    @property
    def network(self) -> torch.nn.Module:
        """The model without DDP around it."""
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    @property
    def n_parameters(self) -> int:
        """Values of the model."""
        return sum(p.numel() for p in self.model.parameters())

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """One iteration on this rank's batch."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        backward(self.model, x, y)
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)

    def forget(self) -> None:
        """What the steps so far took does not count."""
        self.seconds.clear()
        if self.talker is not None:
            self.talker.totals = Accounting()

    def a_step(self, *names: str) -> dict[str, float]:
        """These numbers of the accounting, a step that counts; none where PyTorch sends the messages."""
        if self.talker is None:
            return {}
        return {name: getattr(self.talker.totals, name) / len(self.seconds) for name in names}

    def close(self) -> None:
        """Give back what talks to other ranks."""
        if self.talker is not None:
            self.talker.close()


def take_turns(
    lanes: Collection[Lane],
    task: Problem,
    trial: Trial,
    tell: Callable[[str], None],
    *,
    seed: int = 0,
    after: Callable[[int], None] = lambda n_done: None,
) -> None:
    """Step t of all lanes comes before step t + 1 of any, on the same batches.

    after  is called between steps, with the number of those done
    """
    comm = Communicator.over()
    for step in range(trial.n_steps):
        tell(f"step {step + 1} of {trial.n_steps}")
        rows = batch_rows(len(task.x), trial.batch_size, Stream(seed, comm.rank, step))
        for lane in lanes:
            if step == trial.warmup_steps:
                lane.forget()
            barrier(comm)
            lane.step(task.x[rows], task.y[rows])
        after(step + 1)


def backward(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, weight: float = 1.0) -> None:
    """Add the gradient of the batch's loss, by `weight`, to those of the parameters."""
    (weight * torch.nn.functional.cross_entropy(net(x), y)).backward()  # type: ignore[no-untyped-call]
