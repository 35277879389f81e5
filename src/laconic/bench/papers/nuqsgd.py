"""The suite `papers nuqsgd`: residual networks trained by k workers, whose gradients are quantised in five ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from laconic.bench.checks import WrongResult
from laconic.bench.exchange.suite import check_network, speedup
from laconic.bench.papers.methods import FULL, METHODS, Method, methods
from laconic.bench.papers.networks import NETWORKS
from laconic.bench.papers.pictures import IMAGENET, Pictures, open_pictures
from laconic.bench.papers.simulate import Lane, Schedule, simulate
from laconic.bench.protocol import Spread
from laconic.bench.ranks import on_ranks
from laconic.bench.schemes import require_known
from laconic.data import BadTable
from laconic.data.images import DATASETS, SYNTHETIC

RANK_FUNCTION = "laconic.bench.papers.nuqsgd_rank:nuqsgd_on_rank"
EXCHANGES = ("all_gather", "scatter_reduce", "auto")
FIRST_STEPS = 2
"""Of every run, not timed where there are more: they compile kernels."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NUQSGDOptions:
    """What to run; by default with the paper's numbers, on whatever images are given.

    dataset        "cifar10", "fashion-mnist", "imagenet" or "synthetic"
    data           folder of its files; None for synthetic images
    images         at most so many to train on, and to test; None for all
    model          "resnet-110" and its like for small images, "resnet-18", "-34" and "-50" for large
    methods        names; full precision is always there
    workers        k; ranks, where there are ranks
    batch_size     images of one worker's mini-batch
    iterations     of every method; None for `epochs`
    epochs         passes over the training set
    points         times that everything is looked at
    device         "cpu", "cuda"
    ranks          real processes over torch.distributed instead of simulated workers; None for simulated ones
    exchange       of the quantised methods on ranks; all_gather is Algorithm 1
    """

    dataset: str = SYNTHETIC
    data: str | None = None
    images: int | None = None
    model: str = "resnet-110"
    methods: Sequence[str] = METHODS
    workers: int = 4
    batch_size: int = 128
    bits: int = 4
    bucket_size: int = 8192
    iterations: int | None = None
    epochs: float = 1.0
    points: int = 11
    learning_rate: float = 0.1
    seed: int = 0
    device: str = "cpu"
    ranks: int | None = None
    exchange: str = "all_gather"

    def __post_init__(self) -> None:
        require_known([self.dataset], (*DATASETS, IMAGENET), "data set")
        if self.data is None and self.dataset != SYNTHETIC:
            raise ValueError(f"{self.dataset} is read from files; give their folder with --data DIR")
        if self.data is not None and self.dataset == SYNTHETIC:
            raise ValueError("synthetic images have no files; say which set is in --data with --dataset")
        require_known([self.model], NETWORKS, "model")
        require_known([self.exchange], EXCHANGES, "exchange")
        for name, least in (("workers", 1), ("batch_size", 2), ("points", 2), ("iterations", 1), ("images", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name):g}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must be an integer from 0 to 2**31 - 1, got {self.seed}")
        self.chosen()
        if self.ranks is not None:
            check_network(self.ranks, None)
        if self.device.split(":")[0] not in ("cpu", "cuda"):
            raise ValueError(f"--device must be cpu or cuda, got {self.device!r}")
        if self.device != "cpu" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA GPU here; leave --device out to run on the CPU")

    def chosen(self) -> list[Method]:
        """The methods that take part."""
        return methods(self.methods, self.bits, self.bucket_size)

    @property
    def n_workers(self) -> int:
        """Mini-batches an iteration."""
        return self.workers if self.ranks is None else self.ranks

    @property
    def problem(self) -> str:
        """Its name in tables."""
        return f"{self.dataset} {self.model}"

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return 1 + self.points

    def schedule(self, n_train: int) -> Schedule:
        """How to train on so many images."""
        size = self.n_workers * self.batch_size
        if size > n_train:
            raise BadTable(
                f"{self.n_workers} mini-batches of {self.batch_size} are more than the {n_train} training images; "
                "give a smaller --batch-size"
            )
        iterations = self.iterations or max(1, round(self.epochs * (n_train // size)))
        return Schedule(self.n_workers, self.batch_size, iterations, self.points, self.learning_rate, seed=self.seed)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, the folder left out."""
        return {**asdict(self), "data": None if self.data is None else Path(self.data).name}


@dataclass(frozen=True, slots=True)
class NUQSGDRow:
    """One method.

    n                    parameters of the network
    ranks                workers; `simulated` on one device, or processes
    seconds              of an iteration: of all workers where they are simulated, of the slowest rank otherwise
    speedup_over_fp32    of full precision's seconds over its own, iteration by iteration
    seconds_per_epoch    the median times the iterations of an epoch
    bytes_sent           an iteration: one worker's message where they are simulated, what a rank sends otherwise
    bits_per_coordinate  of the compressed part at fixed width, norms and headers included
    bits_by_coder        the same under each coder, on the gradients of the full-precision run
    entropy              of the symbols there
    variance             E‖Q(g) − g‖² / ‖g‖² along its own run, the mean over the points
    variance_at_fp32     the same on the gradients of the full-precision run: the same for all, so these compare
    bound                the proved bound
    loss, loss_gap       on training images at the end; over full precision's, minus 1
    accuracy             on the test images at the end
    curve                loss, accuracy and both variances point by point
    """

    problem: str
    contender: str
    baseline: bool
    method: str
    source: str
    n: int
    n_train: int
    ranks: int
    simulated: bool
    batch_size: int
    n_iterations: int
    bits: int | None
    bucket_size: int | None
    seconds: Spread
    speedup_over_fp32: Spread
    seconds_per_epoch: float
    bytes_sent: float
    bits_per_coordinate: float
    bits_by_coder: Mapping[str, float] | None
    entropy: float | None
    variance: float | None
    variance_at_fp32: float | None
    bound: float | None
    loss: float | None
    loss_gap: float | None
    accuracy: float
    curve: Sequence[Mapping[str, Any]]


def nuqsgd_rows(options: NUQSGDOptions, tell: Tell = lambda label: None) -> list[NUQSGDRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.ranks is not None:
        return _on_ranks(options, tell)
    device = torch.device(options.device)
    tell("reading the images")
    pictures = open_pictures(options.dataset, options.data, device, options.images)
    lanes = simulate(pictures, options.model, options.chosen(), options.schedule(pictures.n_train), device, tell)
    return rows_from(options, about(pictures), [seen(lane) for lane in lanes])


def about(pictures: Pictures) -> dict[str, Any]:
    """What a row says of the images."""
    return {"source": pictures.source, "n_train": pictures.n_train}


def seen(lane: Lane) -> dict[str, Any]:
    """A lane as JSON values."""
    return {
        "n": sum(p.numel() for p in lane.net.parameters()),
        "seconds": lane.seconds,
        "bytes_sent": lane.n_bytes / len(lane.seconds),
        "curve": lane.curve,
        "at_full": lane.at_full,
    }


def rows_from(options: NUQSGDOptions, images: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> list[NUQSGDRow]:
    """A row a method, from what was seen of each."""
    full = found[0]
    rows = [_row(options, images, m, one, full) for m, one in zip(options.chosen(), found, strict=True)]
    if full["curve"][-1]["loss"] is None:
        raise WrongResult("training in full precision has diverged; give a smaller --learning-rate")
    return rows


def _row(
    options: NUQSGDOptions, images: Mapping[str, Any], method: Method, one: Mapping[str, Any], full: Mapping[str, Any]
) -> NUQSGDRow:
    timed, base = (x["seconds"][FIRST_STEPS:] or x["seconds"] for x in (one, full))
    last, points = one["curve"][-1], full["at_full"].get(method.name, [])
    seconds, q = Spread.of(timed), method.quantizer

    def over_points(key: str) -> float | None:
        return mean(point[key] for point in points) if points else None

    own = [point["variance"] for point in one["curve"] if point.get("variance") is not None]
    coded = {name: mean(point["bits"][name] for point in points) for name in points[0]["bits"]} if points else None
    return NUQSGDRow(
        problem=options.problem,
        contender=method.label,
        baseline=method.name == FULL,
        method=method.name,
        source=images["source"],
        n=one["n"],
        n_train=images["n_train"],
        ranks=options.n_workers,
        simulated=options.ranks is None,
        batch_size=options.batch_size,
        n_iterations=last["iteration"],
        bits=q.bits if method.lossy else None,
        bucket_size=q.bucket_size if method.lossy else None,
        seconds=seconds,
        speedup_over_fp32=speedup(base, timed),
        seconds_per_epoch=seconds.median * (images["n_train"] // (options.n_workers * options.batch_size)),
        bytes_sent=one["bytes_sent"],
        bits_per_coordinate=coded["fixed"] if coded else 32.0,
        bits_by_coder=coded,
        entropy=over_points("entropy"),
        variance=mean(own) if own else None,
        variance_at_fp32=over_points("variance"),
        bound=over_points("bound"),
        loss=last["loss"],
        loss_gap=_gap(last["loss"], full["curve"][-1]["loss"]),
        accuracy=last["accuracy"],
        curve=_joined(one["curve"], points),
    )


def _joined(curve: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The curve with the variance at full precision's gradients beside that of its own run."""
    if not points:
        return [dict(point) for point in curve]
    return [{**a, "variance_at_fp32": b["variance"]} for a, b in zip(curve, points, strict=True)]


def _gap(loss: float | None, base: float | None) -> float | None:
    return loss / base - 1 if loss is not None and base else None


def _on_ranks(options: NUQSGDOptions, tell: Tell) -> list[NUQSGDRow] | None:
    results = on_ranks(RANK_FUNCTION, {"options": asdict(options)}, options.n_workers, None, tell)
    if results is None:
        return None
    if "complaint" in results[0]:
        raise BadTable(results[0]["complaint"])
    for i, method in enumerate(options.chosen()):
        if len({result["lanes"][i]["digest"] for result in results}) > 1:
            raise WrongResult(f"{method.label}: the ranks have ended with different weights")
    return rows_from(options, results[0]["images"], [_slowest(results, i) for i in range(len(options.chosen()))])


def _slowest(results: Sequence[Mapping[str, Any]], i: int) -> dict[str, Any]:
    """Rank 0's view of a lane, with the slowest rank's seconds and the busiest one's bytes."""
    ranks = [result["lanes"][i] for result in results]
    seconds = [max(step) for step in zip(*(rank["seconds"] for rank in ranks), strict=True)]
    return {**ranks[0], "seconds": seconds, "bytes_sent": max(rank["bytes_sent"] for rank in ranks)}
