"""Training with k workers on one device, every method on the same batches, step by step in turn."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from laconic.bench.papers import probe
from laconic.bench.papers.methods import Method
from laconic.bench.papers.networks import network
from laconic.bench.papers.pictures import Pictures, generator_of, rows_of
from laconic.kernels import Stream
from laconic.training import SimulatedWorkers

Tell = Callable[[str], None]
TRAIN_JUDGED, TEST_JUDGED = 5000, 10_000
"""Most images that a loss and an accuracy are taken over."""
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
    """One method, and what was seen of it.

    seconds   of every step
    n_bytes   of one worker's messages so far
    curve     points as they are published
    at_full   of the lane in full precision: by method, what quantising its gradient does, point by point
    """

    method: Method
    net: nn.Module
    workers: SimulatedWorkers
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)
    n_bytes: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)
    at_full: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def step(self, x: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """One iteration; x (k, b, c, h, w), y (k, b)."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        began = time.perf_counter()
        self.workers.backward([_loss(self.net, *part) for part in zip(x, y, strict=True)])
        self.optimizer.step()
        wait_for(x.device)
        self.seconds.append(time.perf_counter() - began)
        self.n_bytes += self.workers.last.bytes_sent / len(x)


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
                look(lane, lanes, pictures, x[0], y[0])
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
    return Lane(method, net, workers, new_optimizer(net, schedule))


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


def look(lane: Lane, lanes: Sequence[Lane], pictures: Pictures, x: torch.Tensor, y: torch.Tensor) -> None:
    """Add a point: loss, accuracy, and the variance of the method on the first worker's gradient."""
    loss, accuracy = judge(lane.net, pictures)
    point: dict[str, Any] = {"iteration": len(lane.seconds), "seconds": sum(lane.seconds), "bytes": lane.n_bytes}
    point |= {"loss": finite(loss), "accuracy": accuracy}
    parts = probe.gradient(lane.net, lane.workers.groups, x, y)
    if lane.method.lossy:
        point["variance"] = finite(probe.normalised_variance(parts, lane.method.quantizer))
    else:
        for other in lanes:
            if other.method.lossy:
                lane.at_full.setdefault(other.method.name, []).append(looked_at(parts, other.method))
    lane.curve.append(point)


def looked_at(parts: Sequence[torch.Tensor], method: Method) -> dict[str, Any]:
    """What a method does to this gradient."""
    return {
        "variance": probe.normalised_variance(parts, method.quantizer),
        "bound": probe.bound(parts, method.quantizer),
        "entropy": probe.entropy(parts, method.quantizer),
        "bits": probe.bits_by_coder(parts, method.quantizer),
    }


def judge(net: nn.Module, pictures: Pictures) -> tuple[float, float]:
    """Mean loss on the first training images, and the share of test images whose class is found."""
    net.eval()
    with torch.no_grad():
        losses = [
            (nn.functional.cross_entropy(net(x), y, reduction="sum"), len(y))
            for x, y in pictures.judged("train", TRAIN_JUDGED)
        ]
        right = [((net(x).argmax(1) == y).sum(), len(y)) for x, y in pictures.judged("test", TEST_JUDGED)]
    net.train()
    loss, accuracy = (float(sum(a for a, _ in found)) / sum(n for _, n in found) for found in (losses, right))
    return loss, accuracy


def finite(value: float) -> float | None:
    """None for what JSON has no number for: a run that has diverged."""
    return value if math.isfinite(value) else None


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: nn.functional.cross_entropy(net(x), y)
