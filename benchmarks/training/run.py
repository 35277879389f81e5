"""One run: a task with one member, all seeds and workers at once, in rounds between which it can be interrupted."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.papers.nuqsgd import gradients
from benchmarks.papers.nuqsgd.networks import BLOCKS, DEPTHS, LARGE, network
from benchmarks.training.data import Crops, Data, Folders, Pictures, Text, images_in, open_pictures, open_text
from benchmarks.training.members import MEMBERS, OPTIMIZER, TENSOR, Sender, quantised
from benchmarks.training.networks import CONTEXT, ByteTransformer, ConvNet, Network, OfModule
from laconic.errors import InvalidOption, Option
from laconic.kernels import Stream
from laconic.measure.environment import cpu_model
from laconic.quantizers import Quantizer
from laconic.training.groups import Policy

COSINE, DROPS, CONSTANT = (0.05, None), (0.01, (0.5, 0.75)), (0.05, ())
"""Schedules: fraction of the steps for warm-up; then None for a cosine to 0, or where the rate drops to a tenth."""
EVALUATION_SIZE = {"lm": 128, "cnn": 128, "resnet": 1000, "imagenet": 250}
"""Examples of each seed in one forward pass of an evaluation."""
MOST_ON_CPU = 125
"""The same on a CPU at most, so that they stay in its caches."""
POINTS = 20
"""Rounds of a run, evenly spaced, after which losses, errors and bits are measured."""
GRAPH_WARMUP = 3
WIDTH = 256


@dataclass(frozen=True, slots=True)
class Task:
    """A network with its data and optimizer; batch_size is per worker.

    at_fp32  members that are also measured on the gradients of the fp32 run
    depth    blocks of a transformer
    """

    network: str
    optimizer: str
    learning_rate: float
    batch_size: int
    weight_decay: float
    about: str
    schedule: tuple[float, tuple[float, ...] | None] = COSINE
    at_fp32: tuple[str, ...] = ()
    depth: int = 4

    @property
    def kind(self) -> str:
        """lm, cnn, resnet or imagenet."""
        return "imagenet" if self.network in LARGE else self.network.partition("-")[0]


PAPER = (
    "nuqsgd-4/8192",
    "dithered-0.5",
    "qsgdinf-4/8192",
    "ef-sign/64",
    "ef-sign",
    "qsgd-4/8192",
    "rotated-2",
    "dithered-3",
)
TASKS = {
    "cnn-sgd": Task("cnn", "sgd", 0.02, 32, 5e-4, "convolutional network, SGD with momentum 0.9"),
    "lm-adamw": Task("lm", "adamw", 1e-3, 16, 0.01, "byte-level transformer, AdamW"),
    "lm-sgd": Task("lm", "sgd", 0.1, 16, 0.0, "byte-level transformer, SGD with momentum 0.9"),
    "lm-large": Task("lm", "adamw", 5e-4, 16, 0.01, "byte-level transformer, AdamW", CONSTANT, depth=8),
} | {
    f"resnet-{n}": Task(f"resnet-{n}", "sgd", 0.1, 128, 1e-4, f"ResNet-{n}, SGD with momentum 0.9", DROPS, PAPER)
    for n in (*DEPTHS, *BLOCKS)
}


@dataclass(frozen=True, slots=True)
class Job:
    """A run to make: a task with one member and a number of workers, for some seeds.

    seeds      number of seeds, seed, seed + 1, …, which train together
    steps      in total; or `epochs`, passes over the data
    width      of the transformer; the convolutional network's is a quarter of it
    precision  of matrix products: fp32, tf32, or bf16 (autocast)
    data       a file of text or a folder of images; None for the default data
    images     most images to train on, and to test
    learning_rate, warmup  the highest, and the epochs over which it rises; None for the task's
    """

    task: str
    member: str
    workers: int
    seeds: int
    steps: int | None
    batch_size: int
    width: int = WIDTH
    device: str = "cpu"
    precision: str = "fp32"
    data: str | None = None
    seed: int = 0
    epochs: int | None = None
    images: int | None = None
    learning_rate: float | None = None
    warmup: float | None = None

    @property
    def label(self) -> str:
        """Its name for people, and for files."""
        rate = "" if self.learning_rate is None else f" lr {self.learning_rate:g}"
        seed = f" {self.precision} seed {self.seed}" if self.epochs else f" seed {self.seed}" if self.seed else ""
        return f"{self.task} {self.member} x{self.workers}{rate}{seed}"

    def rate(self, step: int, steps: int) -> float:
        """The learning rate at a step."""
        task = TASKS[self.task]
        rises, drops = task.schedule
        rises = self.warmup / self.epochs if self.warmup is not None and self.epochs else rises
        return (self.learning_rate or task.learning_rate) * rate(step, steps, rises, drops)

    def settings(self) -> dict[str, Any]:
        """The settings that identify a job, without its data, which are named in the result."""
        device = cpu_model() if self.device == "cpu" else torch.cuda.get_device_name()
        given = {name: value for name, value in asdict(self).items() if name != "data"}
        return {**given, "device": device, "torch": torch.__version__}


@lru_cache(maxsize=2)
def open_data(kind: str, path: str | None, device: str, images: int | None = None) -> Text | Pictures | Crops | Folders:
    """The data on the device, read once."""
    where = Path(path) if path else None
    if kind == "lm":
        return open_text(where, CONTEXT, torch.device(device))
    if kind == "cnn":
        return open_pictures(where, torch.device(device))
    if kind == "imagenet" and where is None:
        raise InvalidOption(
            "imagenet is read from files; give the folder that has train/ and val/ with ", Option("data")
        )
    if kind == "imagenet" and where:
        return Folders(where, torch.device(device), images)
    found = images_in(where)
    return Crops(found if images is None else found.head(images), torch.device(device))


def network_for(job: Job, data: Text | Pictures | Crops | Folders) -> Network:
    """The network of a job's task, for its data."""
    if isinstance(data, Text):
        return ByteTransformer(job.width, TASKS[job.task].depth, data.context)
    if isinstance(data, Crops | Folders):
        return OfModule(partial(network, TASKS[job.task].network, data.n_classes, data.shape), job.workers)
    return ConvNet(data.shape, data.n_classes, job.width // 4)


class Weights:
    """The parameters of all seeds as one (S, P) tensor, with compressed ones first.

    sent  weights with which losses are computed: the same memory, unless weights are sent as quantised differences
    """

    def __init__(self, network: Network, seeds: Sequence[int], device: torch.device) -> None:
        policy, starts = Policy(), [network.initial(seed) for seed in seeds]
        names = sorted(starts[0], key=lambda name: not policy.compresses(starts[0][name]))
        self.shapes = {name: starts[0][name].shape for name in names}
        self.cuts = [0, *accumulate(shape.numel() for shape in self.shapes.values())]
        self.n_tensors = sum(policy.compresses(starts[0][name]) for name in names)
        self.n_compressed, self.n = self.cuts[self.n_tensors], self.cuts[-1]
        rows = [torch.cat([start[name].flatten() for name in names]) for start in starts]
        self.flat = torch.nn.Parameter(torch.stack(rows).to(device))
        self.sent = self.flat.detach()

    @property
    def compressed_shapes(self) -> list[torch.Size]:
        """Shapes of the tensors that are compressed."""
        return list(self.shapes.values())[: self.n_tensors]

    def replicas(self, workers: int) -> dict[str, torch.Tensor]:
        """Each parameter (S · workers, …), a copy for every worker, which requires a gradient."""
        found = {}
        for (name, shape), a, b in zip(self.shapes.items(), self.cuts, self.cuts[1:], strict=False):
            one = self.sent[:, a:b].reshape(-1, 1, *shape)
            found[name] = one.expand(-1, workers, *shape).flatten(0, 1).requires_grad_()
        return found

    def send(self, quantizer: Quantizer | None, stream: Stream) -> None:
        """Add to `sent` the change of the weights, quantised for compressed parameters."""
        if quantizer is not None:
            C, flat = self.n_compressed, self.flat.detach()
            self.sent[:, :C] += quantised(flat[:, :C] - self.sent[:, :C], quantizer, stream)
            self.sent[:, C:] = flat[:, C:]


class Gradients:
    """Computes (M, P) gradients of each replica's loss on its own examples; on a GPU by one CUDA graph for all."""

    def __init__(self, net: Network, weights: Weights, data: Data, job: Job) -> None:
        self.net, self.weights, self.data, self.job = net, weights, data, job
        device, M = weights.flat.device, job.seeds * job.workers
        self.buffers = {name: b.to(device).expand(M, *b.shape).clone() for name, b in net.buffers().items()}
        self.examples = torch.zeros(M, job.batch_size, dtype=torch.int64, device=device)
        self.graph = self._recorded() if device.type == "cuda" and data.resident else None

    def of(self, examples: torch.Tensor) -> torch.Tensor:
        """Gradients on these examples; the next call overwrites them."""
        if self.graph is None:
            return self._computed(examples)
        self.examples.copy_(examples)
        self.graph.replay()
        return self.found

    def _computed(self, examples: torch.Tensor) -> torch.Tensor:
        p = self.weights.replicas(self.job.workers)
        with self.autocast():
            loss = self.net.loss(p, *self.data.batch(examples), self.buffers).sum()
        return torch.cat([g.flatten(1) for g in torch.autograd.grad(loss, list(p.values()))], 1)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """Capture a CUDA graph after some warm-up passes; buffers are restored."""
        before = {name: buffer.clone() for name, buffer in self.buffers.items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(GRAPH_WARMUP):
                self._computed(self.examples)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.found = self._computed(self.examples)
        for name, buffer in before.items():
            self.buffers[name].copy_(buffer)
        return graph

    def autocast(self) -> torch.autocast:
        """Autocast to bfloat16 if the job's precision is bf16."""
        kind = self.weights.flat.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=self.job.precision == "bf16", cache_enabled=False)


class Training:
    """The state of one run: the weights of all seeds, their optimizer, and measurements.

    done    rounds so far, of `rounds`
    curve   at some rounds: step, seconds, and by seed losses, accuracies and train_losses
    """

    def __init__(self, job: Job) -> None:
        torch.set_float32_matmul_precision("high" if job.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = job.precision != "fp32", True
        self.job, self.task, device = job, TASKS[job.task], torch.device(job.device)
        self.data = open_data(self.task.kind, job.data, job.device, job.images)
        self.round_steps = self.data.round_steps(job.workers * job.batch_size)
        if not self.round_steps:
            what = f"{job.workers} batches of {job.batch_size} are more than the examples to train on; give a smaller "
            raise InvalidOption(what, Option("batch_size"))
        self.steps = job.steps or (job.epochs or 0) * self.round_steps
        self.rounds, self.done, self.seconds = -(-self.steps // self.round_steps), 0, 0.0
        net = network_for(job, self.data)
        self.weights = Weights(net, range(job.seed, job.seed + job.seeds), device)
        if MEMBERS[job.member].weights is not None:
            self.weights.sent = self.weights.sent.clone()
        self.gradients = Gradients(net, self.weights, self.data, job)
        self.optimizer = _optimizer(self.task, self.weights.flat)
        self.sender = Sender(
            MEMBERS[job.member], self.weights.cuts[: self.weights.n_tensors + 1], device, job.seed,
            self.weights.compressed_shapes, job.workers,
        )  # fmt: skip
        self.samples = Samples(job, self.weights)
        self.curve: list[dict[str, Any]] = [self.point()]

    def advance(self) -> None:
        """Train one round; at some rounds, measure losses, errors and bits after it."""
        began, job, first = time.perf_counter(), self.job, self.done * self.round_steps
        n, size = min(self.round_steps, self.steps - first), job.workers * job.batch_size
        torch.manual_seed(Stream(job.seed, step=self.done, tensor="noise").key % 2**63)
        streams = [Stream(job.seed + i, step=self.done, tensor="examples") for i in range(job.seeds)]
        drawn = torch.stack([self.data.draw(self.round_steps, size, stream) for stream in streams], 1)
        examples = drawn.to(self.weights.flat.device).view(self.round_steps, -1, job.batch_size)
        every = max(1, self.rounds // POINTS)
        self.done += 1
        measured = self.done % every == 0 or self.done == self.rounds
        for t in range(n):
            self.step(first + t, examples[t], measured and t == n - 1)
        if measured:
            self.curve.append(self.point())
        if self.weights.flat.is_cuda:
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - began

    def step(self, t: int, examples: torch.Tensor, measured: bool) -> None:
        """Train one step: every worker's gradient is sent, and averaged over the workers of its seed."""
        job, flat, C = self.job, self.weights.flat, self.weights.n_compressed
        for group in self.optimizer.param_groups:
            group["lr"] = job.rate(t, self.steps)
        g = self.gradients.of(examples)
        adam = t > 0 and self.sender.member.metric == OPTIMIZER
        known = self.optimizer.state[flat]["exp_avg_sq"] if adam else flat.grad
        message = self.sender.send(g[:, :C], None if known is None else known[:, :C], t)
        if measured:
            self.samples.add(message.v, message.errors(), t)
        g[:, :C] = message.decoded
        flat.grad = g.view(job.seeds, job.workers, -1).mean(1)
        self.optimizer.step()
        self.weights.send(self.sender.member.weights, Stream(job.seed, step=t, tensor="weights"))

    def point(self) -> dict[str, Any]:
        """The current point of the curve."""
        found = evaluate(self.gradients)
        named = {"losses": found["held out"][0], "accuracies": found["held out"][1]}
        if "train" in found:
            named["train_losses"] = found["train"][0]
        return {"step": min(self.steps, self.done * self.round_steps), "seconds": self.seconds, **named}

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The state to resume from: tensors, and JSON values."""
        flat = self.weights.flat
        tensors = {"weights": flat.detach(), **{f"buffer {name}": b for name, b in self.gradients.buffers.items()}}
        tensors |= {f"optimizer {name}": v for name, v in self.optimizer.state[flat].items() if v is not None}
        kept = {"memory": self.sender.memory, "factors": self.sender.factors}
        tensors |= {name: value for name, value in kept.items() if value is not None}
        if self.sender.member.metric == TENSOR and flat.grad is not None:
            tensors["gradient"] = flat.grad
        if self.sender.member.weights is not None:
            tensors["sent"] = self.weights.sent
        return tensors, {"done": self.done, "seconds": self.seconds, "curve": self.curve, **self.samples.state()}

    def restore(self, tensors: Mapping[str, torch.Tensor], log: dict[str, Any]) -> None:
        """Go on from a state."""
        flat, device = self.weights.flat, self.weights.flat.device
        with torch.no_grad():
            flat.copy_(tensors["weights"])
            self.weights.sent.copy_(tensors.get("sent", tensors["weights"]))
        for name, buffer in self.gradients.buffers.items():
            buffer.copy_(tensors[f"buffer {name}"])
        for name, value in tensors.items():
            kind, _, key = name.partition(" ")
            if kind == "optimizer":  # a step count is on the CPU, unless the optimizer is fused
                self.optimizer.state[flat][key] = (
                    value.clone() if value.ndim == 0 and not device.index else value.to(device, copy=True)
                )
        there = {name: value.to(device, copy=True) for name, value in tensors.items() if " " not in name}
        self.sender.memory, self.sender.factors = there.get("memory"), there.get("factors")
        flat.grad = there.get("gradient")
        self.done, self.seconds, self.curve = log.pop("done"), log.pop("seconds"), log.pop("curve")
        self.samples.restore(log)

    def result(self) -> dict[str, Any]:
        """Validation losses, bits, errors, and seconds of a step."""
        return {
            "n": self.weights.n,
            "n_compressed": self.weights.n_compressed,
            "losses": self.curve[-1]["losses"],
            **self.samples.means(),
            "seconds": self.seconds / self.steps,
            "source": self.data.source,
            "curve": self.curve,
            "samples": self.samples.state(),
        }


def train(job: Job) -> dict[str, Any]:
    """Train all seeds of a job together."""
    run = Training(job)
    while run.done < run.rounds:
        run.advance()
    return run.result()


def rate(step: int, steps: int, rises: float, drops: Sequence[float] | None) -> float:
    """The learning rate over its highest value.

    >>> [round(rate(t, 100, *COSINE), 2) for t in (0, 4, 50, 99)], [rate(t, 100, *DROPS) for t in (0, 49, 50, 99)]
    ([0.2, 1.0, 0.53, 0.0], [1.0, 1.0, 0.1, 0.01])
    """
    warmup = max(1, round(rises * steps))
    risen = min(1.0, (step + 1) / warmup)
    if drops is not None:
        return round(risen * 0.1 ** sum(step >= part * steps for part in drops), 12)
    fallen = max(0, step + 1 - warmup) / (steps - warmup + 1)
    return risen * 0.5 * (1 + math.cos(math.pi * fallen))


def _optimizer(task: Task, flat: torch.nn.Parameter) -> torch.optim.Optimizer:
    """The optimizer of the parameters of all seeds at once; it updates each value independently."""
    if task.optimizer == "adamw":
        return torch.optim.AdamW(
            [flat], lr=task.learning_rate, weight_decay=task.weight_decay, fused=flat.is_cuda or None
        )
    return torch.optim.SGD([flat], lr=task.learning_rate, momentum=0.9, weight_decay=task.weight_decay)


def evaluate(of: Gradients) -> dict[str, tuple[list[float | None], list[float]]]:
    """Each seed's mean loss and accuracy on the held-out set, and on the training set if the data include it.

    A seed uses the buffers of its first worker.
    """
    job, p = of.job, of.weights.replicas(1)
    buffers = {name: b[:: job.workers] for name, b in of.buffers.items()}
    size = EVALUATION_SIZE[TASKS[job.task].kind]
    size = size if of.examples.is_cuda else min(size, MOST_ON_CPU)
    found = {}
    with torch.no_grad(), of.autocast():
        for part, batches in of.data.evaluation(size).items():
            total, right, count = (torch.zeros(job.seeds, device=of.examples.device) for _ in range(3))
            for x, y in batches:
                x, y = (one.expand(job.seeds, *one.shape[1:]) for one in (x, y))
                scores = of.net.scores(p, x, buffers)
                outputs = y.flatten(1)
                losses = torch.nn.functional.cross_entropy(
                    scores.flatten(0, 1).float(), outputs.flatten(), reduction="none"
                )
                total += losses.view(job.seeds, -1).sum(1)
                right += (scores.argmax(2) == outputs).sum(1)
                count += outputs.shape[1]
            means = (total / count).tolist()
            found[part] = [loss if math.isfinite(loss) else None for loss in means], (right / count).tolist()
    return found


class Samples:
    """Measurements at some `steps` of a run: errors of all replicas, and bits sent by one worker.

    errors   of the message in the metric, and of the gradients
    bits     per value, by codec
    at_fp32  in the first fp32 run: by member, its variance, bound, entropy and bits by coder on the same gradient
    """

    def __init__(self, job: Job, weights: Weights) -> None:
        self.job, self.weights, self.member = job, weights, MEMBERS[job.member]
        self.steps: list[int] = []
        self.errors: list[list[float]] = []
        self.bits: list[list[float]] = []
        self.at_fp32: dict[str, list[dict[str, Any]]] = {}

    def add(self, v: torch.Tensor, errors: Sequence[torch.Tensor], step: int) -> None:
        """Encode, on the host, the message of the first worker of one seed, each time the next seed's."""
        seed = len(self.bits) % self.job.seeds
        row = v[seed * self.job.workers].cpu()
        self.steps.append(step)
        self.errors.append([float(e) for e in errors])
        stream = Stream(seed, step=step)
        self.bits.append(self.member.bits(row, stream, self.weights.compressed_shapes))
        if self.job.member == "fp32" and self.job.seed == 0:
            for name in TASKS[self.job.task].at_fp32:
                self.at_fp32.setdefault(name, []).append(gradients.statistics([row], MEMBERS[name].quantizer))

    def state(self) -> dict[str, Any]:
        """The measurements as JSON values."""
        return {"steps": self.steps, "errors": self.errors, "bits": self.bits, "at_fp32": self.at_fp32}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
        for name, value in state.items():
            setattr(self, name, value)

    def means(self) -> dict[str, float | None]:
        """Mean errors; bits per compressed value with the smallest and the default codec; bits_in_all per parameter."""
        default, *coded = (fmean(column) for column in zip(*self.bits, strict=True))
        n, C = self.weights.n, self.weights.n_compressed
        least = min([default, *coded])
        in_metric, plain = (fmean(column) for column in zip(*self.errors, strict=True))
        return {
            "bits": least,
            "bits_uncoded": default if coded else None,
            "bits_in_all": (least * C + 32 * (n - C)) / n,
            "error": in_metric,
            "squared_error": plain,
        }
