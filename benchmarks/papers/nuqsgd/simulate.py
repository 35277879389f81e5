"""Training with k workers on one device, every method on the same batches, step by step in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.papers.nuqsgd.methods import Method
from benchmarks.papers.nuqsgd.networks import network
from benchmarks.papers.nuqsgd.pictures import Pictures, rows_of
from benchmarks.papers.nuqsgd.seen import Seen
from laconic.bench.training import generator_of
from laconic.kernels import Stream
from laconic.training import SimulatedWorkers

Tell = Callable[[str], None]
WARMUP, DROPS, DROP = 0.05, (0.5, 0.75), 0.1
"""Parts of the iterations: the rate rises over the first of them, and falls to a tenth at each of these."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train; the paper's numbers, and a schedule of its usual shape, as short as asked for.

    workers     k mini-batches an iteration
    batch_size  images of one worker's mini-batch
    iterations  in all
    points      times that everything is looked at, the start and the end included
    """

    workers: int = 4
    batch_size: int = 128
    iterations: int = 1000
    points: int = 11
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration, from 0 on.

        >>> [Schedule(iterations=100).rate(t) for t in (0, 4, 49, 50, 99)]
        [0.02, 0.1, 0.1, 0.01, 0.001]
        """
        warmup = max(1, round(WARMUP * self.iterations))
        drops = sum(iteration >= part * self.iterations for part in DROPS)
        return round(self.learning_rate * min(1.0, (iteration + 1) / warmup) * DROP**drops, 12)

    @property
    def looked_at(self) -> list[int]:
        """Iterations done at each point.

        >>> Schedule(iterations=10, points=3).looked_at
        [0, 5, 10]
        """
        last = max(1, self.points - 1)
        return sorted({round(self.iterations * i / last) for i in range(last + 1)})


@dataclass(slots=True)
class Lane:
    """One method with its network; `n_bytes` of one worker's messages so far."""

    seen: Seen
    net: nn.Module
    workers: SimulatedWorkers
    optimizer: torch.optim.Optimizer
    n_bytes: float = 0.0

    def step(self, x: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """One iteration; x (k, b, c, h, w), y (k, b)."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        began = time.perf_counter()
        self.workers.backward([_loss(self.net, *part) for part in zip(x, y, strict=True)])
        self.optimizer.step()
        wait_for(x.device)
        self.seen.seconds.append(time.perf_counter() - began)
        self.n_bytes += self.workers.last.bytes_sent / len(x)

    def found(self) -> dict[str, Any]:
        """As JSON values."""
        return self.seen.found(self.net, self.n_bytes)


def simulate(pictures: Pictures, model: str, methods: Sequence[Method], schedule: Schedule, device: torch.device,
             tell: Tell = lambda label: None) -> list[Lane]:  # fmt: skip
    """Train with every method; step t of all comes before step t + 1 of any."""
    size, points = schedule.workers * schedule.batch_size, set(schedule.looked_at)
    lanes = [new_lane(method, model, pictures, schedule, device) for method in methods]
    for t in range(schedule.iterations + 1):
        x, y = batch_of(pictures, t, size, schedule.seed)
        x, y = (part.view(schedule.workers, -1, *part.shape[1:]) for part in (x, y))
        if t in points:
            tell(f"iteration {t} of {schedule.iterations}")
            for lane in lanes:
                lane.seen.look(lane.net, lane.workers.groups, lane.n_bytes, methods, pictures, x[0], y[0])
        if t < schedule.iterations:
            for lane in lanes:
                lane.step(x, y, schedule.rate(t))
    return lanes


def batch_of(pictures: Pictures, iteration: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All workers' images of an iteration, changed at random."""
    generator = generator_of(Stream(seed, step=iteration, tensor="crop"))
    return pictures.batch(rows_of(pictures.n_train, iteration, size, seed), generator)


def new_network(model: str, pictures: Pictures, seed: int, device: torch.device) -> nn.Module:
    """The same initial weights for every method and on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(model, pictures.n_classes, pictures.shape).to(device)


def new_optimizer(net: nn.Module, schedule: Schedule) -> torch.optim.SGD:
    """SGD with the paper's momentum and weight decay."""
    return torch.optim.SGD(
        net.parameters(), lr=schedule.learning_rate, momentum=schedule.momentum, weight_decay=schedule.weight_decay
    )


def new_lane(method: Method, model: str, pictures: Pictures, schedule: Schedule, device: torch.device) -> Lane:
    """A method at its start."""
    net = new_network(model, pictures, schedule.seed, device)
    if device.type == "cuda":
        record(net, (schedule.batch_size, *pictures.shape), device)
    workers = SimulatedWorkers(net, method.codec, schedule.workers, seed=schedule.seed)
    return Lane(Seen(method), net, workers, new_optimizer(net, schedule))


def record(net: nn.Module, shape: Sequence[int], device: torch.device) -> None:
    """Replay the passes of training from CUDA graphs: a hundred small layers would otherwise wait for the host.

    The graphs' images have channels last, as cuDNN likes them best, and other images are copied into that order. The
    weights stay as they are, and gradients are laid out as weights are, so nothing is quantised in another order.
    """
    buffers = [buffer.clone() for buffer in net.buffers()]
    hush = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if hush is not None:
        hush(False)  # gradients are added up on the stream of the recording, and whoever reads them waits for it
    # the thread of backward passes gets its CUDA context from a kernel of its own; cuBLAS, if first, would warn
    torch.ones(1, device=device, requires_grad=True).square().backward()  # type: ignore[no-untyped-call]
    images = torch.empty(*shape, device=device, memory_format=torch.channels_last).normal_()
    torch.cuda.make_graphed_callables(net, (images,))
    for buffer, before in zip(net.buffers(), buffers, strict=True):
        buffer.copy_(before)


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: nn.functional.cross_entropy(net(x), y)
