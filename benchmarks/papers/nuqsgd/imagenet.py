"""The suite `imagenet`: time of an epoch of ImageNet, extrapolated from some steps on random images.

simulated  k workers on one device, one after another: k gradients and an update are timed, then each codec on these
           gradients, which are encoded, decoded and averaged, with nothing sent
ranks      DDP with a hook, on processes; the exchange is a step's time beyond that of a step without exchange
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.papers.nuqsgd.networks import LARGE, network
from benchmarks.training.jobs import left_out
from laconic.atomic_write import atomic_write
from laconic.bench.ddp import BASELINES, ddp_on_rank
from laconic.bench.protocol import Spread
from laconic.bench.ranks import PAPERS_BUCKET, check_replicas, finish, on_ranks, resolve_network, slowest
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import PROBLEMS, WARMUP_STEPS, NetworkProblem, Trial, backward
from laconic.codec import Codec, make_codec
from laconic.errors import InvalidOption
from laconic.exchange import Communicator
from laconic.exchange.launch import inside_torchrun
from laconic.kernels import Stream
from laconic.options import check_counts, check_names, option
from laconic.report import BarChart, Column, Presentation, RowTable, Text, text
from laconic.report.values import Row, number_in, text_in
from laconic.training.groups import PLAIN, Group, Policy, make_groups

N_IMAGES, N_CLASSES = 1_281_167, 1000
"""Size of ImageNet's training set."""
MADE_UP = 64
RATE = 1e-3
"""Learning rate; low, since the labels are random."""
HOOKS = {"fp32": BASELINES[0], "bf16": BASELINES[1]}
"""Codecs that on ranks are plain DDP and PyTorch's hook."""
NOTHING = "nothing"
"""A step that computes without exchanging."""
VARIABLE = ("nuqsgd-4-elias", "nuqsgd-4-huffman", "nuqsgd-4-rans")
"""Codecs with entropy coders, timed over fewer steps; Elias and Huffman run on the host."""
CODECS = (*HOOKS, "nuqsgd-4", *VARIABLE, "qsgdinf-4", "dithered-0.5", "rotated-4")
WAYS = ("simulated", "ranks")


