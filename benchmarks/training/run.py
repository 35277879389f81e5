"""One run: a task under one member, all seeds and workers at once."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.training.data import Pictures, Text, open_pictures, open_text
from benchmarks.training.members import MEMBERS, OPTIMIZER, Sender
from benchmarks.training.networks import CONTEXT, ByteTransformer, ConvNet, Network
from laconic.kernels import Stream
from laconic.measure.environment import cpu_model
from laconic.training.groups import Policy

WARMUP = 0.05
"""Part of the steps over which the learning rate rises; then it falls along a cosine to 0."""
SAMPLE_EVERY = 50
"""Steps between two measurements of error and bits."""
VALIDATION_SIZE = 128
"""Examples of each seed in one forward pass of the validation."""
WIDTH = 256


@dataclass(frozen=True, slots=True)
class Task:
    """A network with its data and optimizer; batch_size is of one worker."""

    network: str
    optimizer: str
    learning_rate: float
    batch_size: int
    weight_decay: float
    about: str


TASKS = {
    "cnn-sgd": Task("cnn", "sgd", 0.02, 32, 5e-4, "convolutional network, SGD with momentum 0.9"),
    "lm-adamw": Task("lm", "adamw", 1e-3, 16, 0.01, "byte-level transformer, AdamW"),
    "lm-sgd": Task("lm", "sgd", 0.1, 16, 0.0, "byte-level transformer, SGD with momentum 0.9"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """What is run: a task under one member with so many workers, for all seeds.

    width      of the transformer; the convolutional network's is a quarter of it
    precision  of matrix products: fp32, tf32, or bf16 (autocast)
    """

    task: str
    member: str
    workers: int
    seeds: int
    steps: int
    batch_size: int
    width: int
    device: str
    precision: str
    text: str | None
    images: str | None

    @property
    def label(self) -> str:
        """For people, and as the name of a file."""
        return f"{self.task} {self.member} x{self.workers}"

    def settings(self) -> dict[str, Any]:
        """What must be equal for two results to be of the same job. Data name themselves in the result."""
        device = cpu_model() if self.device == "cpu" else torch.cuda.get_device_name()
        given = {name: value for name, value in asdict(self).items() if name not in ("text", "images")}
        return {**given, "device": device, "torch": torch.__version__}

    def data(self) -> Text | Pictures:
        """On the device, read once."""
        kind = TASKS[self.task].network
        return _data(kind, self.text if kind == "lm" else self.images, self.device)


@lru_cache(maxsize=2)
def _data(kind: str, path: str | None, device: str) -> Text | Pictures:
    where = Path(path) if path else None
    if kind == "lm":
        return open_text(where, CONTEXT, torch.device(device))
    return open_pictures(where, torch.device(device))


def network_for(job: Job, data: Text | Pictures) -> Network:
    """The network of a job's task, for its data."""
    if isinstance(data, Text):
        return ByteTransformer(job.width, context=data.context)
    return ConvNet(data.shape, data.n_classes, job.width // 4)


class Weights:
    """The parameters of all seeds as one (S, P) tensor: those that are compressed first."""

    def __init__(self, network: Network, seeds: int, device: torch.device) -> None:
        self.n_seeds, policy = seeds, Policy()
        starts = [network.initial(seed) for seed in range(seeds)]
        names = sorted(starts[0], key=lambda name: not policy.compresses(starts[0][name]))
        self.shapes = {name: starts[0][name].shape for name in names}
        self.cuts = [0, *accumulate(shape.numel() for shape in self.shapes.values())]
        self.n_tensors = sum(policy.compresses(starts[0][name]) for name in names)
        self.n_compressed, self.n = self.cuts[self.n_tensors], self.cuts[-1]
        rows = [torch.cat([start[name].flatten() for name in names]) for start in starts]
        self.flat = torch.nn.Parameter(torch.stack(rows).to(device))

    def replicas(self, workers: int) -> dict[str, torch.Tensor]:
        """Each parameter (S · workers, …), a copy for every worker, to be differentiated by."""
        found = {}
        for (name, shape), a, b in zip(self.shapes.items(), self.cuts, self.cuts[1:], strict=False):
            one = self.flat.detach()[:, a:b].reshape(-1, 1, *shape)
            found[name] = one.expand(-1, workers, *shape).flatten(0, 1).requires_grad_()
        return found


class Training:
    """The state of one run: the weights of all seeds, their optimizer, and what is measured on the way."""

    def __init__(self, job: Job) -> None:
        self.job, self.task, self.data, device = job, TASKS[job.task], job.data(), torch.device(job.device)
        self.network = network_for(job, self.data)
        self.weights = Weights(self.network, job.seeds, device)
        self.optimizer = _optimizer(self.task, self.weights.flat)
        self.sender = Sender(MEMBERS[job.member], self.weights.cuts[: self.weights.n_tensors + 1], device)
        self.samples = Samples(job, self.weights)
        self.batches = _batches(job, self.data.n_examples).to(device)

    def step(self, t: int) -> None:
        """One step: every worker's gradient, sent, averaged over the workers of its seed."""
        job, flat, C = self.job, self.weights.flat, self.weights.n_compressed
        for group in self.optimizer.param_groups:
            group["lr"] = self.task.learning_rate * rate(t, job.steps)
        x, y = self.data.batch(self.batches[t])
        g = _gradients(self.network, self.weights, x.flatten(0, 1), y.flatten(0, 1), job)
        adam = t > 0 and self.sender.member.metric == OPTIMIZER
        known = self.optimizer.state[flat]["exp_avg_sq"] if adam else flat.grad
        message = self.sender.send(g[:, :C], None if known is None else known[:, :C], t)
        if t % SAMPLE_EVERY == SAMPLE_EVERY // 2 or t == job.steps - 1:
            self.samples.add(message.v, message.errors(), t)
        g[:, :C] = message.decoded
        flat.grad = g.view(job.seeds, job.workers, -1).mean(1)
        self.optimizer.step()


def train(job: Job) -> dict[str, Any]:
    """Train all seeds together: losses on what is held out, bits, errors, and seconds of a step."""
    torch.set_float32_matmul_precision("high" if job.precision == "tf32" else "highest")
    torch.manual_seed(0)
    run = Training(job)
    began = time.perf_counter()
    for t in range(job.steps):
        run.step(t)
    losses = validate(run.network, run.weights, run.data, job)
    return {
        "n": run.weights.n,
        "n_compressed": run.weights.n_compressed,
        "losses": [loss if math.isfinite(loss) else None for loss in losses],
        **run.samples.means(),
        "seconds": (time.perf_counter() - began) / job.steps,
        "source": run.data.source,
    }


def rate(step: int, steps: int) -> float:
    """The learning rate over its highest value.

    >>> [round(rate(t, 100), 2) for t in (0, 4, 50, 99)]
    [0.2, 1.0, 0.53, 0.0]
    """
    warmup = max(1, round(WARMUP * steps))
    fallen = max(0, step + 1 - warmup) / (steps - warmup + 1)
    return min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * fallen))


