"""Networks to train in the suites, and runs that train them step by step in turn."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.bench.protocol import one_thread
from laconic.bench.ranks import barrier, finish
from laconic.bench.suite import Progress
from laconic.data import load_digits
from laconic.exchange import Accounting, Communicator
from laconic.kernels import Stream
from laconic.training import Decentralised
from laconic.training.compressor import Compressor

N_SAMPLES, N_FEATURES, N_CLASSES = 4096, 1024, 16
SEPARATION = 0.1
N_SYMBOLS, N_TOKENS, N_BLOCKS = 256, 64, 6
SGD = partial(torch.optim.SGD, momentum=0.9)
WARMUP_STEPS = 3
"""PowerSGD begins after two steps, DDP rebuilds its buckets after the first, decentralised nodes first send models."""


@dataclass(frozen=True, slots=True)
class NetworkProblem:
    """Samples, a network for them, and a step size with which the loss falls by about half in a few dozen steps.

    A loss that hardly moves, or that vanishes, would not tell contenders apart.
    """

    x: torch.Tensor
    y: torch.Tensor
    network: Callable[[], torch.nn.Module]
    learning_rate: float
    optimizer: Callable[..., torch.optim.Optimizer] = SGD

    def new_network(self, seed: int = 0) -> torch.nn.Module:
        """The network on the device of the samples, with the same initial weights for every contender and rank."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network().to(self.x.device)

    def new_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return self.optimizer(parameters, lr=self.learning_rate)

    def loss(self, net: torch.nn.Module, share: slice = slice(None)) -> float:
        """Loss of a network on a share of the samples."""
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(net(self.x[share]), self.y[share]))


def clusters(size: int) -> NetworkProblem:
    """Synthetic inputs (4096, 1024), normal around one of 16 centres, which is the label; a perceptron.

    Its hidden layers are just wide enough for (1024 + width + 16) · width >= size weights.
    """
    width = next(w for w in count(16, 16) if (N_FEATURES + w + N_CLASSES) * w >= size)
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(N_CLASSES, N_FEATURES, generator=generator)
    y = torch.randint(N_CLASSES, (N_SAMPLES,), generator=generator)
    x = torch.randn(N_SAMPLES, N_FEATURES, generator=generator) + SEPARATION * centres[y]

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(N_FEATURES, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, N_CLASSES),
        )

    return NetworkProblem(x, y, network, 0.1)


def markov_chains(size: int) -> NetworkProblem:
    """Sequences (1024, 64) from a Markov chain of 256 symbols, and the next symbol of each as label; a transformer."""
    width = next(w for w in count(64, 64) if 12 * N_BLOCKS * (w + 1) ** 2 > size)
    generator = torch.Generator().manual_seed(0)
    likely = (3.0 * torch.randn(N_SYMBOLS, N_SYMBOLS, generator=generator)).softmax(dim=1)
    text = [torch.randint(N_SYMBOLS, (N_SAMPLES // 4,), generator=generator)]
    for _ in range(N_TOKENS):
        text.append(torch.multinomial(likely[text[-1]], 1, generator=generator)[:, 0])
    rows = torch.stack(text, dim=1)
    return NetworkProblem(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), lambda: Transformer(width), 0.05)


class Transformer(torch.nn.Module):
    """Six blocks of causal attention between an embedding and a linear layer; 72 width² weights, and some more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        options: Any = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.embedding = torch.nn.Embedding(N_SYMBOLS, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, **options) for _ in range(N_BLOCKS)
        )
        self.head = torch.nn.Linear(width, N_SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, symbols, length) of the symbols after x (batch, length)."""
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h, src_mask=later)
        logits: torch.Tensor = self.head(h).transpose(1, 2).contiguous()
        return logits


def digits(size: int = 0) -> NetworkProblem:
    """Handwritten digits (1797, 1, 8, 8) and their labels; a network of some 300,000 weights, whatever the size."""
    images, labels = load_digits()

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 16, 272),
            torch.nn.ReLU(),
            torch.nn.Linear(272, 10),
        )

    return NetworkProblem(images.view(-1, 1, 8, 8), labels, network, 0.05)


PROBLEMS: dict[str, Callable[[int], NetworkProblem]] = {"clusters": clusters, "digits": digits, "text": markov_chains}
"""Problems by name; the argument is the least number of weights, where that can be chosen."""