def pictures(model: str, side: int) -> NetworkProblem:
    """Normal values as images (64, 3, side, side), random labels, and one of the paper's networks."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MADE_UP, 3, side, side, generator=generator)
    y = torch.randint(N_CLASSES, (MADE_UP,), generator=generator)
    return NetworkProblem(x, y, partial(network, model, N_CLASSES, (3, side, side)), RATE)


PROBLEMS |= {model: partial(pictures, model) for model in LARGE}
"""The size of a trial is the side of its images."""


@dataclass(frozen=True, slots=True)
class ImageNetOptions:
    """What to run."""

    models: Sequence[str] = option(LARGE, f"{', '.join(LARGE)}; all.", flag="--model", metavar="NAME,...")
    codecs: Sequence[str] = option(CODECS, f"{', '.join(CODECS)}; all.", flag="--codec", metavar="NAME,...")
    ways: Sequence[str] = option(WAYS, f"{','.join(WAYS)}: both.", flag="--way", metavar="NAME,...")
    workers: int = option(8, "Simulated workers.")
    ranks: int = option(4, "Ranks, each a process.")
    rate: str | None = option(None, "Of an emulated link for each rank: 1gbit; otherwise none.", metavar="RATE")
    device: str | None = option(None, "cuda: on a GPU, ranks over NCCL; they share one.", metavar="DEVICE")
    batch_size: int = option(32, "Images per worker and step.", least=2)
    image_size: int = option(224, "Height and width of an image.", least=32)
    steps: int = option(100, "Timed steps.")
    coded_steps: int = option(10, f"Timed steps of {', '.join(VARIABLE)}, if fewer.")
    seconds: float = option(math.inf, "After which no further codec is begun.")
    kept: Path | None = option(  # noqa: RUF009
        None, "Folder of what is measured: a later run takes it from there.", metavar="FOLDER"
    )

    def __post_init__(self) -> None:
        check_counts(self)
        for given, known, what in (
            (self.models, LARGE, "model"), (self.codecs, CODECS, "codec"), (self.ways, WAYS, "way")
        ):  # fmt: skip
            check_names(given, known, what)
        if inside_torchrun():
            raise InvalidOption("the suite imagenet starts ranks of its own; run it without torchrun")
        resolve_network(self)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar, at most."""
        return len(self.models) * len(self.ways) * (len(self.codecs) + 1)

    def n_steps(self, codec: str) -> int:
        """Timed steps of a codec."""
        return min(self.steps, self.coded_steps) if codec in VARIABLE else self.steps

    def trial(self, model: str, codec: str) -> Trial:
        """The trial on which a codec is timed."""
        return Trial(model, self.image_size, self.batch_size, self.n_steps(codec), device=self.device or "cpu")

    def file_of(self, model: str, way: str, codec: str) -> Path | None:
        """The file of a measurement, if a folder was given."""
        n, where = (self.workers, None) if way == "simulated" else (self.ranks, self.rate)
        sizes = f"{n}x{self.batch_size}x{self.image_size}-{self.n_steps(codec)}"
        name = f"{model}-{way}-{codec}-{self.device or 'cpu'}-{where or 'unlimited'}-{sizes}.json"
        return None if self.kept is None else self.kept / name

    def published(self) -> dict[str, Any]:
        """As JSON values, without paths."""
        return {name: value for name, value in asdict(self).items() if name not in ("kept", "seconds")}


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One codec with one network, simulated or on ranks.

    workers            k: simulated on one device one after another, or ranks
    n                  parameters
    n_steps            timed steps
    seconds            of a step: of the slowest rank, or of all simulated workers together
    computing_seconds  part of it without encoding, exchange and decoding
    bytes_sent         in a step: a simulated worker's payloads; on ranks, by the one that sends most, fp32 and bf16 as
                       in a ring all-reduce
    """

    problem: str
    contender: str
    model: str
    way: str
    workers: int
    rate: str | None
    device: str | None
    batch_size: int
    image_size: int
    n: int
    n_steps: int
    seconds: Spread
    computing_seconds: Spread
    bytes_sent: float

    @property
    def exchange_seconds(self) -> float:
        """Encoding, exchange and decoding, unless overlapped with computing."""
        return self.seconds.median - self.computing_seconds.median

    @property
    def epoch_hours(self) -> float:
        """Hours of an epoch of 1,281,167 images."""
        return N_IMAGES / (self.workers * self.batch_size) * self.seconds.median / 3600

    @property
    def label(self) -> str:
        """Label of the row in the chart of hours."""
        return f"extrapolated from {self.n_steps} steps"


Cell = dict[str, Any]
"""Seconds of each step, bytes of one, and the number of parameters."""


def imagenet_rows(options: ImageNetOptions, progress: Progress = no_progress) -> Mapping[str, Any]:
    """Measure what is missing, until time is up, and make rows of all measurements."""
    until = time.monotonic() + options.seconds
    rows: list[EpochRow] = []
    left: list[str] = []
    for model, way in product(options.models, options.ways):
        files = {name: options.file_of(model, way, name) for name in (NOTHING, *options.codecs)}
        found = {name: json.loads(path.read_text()) for name, path in files.items() if path and path.is_file()}
        missing = [name for name in files if name not in found]
        measured = MEASURED[way](options, model, missing, until, progress) if missing else {}
        for name, cell in measured.items():
            if path := files[name]:
                path.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(path) as file:
                    json.dump(cell, file)
        rows += _rows(options, model, way, {**found, **measured})
        left += [f"{model} {way} {name}" for name in missing if name not in measured]
    return {"rows": rows, "left_out": left}


def simulated(
    options: ImageNetOptions, model: str, names: Sequence[str], until: float, progress: Progress
) -> dict[str, Cell]:
    """Seconds of computing gradients, and of each codec on them."""
    torch.backends.cudnn.benchmark = True
    device, k = torch.device(options.device or "cpu"), options.workers
    problem = options.trial(model, NOTHING).network_problem()
    net = problem.new_network()
    parameters, optimizer = dict(net.named_parameters()), problem.new_optimizer(net.parameters())
    gradients: list[dict[str, torch.Tensor]] = []

    def compute(step: int) -> float:
        gradients.clear()
        for worker in range(k):
            optimizer.zero_grad()
            rows = torch.arange(options.batch_size) + worker
            backward(net, problem.x[rows % MADE_UP], problem.y[rows % MADE_UP])
            gradients.append({name: p.grad for name, p in parameters.items() if p.grad is not None})
        optimizer.step()
        return 0.0

    def exchange(codec: Codec, groups: Sequence[Group], flat: Sequence[Sequence[torch.Tensor]], step: int) -> float:
        averages, n_bytes = [torch.zeros(group.n_values, device=device) for group in groups], 0
        for worker, parts in enumerate(flat):
            for group, v, average in zip(groups, parts, averages, strict=True):
                own = codec if group.compressed else PLAIN
                payload = own.encode(v, Stream(0, worker, step, group.index))
                own.decode_add(payload, average, 1 / k)
                n_bytes += payload.n_bytes
        return n_bytes / k

    found = {}
    for name in names:
        if time.monotonic() > until:
            break
        progress(f"{model} simulated {name}")
        run = compute
        if name != NOTHING:
            if not gradients:
                compute(0)
            codec = make_codec(name, PAPERS_BUCKET)
            groups = make_groups(parameters.items(), Policy(), codec)
            flat = [[group.flatten(own) for group in groups] for own in gradients]
            run = partial(exchange, codec, groups, flat)
        found[name] = {**_timed(run, options.n_steps(name), device), "n": sum(p.numel() for p in parameters.values())}
    return found


def _timed(run: Callable[[int], float], n_steps: int, device: torch.device) -> Cell:
    """Seconds of each step after a warm-up, and the mean of the bytes."""
    seconds, n_bytes = [], []
    for step in range(WARMUP_STEPS + n_steps):
        start = time.perf_counter()
        n_bytes.append(run(step))
        finish(device)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[WARMUP_STEPS:], "bytes_sent": sum(n_bytes[WARMUP_STEPS:]) / n_steps}


def ranked(
    options: ImageNetOptions, model: str, names: Sequence[str], until: float, progress: Progress
) -> dict[str, Cell]:
    """Seconds of DDP's steps on ranks, which are started once for all codecs; empty if it is too late."""
    left = min(until - time.monotonic(), 1e6)
    if left <= 0:
        return {}
    named = {HOOKS.get(name, name): name for name in names}
    trials = {label: asdict(options.trial(model, name)) for label, name in named.items()}
    arguments = {"trials": trials, "seconds": left}
    results = on_ranks(f"{__name__}:train_on_rank", arguments, options.ranks, options.rate, progress, options.device)
    check_replicas(results or [{}])
    found = {}
    for label in results[0] if results else ():
        ranks = [result[label] for result in results or []]
        n = ranks[0]["n_parameters"]
        ring = 2 * (options.ranks - 1) / options.ranks * n * {"fp32": 4, "bf16": 2}.get(named[label], 0)
        sent = max(rank.get("bytes_sent", ring) for rank in ranks)
        found[named[label]] = {"seconds": slowest(ranks), "bytes_sent": sent, "n": n}
    return found