def _optimizer(task: Task, flat: torch.nn.Parameter) -> torch.optim.Optimizer:
    """On the parameters of all seeds: what it does to a value depends on that value alone."""
    if task.optimizer == "adamw":
        return torch.optim.AdamW(
            [flat], lr=task.learning_rate, weight_decay=task.weight_decay, fused=flat.is_cuda or None
        )
    return torch.optim.SGD([flat], lr=task.learning_rate, momentum=0.9, weight_decay=task.weight_decay)


def _batches(job: Job, n_examples: int) -> torch.Tensor:
    """Indices (steps, S, workers, batch): those of a seed are the same for every member."""
    shape = (job.steps, job.workers, job.batch_size)
    drawn = [
        torch.randint(n_examples, shape, generator=torch.Generator().manual_seed(1000 + seed))
        for seed in range(job.seeds)
    ]
    return torch.stack(drawn, 1)


def _gradients(network: Network, weights: Weights, x: torch.Tensor, y: torch.Tensor, job: Job) -> torch.Tensor:
    """(M, P): of each replica's loss on its own batch."""
    p = weights.replicas(job.workers)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=job.precision == "bf16"):
        loss = network.loss(p, x, y).sum()
    return torch.cat([g.flatten(1) for g in torch.autograd.grad(loss, list(p.values()))], 1)


def validate(network: Network, weights: Weights, data: Text | Pictures, job: Job) -> list[float]:
    """The mean loss of each seed on what is held out."""
    p, total, count = weights.replicas(1), torch.zeros(job.seeds, device=weights.flat.device), 0
    with torch.no_grad(), torch.autocast(weights.flat.device.type, torch.bfloat16, enabled=job.precision == "bf16"):
        for x, y in data.validation(VALIDATION_SIZE):
            several = (part.expand(job.seeds, *part.shape[1:]) for part in (x, y))
            total += network.loss(p, *several) * y.shape[1]
            count += y.shape[1]
    found: list[float] = (total / count).tolist()
    return found


class Samples:
    """Errors of all replicas, and bits of what one worker sends, at some steps of a run."""

    def __init__(self, job: Job, weights: Weights) -> None:
        self.job, self.weights, self.codecs = job, weights, MEMBERS[job.member].codecs()
        self.errors: list[Sequence[torch.Tensor]] = []
        self.bits: list[list[float]] = []

    def add(self, v: torch.Tensor, errors: Sequence[torch.Tensor], step: int) -> None:
        """Encode what the first worker of one seed sends, on the host; the next time it is the next seed's."""
        seed = len(self.bits) % self.job.seeds
        row = v[seed * self.job.workers].cpu()
        self.errors.append(errors)
        stream = Stream(seed, step=step)
        self.bits.append([8 * codec.encode(row, stream).n_bytes / len(row) for codec in self.codecs])

    def means(self) -> dict[str, float | None]:
        """bits and bits_coded per compressed value, by default and entropy-coded; bits_in_all over all parameters."""
        default, *coded = (fmean(column) for column in zip(*self.bits, strict=True))
        n, C = self.weights.n, self.weights.n_compressed
        least = min([default, *coded])
        in_metric, plain = (fmean(float(e) for e in column) for column in zip(*self.errors, strict=True))
        return {
            "bits": least,
            "bits_uncoded": default if coded else None,
            "bits_in_all": (least * C + 32 * (n - C)) / n,
            "error": in_metric,
            "squared_error": plain,
        }
