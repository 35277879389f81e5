"""What to run in the suite `papers nuqsgd`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.papers.checks import check_at_least, check_device
from benchmarks.papers.nuqsgd.batches import IMAGENET
from benchmarks.papers.nuqsgd.images import DATASETS, SYNTHETIC
from benchmarks.papers.nuqsgd.methods import METHODS, Method, methods
from benchmarks.papers.nuqsgd.networks import NETWORKS
from benchmarks.papers.nuqsgd.training import Schedule
from laconic.bench.ranks import check_network
from laconic.data import BadTable
from laconic.errors import InvalidOption, Option
from laconic.options import check_names

EXCHANGES = ("all_gather", "scatter_reduce", "auto")


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
    points         points of a curve, the start and the end included
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
        check_names([self.dataset], (*DATASETS, IMAGENET), "data set")
        if self.data is None and self.dataset != SYNTHETIC:
            raise InvalidOption(f"{self.dataset} is read from files; give their folder with ", Option("data", ...))
        if self.data is not None and self.dataset == SYNTHETIC:
            raise InvalidOption(
                "synthetic images have no files; say which set is in ", Option("data"), " with ", Option("dataset", ...)
            )
        check_names([self.model], NETWORKS, "model")
        check_names([self.exchange], EXCHANGES, "exchange")
        check_at_least(1, self, "workers", "iterations", "images")
        check_at_least(2, self, "batch_size", "points")
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) > 0:
                raise InvalidOption(Option(name), f" must be above 0, got {getattr(self, name):g}")
        if not 0 <= self.seed < 2**31:
            raise InvalidOption(Option("seed"), f" must be an integer from 0 to 2**31 - 1, got {self.seed}")
        self.chosen()
        if self.ranks is not None:
            check_network(self.ranks, None)
        check_device(self.device, instead="run on the CPU")

    def chosen(self) -> list[Method]:
        """The methods that take part."""
        return methods(self.methods, self.bits, self.bucket_size)

    @property
    def n_workers(self) -> int:
        """Mini-batches per iteration."""
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
                "give a smaller ",
                Option("batch_size"),
            )
        iterations = self.iterations or max(1, round(self.epochs * (n_train // size)))
        return Schedule(self.n_workers, self.batch_size, iterations, self.points, self.learning_rate, seed=self.seed)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, the folder left out."""
        return {**asdict(self), "data": None if self.data is None else Path(self.data).name}
