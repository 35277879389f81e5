"""The suite `papers ca-sgd`: loss curves and speed of SGD and of CA-SGD in each precision, on the paper's problems."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.papers.ca_sgd.data import source_of
from laconic.bench.glm.data import Given, published
from laconic.bench.glm.runs import FP32, check_contenders
from laconic.bench.glm.suite import check_iterates, results_by_rank
from laconic.bench.options import require_at_least, require_device, require_network
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import slowest
from laconic.measure.solvers import Contender

RANK_FUNCTION = "benchmarks.papers.ca_sgd.rank:ca_sgd_on_rank"
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CASGDOptions:
    """What to run.

    problems    see `given_problems`
    recipes     precision of CA-SGD
    s           iterations that share a message
    batch_size  rows of a batch
    iterations  between two points of a curve, a multiple of every s
    points      of a curve, the start included
    ranks       processes of one thread; one GPU instead, where `device` is one
    rate        of every rank's link, such as "1gbit"; None for loopback
    device      "cpu", or "cuda" for one process on one GPU
    """

    problems: Sequence[Given]
    recipes: Sequence[str] = ("fp32", "C", "D")
    s: Sequence[int] = (32, 128)
    batch_size: int = 8
    iterations: int = 256
    points: int = 9
    ranks: int = 4
    rate: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_at_least(1, self, "batch_size", "iterations")
        require_at_least(3, self, "points")
        check_contenders(self.recipes, self.s, self.iterations)
        require_device(self.device, instead="run on ranks of the CPU")
        if self.device == "cpu":
            require_network(self.ranks, self.rate)

    @property
    def contenders(self) -> list[Contender]:
        """SGD in float32, then CA-SGD."""
        return [Contender("sgd", "fp32"), *(Contender("ca_sgd", name, s) for name in self.recipes for s in self.s)]

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        a_problem = self.points if self.device == "cpu" else 2 + len(self.contenders)
        return len(self.problems) * (1 + a_problem)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, files by their names without the folder."""
        return published(self)


@dataclass(frozen=True, slots=True)
class CASGDRow:
    """One contender on one problem.

    source             the file, or "synthetic"
    seconds            of an iteration: the slowest rank's
    speedup_over_fp32  of the baseline's seconds over its own, point by point
    speedup_over_eager on a GPU, over SGD with one torch operation after another; None elsewhere
    messages           sums over ranks, an iteration
    bytes_sent         by a rank, an iteration
    loss               half the mean deviance over all rows, penalty included, at the end
    loss_gap           that over the baseline's, minus 1
    largest_gap        the same at the point of the curve where it is largest
    difference         ‖x − x'‖ / ‖x'‖ from the baseline's weights, at the first point; None on a GPU
    curve              the loss point by point
    """

    problem: str
    contender: str
    baseline: bool
    source: str
    family: str
    n_rows: int
    n_features: int
    solver: str
    recipe: str
    s: int
    batch_size: int
    ranks: int
    rate: str | None
    device: str
    n_iterations: int
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_eager: float | None
    messages: float
    bytes_sent: float
    loss: float | None
    loss_gap: float | None
    largest_gap: float | None
    difference: float | None
    curve: Sequence[Mapping[str, Any]]


def ca_sgd_rows(options: CASGDOptions, tell: Tell = lambda label: None) -> list[CASGDRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    if options.device != "cpu":
        from benchmarks.papers.ca_sgd.device import device_rows

        return device_rows(options, tell)
    results = results_by_rank(RANK_FUNCTION, options, tell, points=options.points)
    if results is None:
        return None
    return [row for given in options.problems for row in _rows(given, options, results)]


def _rows(given: Given, options: CASGDOptions, results: Sequence[Mapping[str, Any]]) -> list[CASGDRow]:
    about = results[0][given.name]
    lanes = {c.label: [result[given.name]["runs"][c.label] for result in results] for c in options.contenders}
    rounds = {label: slowest(ranks) for label, ranks in lanes.items()}
    base = lanes[FP32][0]["losses"]

    def row(contender: Contender) -> CASGDRow:
        ranks, seconds = lanes[contender.label], rounds[contender.label]
        sent = max(lane["bytes_sent"] for lane in ranks)
        return CASGDRow(
            problem=given.name,
            contender=contender.label,
            baseline=contender.label == FP32,
            source=source_of(given),
            family=about["family"],
            n_rows=about["n_rows"],
            n_features=about["n_features"],
            solver=contender.solver,
            recipe=contender.recipe,
            s=contender.s,
            batch_size=options.batch_size,
            ranks=len(results),
            rate=options.rate,
            device="cpu",
            n_iterations=options.iterations * (options.points - 1),
            seconds=Spread.of(seconds[1:]),
            speedup_over_fp32=speedup(rounds[FP32][1:], seconds[1:]),
            speedup_over_eager=None,
            messages=ranks[0]["messages"],
            bytes_sent=sent,
            difference=check_iterates(contender, ranks),
            curve=curve(options.iterations, ranks[0]["losses"], seconds, sent),
            **gaps(ranks[0]["losses"], base),
        )

    return [row(contender) for contender in options.contenders]


def curve(
    iterations: int, losses: Sequence[float], seconds: Sequence[float], n_bytes: float
) -> list[dict[str, float | int | None]]:
    """Points as they are published: losses (p,) at the start and after each round of seconds (p − 1,) an iteration.

    >>> curve(10, [1.0, 0.5], [0.1], 8.0)[1]
    {'iteration': 10, 'seconds': 1.0, 'bytes': 80.0, 'loss': 0.5}
    """
    return [
        {
            "iteration": i * iterations,
            "seconds": iterations * sum(seconds[:i]),
            "bytes": i * iterations * n_bytes,
            "loss": loss if math.isfinite(loss) else None,
        }
        for i, loss in enumerate(losses)
    ]


def gaps(losses: Sequence[float], base: Sequence[float]) -> dict[str, float | None]:
    """Loss at the end, its relative gap to the baseline's, and the largest gap on the way.

    >>> gaps([1.0, 0.6, 0.5], [1.0, 0.5, 0.5])
    {'loss': 0.5, 'loss_gap': 0.0, 'largest_gap': 0.2}
    """
    if not all(math.isfinite(loss) for loss in losses):
        return {"loss": None, "loss_gap": None, "largest_gap": None}
    found = [round(loss / theirs - 1, 9) for loss, theirs in zip(losses, base, strict=True)]
    return {"loss": losses[-1], "loss_gap": found[-1], "largest_gap": max(found, key=abs)}