def batch_rows(n: int, batch_size: int, stream: Stream) -> torch.Tensor:
    """Row indices (batch_size,) of a batch, out of n; a new draw for every seed, rank and step of `stream`.

    >>> batch_rows(1000, 3, Stream(step=5)).equal(batch_rows(1000, 3, Stream(step=6)))
    False
    """
    return torch.randint(n, (batch_size,), generator=generator_of(replace(stream, tensor="rows")))


def generator_of(stream: Stream) -> torch.Generator:
    """A CPU generator seeded by the low 32 bits of the stream's key, which is mixed; torch uses no more bits."""
    return torch.Generator().manual_seed(stream.key % 2**32)


@dataclass(frozen=True, slots=True)
class Trial:
    """The problem to train on, and for how long.

    problem, size  one of `PROBLEMS`, and the least number of weights of its network
    batch_size     samples per rank and step
    steps          timed steps
    warmup_steps   steps before them, in which kernels are compiled
    device         "cpu" or "cuda"
    """

    problem: str
    size: int
    batch_size: int
    steps: int
    warmup_steps: int = WARMUP_STEPS
    device: str = "cpu"

    @property
    def n_steps(self) -> int:
        return self.warmup_steps + self.steps

    def network_problem(self) -> NetworkProblem:
        """A new instance of the problem."""
        made = PROBLEMS[self.problem](self.size)
        return replace(made, x=made.x.to(self.device), y=made.y.to(self.device))


@dataclass(slots=True)
class TrainingRun:
    """A contender in training on this rank, and the seconds of its steps.

    sender   the object of laconic that sends messages and counts them; None where PyTorch sends
    seconds  of each timed step, forward to update
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | Decentralised
    sender: Compressor | Decentralised | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def network(self) -> torch.nn.Module:
        """The model without DDP around it."""
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    @property
    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        backward(self.model, x, y)
        self.optimizer.step()
        finish(x.device)
        self.seconds.append(time.perf_counter() - start)

    def reset(self) -> None:
        """End the warm-up: drop seconds and counts of the steps so far."""
        self.seconds.clear()
        if self.sender is not None:
            self.sender.totals = Accounting()
        if isinstance(self.sender, Compressor):
            self.sender.weights.totals = Accounting()

    def per_step(self, *names: str) -> dict[str, float]:
        """Fields of the accounting per timed step; none where PyTorch sends the messages."""
        if self.sender is None:
            return {}
        return {name: getattr(self.sender.totals, name) / len(self.seconds) for name in names}

    def close(self) -> None:
        """Release whatever communicates with other ranks."""
        if self.sender is not None:
            self.sender.close()


def interleave(
    runs: Collection[TrainingRun],
    problem: NetworkProblem,
    trial: Trial,
    progress: Progress,
    *,
    seed: int = 0,
    after: Callable[[int], None] = lambda n_done: None,
) -> None:
    """Train all runs on the same batches, interleaved: step t of all runs comes before step t + 1 of any.

    after  called after each step, with the number of steps done
    """
    comm = Communicator.over()
    for step in range(trial.n_steps):
        progress(f"step {step + 1} of {trial.n_steps}")
        rows = batch_rows(len(problem.x), trial.batch_size, Stream(seed, comm.rank, step))
        for run in runs:
            if step == trial.warmup_steps:
                run.reset()
            barrier(comm)
            run.step(problem.x[rows], problem.y[rows])
        after(step + 1)


def backward(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
    """Backpropagate `weight` times the loss of a batch, and return that product."""
    loss = weight * torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


GRADIENT_STEPS, GRADIENT_BATCH = 40, 128


@one_thread()
def digits_gradient(*, n_steps: int = GRADIENT_STEPS, seed: int = 0) -> torch.Tensor:
    """The gradient (n_parameters,) of the network of "digits" on the mini-batch after `n_steps` of training.

    Computed on one thread, so that its bits do not depend on the number of cores.
    """
    problem = digits()
    net = problem.new_network(seed)
    optimizer = problem.new_optimizer(net.parameters())
    for step in range(n_steps + 1):
        rows = batch_rows(len(problem.x), GRADIENT_BATCH, Stream(seed, step=step))
        optimizer.zero_grad()
        backward(net, problem.x[rows], problem.y[rows])
        if step < n_steps:
            optimizer.step()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