MEASURED = {"simulated": simulated, "ranks": ranked}


def train_on_rank(progress: Progress, *, trials: Mapping[str, Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Results of `laconic bench ddp` for one contender after another, until it is too late on any rank."""
    torch.backends.cudnn.benchmark = True
    began, comm = time.monotonic(), Communicator.over()
    found: dict[str, Any] = {}
    for label, trial in trials.items():
        taken = torch.tensor([time.monotonic() - began])
        comm.largest(taken)()
        if float(taken) > seconds:
            break
        progress(f"{trial['problem']} ranks {label}")
        found |= ddp_on_rank(no_progress, labels=[label], trial=trial, seeds=1)
    return found


def _rows(options: ImageNetOptions, model: str, way: str, cells: Mapping[str, Cell]) -> Iterator[EpochRow]:
    """Rows in the order of the codecs; none if the seconds of computing are missing."""
    if NOTHING not in cells:
        return
    computing, alone = Spread.of(cells[NOTHING]["seconds"]), way == "simulated"
    k, rate = (options.workers, None) if alone else (options.ranks, options.rate)
    shared = " that share a GPU" if options.device == "cuda" and torch.cuda.device_count() < k else ""
    on = f"{k} workers simulated on one device" if alone else f"{k} ranks{shared}, {rate or 'links as they are'}"
    for name in (name for name in options.codecs if name in cells):
        yield EpochRow(
            problem=f"{model}, {on}", contender=name, model=model, way=way, workers=k, rate=rate,
            device=options.device, batch_size=options.batch_size, image_size=options.image_size,
            n=cells[name]["n"], n_steps=len(cells[name]["seconds"]),
            seconds=Spread.of([one + computing.median * alone for one in cells[name]["seconds"]]),
            computing_seconds=computing, bytes_sent=cells[name]["bytes_sent"],
        )  # fmt: skip


def _title(rows: Sequence[Row]) -> str:
    steps = sorted({int(number_in(row, "n_steps") or 0) for row in rows})
    return f"{text_in(rows[0], 'problem')}: an epoch, extrapolated from {' or '.join(map(str, steps))} steps"


PRESENTATION = Presentation(
    "ImageNet shapes: the time of an epoch, by extrapolation",
    [
        RowTable(
            _title,
            [
                text("codec", "contender"),
                Column("ms per step", "seconds", "ms"),
                Column("computing", "computing_seconds", "ms"),
                Column("exchange", "exchange_seconds", "ms"),
                Column("MB per step", "bytes_sent", "MB"),
                Column("h per epoch", "epoch_hours"),
                Column("from steps", "n_steps", "n"),
            ],
            "exchange: encoding, sending and decoding, beyond computing. Simulated workers take turns on one device, "
            "and nothing is sent. MB sent by one worker; of fp32 and bf16 on ranks, as a ring's all-reduce. h per "
            "epoch: extrapolated, 1,281,167 images ÷ (workers × batch) steps; nobody trained that long.",
            by="problem",
        ),
        Text(left_out),
        BarChart("Hours of an epoch, extrapolated", "epoch_hours", group="problem"),
    ],
)
SUITE = Suite(
    "imagenet",
    ImageNetOptions,
    imagenet_rows,
    """The time of an epoch of ImageNet, extrapolated from some steps of ResNet-18, 34 and 50 on made-up images.

    With --kept, a run goes on where an earlier one stopped.
    """,
)
