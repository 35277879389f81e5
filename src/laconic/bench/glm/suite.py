"""The suite `glm`: iterations of SGD and CA-SGD over blocks of columns, on ranks of one thread each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from laconic.bench.checks import WrongResult
from laconic.bench.glm.contenders import BF16, FP32, Contender, contenders, require_contenders
from laconic.bench.glm.data import Given, published
from laconic.bench.options import require_at_least, require_network
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import on_ranks, slowest
from laconic.data import SHAPES

RANK_FUNCTION = "laconic.bench.glm.rank:glm_on_rank"
LARGEST_DIFFERENCE = 1e-5
"""Of the iterates of CA-SGD from those of SGD, both in float32."""


@dataclass(frozen=True, slots=True)
class GLMOptions:
    """What to run.

    problems    synthetic ones of published shapes, or files; see `Given`
    ranks       how many; each is a process with one thread
    rate        of every host's link, such as "1gbit"; None for loopback, unlimited
    s           iterations that share a message in CA-SGD
    batch_size  rows of a batch
    iterations  of a round
    repeats     timed rounds
    recipes     precision of CA-SGD
    """

    problems: Sequence[Given]
    ranks: int = 4
    rate: str | None = None
    s: Sequence[int] = (1, 8, 32, 64, 128)
    batch_size: int = 8
    iterations: int = 256
    repeats: int = 11
    recipes: Sequence[str] = ("fp32", "C", "D")

    def __post_init__(self) -> None:
        require_at_least(1, self, "batch_size", "iterations", "repeats")
        require_contenders(self.problems, self.recipes, self.s, self.iterations)
        require_network(self.ranks, self.rate)

    @property
    def contenders(self) -> list[Contender]:
        """Everyone who takes part."""
        return contenders(self.recipes, self.s)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.problems) * (self.repeats + 2)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, files by their names without the folder."""
        return published(self)


@dataclass(frozen=True, slots=True)
class GLMRow:
    """One contender on one problem.

    seconds            of one iteration: the slowest rank's
    speedup_over_fp32  seconds of SGD in float32 over its own, round by round
    speedup_over_bf16  the same for SGD with bfloat16 data and margins
    cpu_seconds        of one iteration, a rank, all threads; other work on the machine changes it least
    wire_seconds       of one iteration, waiting for other ranks: the rank that waits most
    messages           sums over ranks, an iteration
    bytes_sent         an iteration, by a rank
    loss               half the mean deviance, penalty included, after all iterations; None without messages
    loss_gap           that over the loss of SGD in float32 on the same batches, minus 1
    difference         ‖x − x'‖ / ‖x'‖ from the iterate x' of SGD in float32, after the first round
    """

    problem: str
    family: str
    n_rows: int
    n_features: int
    contender: str
    solver: str
    recipe: str
    s: int
    batch_size: int
    ranks: int
    rate: str | None
    n_iterations: int
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_bf16: Spread
    cpu_seconds: float
    wire_seconds: float
    messages: float
    bytes_sent: float
    loss: float | None
    loss_gap: float | None
    difference: float | None

    @property
    def is_floor(self) -> bool:
        """Whether it does the work without the messages."""
        return self.loss is None


def synthetic(names: Sequence[str], scale: float) -> list[Given]:
    """Problems by name, or all of them.

    >>> [given.name for given in synthetic(["all"], 0.1)]
    ['epsilon', 'susy', 'higgs', 'synth', 'poisson-synth']
    """
    return [Given(name, scale) for name in dict.fromkeys(SHAPES if list(names) == ["all"] else names)]


def glm_rows(options: GLMOptions, tell: Callable[[str], None] = lambda label: None) -> list[GLMRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    results = seen_by_ranks(RANK_FUNCTION, options, tell, repeats=options.repeats)
    if results is None:
        return None
    return [row for given in options.problems for row in _rows(given.name, options, results)]


def seen_by_ranks(function: str, options: Any, tell: Callable[[str], None], **more: int) -> list[dict[str, Any]] | None:
    """What every rank has seen of the contenders on the problems of these options."""
    arguments = {
        "problems": [asdict(given) for given in options.problems],
        "contenders": [asdict(contender) for contender in options.contenders],
        "batch_size": options.batch_size,
        "iterations": options.iterations,
        **more,
    }
    return on_ranks(function, arguments, options.ranks, options.rate, tell)


def check_iterates(contender: Contender, lanes: Sequence[dict[str, Any]]) -> float:
    """How far the iterate is from SGD's in float32, relatively; `WrongResult` where it should not be that far.

    Every rank must have seen the same sums: the same intercept and the same loss, bit by bit.
    """
    label = contender.label
    if len({lane["digest"] for lane in lanes}) > 1:
        raise WrongResult(f"{label}: the ranks have not seen the same margins")
    apart, size = (math.sqrt(sum(lane["checked"][i] for lane in lanes)) for i in (0, 1))
    difference = apart / size if size else apart
    if not math.isfinite(difference):
        raise WrongResult(f"{label}: the weights are no longer numbers")
    if contender.recipe == "fp32" and difference > LARGEST_DIFFERENCE:
        raise WrongResult(f"{label}: the weights are off by {difference:.3g} of their length from those of {FP32}")
    return difference


def _rows(problem: str, options: GLMOptions, results: Sequence[dict[str, Any]]) -> list[GLMRow]:
    about = results[0][problem]
    lanes = {c.label: [result[problem]["lanes"][c.label] for result in results] for c in options.contenders}
    rounds = {label: slowest(ranks) for label, ranks in lanes.items()}
    base = lanes[FP32][0]["losses"][-1]

    def row(contender: Contender) -> GLMRow:
        ranks, seconds = lanes[contender.label], rounds[contender.label]
        silent, loss = contender.silent, ranks[0]["losses"][-1]
        return GLMRow(
            problem=problem,
            family=about["family"],
            n_rows=about["n_rows"],
            n_features=about["n_features"],
            contender=contender.label,
            solver=contender.solver,
            recipe=contender.recipe,
            s=contender.s,
            batch_size=options.batch_size,
            ranks=len(results),
            rate=options.rate,
            n_iterations=ranks[0]["n_iterations"],
            seconds=Spread.of(seconds),
            speedup_over_fp32=speedup(rounds[FP32], seconds),
            speedup_over_bf16=speedup(rounds[BF16], seconds),
            cpu_seconds=mean(mean(lane["cpu_seconds"]) for lane in ranks),
            wire_seconds=max(lane["wire_seconds"] for lane in ranks),
            messages=0.0 if silent else ranks[0]["messages"],
            bytes_sent=0.0 if silent else max(lane["bytes_sent"] for lane in ranks),
            loss=None if silent else loss,
            loss_gap=None if silent else loss / base - 1,
            difference=None if silent else check_iterates(contender, ranks),
        )

    return [row(contender) for contender in options.contenders]
