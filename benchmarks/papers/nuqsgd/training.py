"""Training with k workers on one device, every method on the same batches, step by step in turn; and its log."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.papers.nuqsgd import gradients
from benchmarks.papers.nuqsgd.batches import ImageBatches, rows_of
from benchmarks.papers.nuqsgd.methods import Method
from benchmarks.papers.nuqsgd.networks import network
from laconic.bench.suite import Progress, no_progress
from laconic.bench.training import generator_of
from laconic.kernels import Stream
from laconic.training import SimulatedWorkers
from laconic.training.groups import Group

WARMUP, DROPS, DROP = 0.05, (0.5, 0.75), 0.1
"""Parts of the iterations: the rate rises over the first of them, and falls to a tenth at each of these."""
TRAIN_IMAGES, TEST_IMAGES = 5000, 10_000
"""Most images that a loss and an accuracy are computed over."""


@dataclass(slots=True)
class TrainingLog:
    """What is recorded of one method while it trains.

    seconds   of every step
    curve     loss, accuracy and variance at some iterations, as they are published
    at_full   of full precision: by method, what quantising its gradient does
    """

    method: Method
    seconds: list[float] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    at_full: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add_point(
        self,
        net: nn.Module,
        groups: Sequence[Group],
        n_bytes: float,
        methods: Sequence[Method],
        batches: ImageBatches,
        x: torch.Tensor,
        y: torch.Tensor,
    ) -> None:
        """Measure loss, accuracy, and the variance of the method on the gradient of one mini-batch."""
        loss, accuracy = evaluate(net, batches)
        point: dict[str, Any] = {"iteration": len(self.seconds), "seconds": sum(self.seconds), "bytes": n_bytes}
        point |= {"loss": finite(loss), "accuracy": accuracy}
        parts = gradients.gradient(net, groups, x, y)
        self._quantise(point, parts, methods)
        self.curve.append(point)

    def _quantise(self, point: dict[str, Any], parts: Sequence[torch.Tensor], methods: Sequence[Method]) -> None:
        """What the method itself does to a gradient; of full precision, what every other does."""
        if self.method.lossy:
            point["variance"] = finite(gradients.normalised_variance(parts, self.method.quantizer))
            return
        for other in methods:
            if other.lossy:
                statistics = {"iteration": point["iteration"], **gradient_statistics(parts, other)}
                self.at_full.setdefault(other.name, []).append(statistics)

    def result(self, net: nn.Module, n_bytes: float) -> dict[str, Any]:
        """As JSON values."""
        return {
            "n": sum(p.numel() for p in net.parameters()),
            "seconds": self.seconds,
            "bytes_sent": n_bytes / len(self.seconds),
            "curve": self.curve,
            "at_full": self.at_full,
        }


def gradient_statistics(parts: Sequence[torch.Tensor], method: Method) -> dict[str, Any]:
    """What a method does to this gradient."""
    return {
        "variance": gradients.normalised_variance(parts, method.quantizer),
        "bound": gradients.bound(parts, method.quantizer),
        "entropy": gradients.entropy(parts, method.quantizer),
        "bits": gradients.bits_by_coder(parts, method.quantizer),
    }


def evaluate(net: nn.Module, batches: ImageBatches) -> tuple[float, float]:
    """Mean loss on the first training images, and the share of test images that are classified correctly."""
    net.eval()
    with torch.no_grad():
        losses = [
            (nn.functional.cross_entropy(net(x), y, reduction="sum"), len(y))
            for x, y in batches.evaluation("train", TRAIN_IMAGES)
        ]
        right = [((net(x).argmax(1) == y).sum(), len(y)) for x, y in batches.evaluation("test", TEST_IMAGES)]
    net.train()
    loss, accuracy = (float(sum(a for a, _ in found)) / sum(n for _, n in found) for found in (losses, right))
    return loss, accuracy


def finite(value: float) -> float | None:
    """None for what JSON has no number for: a run that has diverged."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train; the paper's numbers, and a schedule of its usual shape, as short as asked for.

    workers     k mini-batches per iteration
    batch_size  images of one worker's mini-batch
    iterations  in all
    points      points of the log, the start and the end included
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
    def log_iterations(self) -> list[int]:
        """Iterations after which a point is logged.

        >>> Schedule(iterations=10, points=3).log_iterations
        [0, 5, 10]
        """
        last = max(1, self.points - 1)
        return sorted({round(self.iterations * i / last) for i in range(last + 1)})


@dataclass(slots=True)
class SimulatedRun:
    """One method with its network; `n_bytes` of one worker's messages so far."""

    log: TrainingLog
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
        self.log.seconds.append(time.perf_counter() - began)
        self.n_bytes += self.workers.last.bytes_sent / len(x)

    def result(self) -> dict[str, Any]:
        """As JSON values."""
        return self.log.result(self.net, self.n_bytes)


def simulate(batches: ImageBatches, model: str, methods: Sequence[Method], schedule: Schedule, device: torch.device,
             progress: Progress = no_progress) -> list[SimulatedRun]:  # fmt: skip
    """Train with every method; step t of all comes before step t + 1 of any."""
    size, points = schedule.workers * schedule.batch_size, set(schedule.log_iterations)
    runs = [new_run(method, model, batches, schedule, device) for method in methods]
    for t in range(schedule.iterations + 1):
        x, y = batch_of(batches, t, size, schedule.seed)
        x, y = (part.view(schedule.workers, -1, *part.shape[1:]) for part in (x, y))
        if t in points:
            progress(f"iteration {t} of {schedule.iterations}")
            for run in runs:
                run.log.add_point(run.net, run.workers.groups, run.n_bytes, methods, batches, x[0], y[0])
        if t < schedule.iterations:
            for run in runs:
                run.step(x, y, schedule.rate(t))
    return runs


def batch_of(batches: ImageBatches, iteration: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All workers' images of an iteration, changed at random."""
    generator = generator_of(Stream(seed, step=iteration, tensor="crop"))
    return batches.batch(rows_of(batches.n_train, iteration, size, seed), generator)


def new_network(model: str, batches: ImageBatches, seed: int, device: torch.device) -> nn.Module:
    """The same initial weights for every method and on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(model, batches.n_classes, batches.shape).to(device)


def new_optimizer(net: nn.Module, schedule: Schedule) -> torch.optim.SGD:
    """SGD with the paper's momentum and weight decay."""
    return torch.optim.SGD(
        net.parameters(), lr=schedule.learning_rate, momentum=schedule.momentum, weight_decay=schedule.weight_decay
    )


def new_run(
    method: Method, model: str, batches: ImageBatches, schedule: Schedule, device: torch.device
) -> SimulatedRun:
    """A method at its start."""
    net = new_network(model, batches, schedule.seed, device)
    if device.type == "cuda":
        record(net, (schedule.batch_size, *batches.shape), device)
    workers = SimulatedWorkers(net, method.codec, schedule.workers, seed=schedule.seed)
    return SimulatedRun(TrainingLog(method), net, workers, new_optimizer(net, schedule))


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
