"""The suite `glm`: iterations of SGD and CA-SGD over blocks of columns, on ranks, or on a GPU."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

from laconic.bench.glm.runs import BF16, FP32, Given, check_contenders, contenders, glm_on_rank
from laconic.bench.protocol import WrongResult
from laconic.bench.ranks import RankOptions, RankRow, columns_of, noise, rank_fields, resolve_network
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.data import SHAPES, Source
from laconic.errors import InvalidOption, Option
from laconic.exchange.launch import inside_torchrun
from laconic.glm.options import FitOptions
from laconic.kernels import require_gpu
from laconic.measure.solvers import Contender
from laconic.options import check_counts, like, option
from laconic.report import Column, Presentation, Row, RowTable, Text, speedups, where
from laconic.report.documents import shape
from laconic.report.values import names_in, number_in, rows_in, text_in

LARGEST_DIFFERENCE = 1e-5
"""Allowed relative difference between iterates of CA-SGD and SGD, both in float32."""
WORST_GAP = 0.005
"""Relative loss above that of SGD in float32 from which it is mentioned."""
SOURCE = ("target", "sample_weight", "offset", "exposure", "one_hot", "exclude", "dense")
"""Fields of `data.Source` that are options of a file."""
ITERATIONS, ON_GPU = 256, 8192
"""Iterations of a round on ranks and on a GPU, which needs more to reach its speed."""
OF_FILES = ("family", "positive", "standardize", *SOURCE)
"""Options that apply only to a `data` file."""


@dataclass(frozen=True, slots=True)
class GLMOptions(RankOptions):
    """Options of the suite `glm`; ranks are processes, or there is one, on a GPU."""

    problem: Sequence[str] | None = option(None, f"{', '.join(SHAPES)} (synthetic), or all; all.", metavar="NAME,...")
    device: str | None = option(
        None,
        "cuda, cuda:1, ...: one process on this GPU; with --ranks, cuda for ranks with a GPU each, over NCCL.",
        metavar="DEVICE",
    )
    s: Sequence[int] = option(
        (1, 8, 32, 64, 128), "Iterations that share a message in ca_sgd; 1,8,32,64,128.", metavar="N,..."
    )
    batch_size: int = option(8, "Rows of a batch.")
    iterations: int | None = option(
        None, f"Iterations of a round, a multiple of every s; {ITERATIONS}, on a GPU {ON_GPU}."
    )
    repeats: int = option(11, "Timed rounds.")
    recipes: Sequence[str] = option(
        ("fp32", "C", "D"),
        "Precision of ca_sgd: fp32, C, D, fp64; the first three.",
        flag="--recipe",
        metavar="NAME,...",
    )
    teams: Sequence[int] = option(
        (), "Also ca_sgd on so many teams of ranks, each with rows of its own.", metavar="N,..."
    )
    scale: float | None = option(None, "Part of the rows of the synthetic problems; 0.05.")
    data: Path | None = option(None, "Rows of a file, of any format that fit takes.", metavar="FILE")  # noqa: RUF009
    family: str | None = like(FitOptions, "family")
    standardize: bool = option(False, "Scale the file's columns to mean 0 and variance 1.")
    positive: str | None = option(None, "The class that counts as 1, the others as 0.", metavar="CLASS")
    target: str | None = like(Source, "target")
    sample_weight: str | None = like(Source, "sample_weight")
    offset: str | None = like(Source, "offset")
    exposure: str | None = like(Source, "exposure")
    one_hot: Sequence[str] = like(Source, "one_hot")
    exclude: Sequence[str] = like(Source, "exclude")
    dense: bool = like(Source, "dense")

    function: ClassVar[str] = "laconic.bench.glm.runs:glm_on_rank"
    baselines: ClassVar[tuple[str, str]] = (FP32, BF16)

    def __post_init__(self) -> None:
        given = [name for name in (("problem", "scale") if self.data else OF_FILES) if getattr(self, name)]
        why = " is of the synthetic problems; leave it out beside " if self.data else " is for files; give one with "
        if given or (self.data and self.scale is not None):
            raise InvalidOption(Option((given or ["scale"])[0]), why, Option("data"))
        alone = self.device is not None and not (self.ranks or inside_torchrun())
        if self.iterations is None:
            object.__setattr__(self, "iterations", ON_GPU if alone else ITERATIONS)
        check_counts(self)
        check_contenders(self.recipes, self.s, self.iterations or 0)
        self.problems  # noqa: B018 (raises if there is no such problem)
        if alone:
            self._use_one_gpu()
        else:
            resolve_network(self)
        if any(n < 2 or self.ranks % n or (self.iterations or 0) % n for n in self.teams):
            what = f" must be 2 or more, and divide the {self.ranks} ranks and the {self.iterations} iterations; got "
            raise InvalidOption(Option("teams"), what, ",".join(map(str, self.teams)))

    def _use_one_gpu(self) -> None:
        """Set the options for one process on a GPU, without a network."""
        if not str(self.device).startswith("cuda"):
            raise InvalidOption(Option("device"), f" must be a CUDA GPU, such as cuda; got {self.device!r}")
        if self.rate is not None:
            raise InvalidOption(Option("rate"), " is of links between ranks; say how many with ", Option("ranks"))
        require_gpu(self.device)
        object.__setattr__(self, "ranks", 1)

    @property
    def problems(self) -> list[Given]:
        if self.data is not None:
            source = Source(str(self.data), **{name: getattr(self, name) for name in SOURCE})
            return [Given(self.data.name.split(".")[0], 1.0, source, self.family, self.positive, self.standardize)]
        names = ["all"] if self.problem is None else list(self.problem)
        if not names:
            raise InvalidOption("there must be at least one problem, one s and one recipe")
        scale = 0.05 if self.scale is None else self.scale
        return [Given(name, scale) for name in dict.fromkeys(SHAPES if names == ["all"] else names)]

    @property
    def contenders(self) -> list[Contender]:
        """All contenders; one process sends no messages, so runs without messages are left out."""
        return [one for one in contenders(self.recipes, self.s, self.teams) if self.ranks > 1 or not one.silent]

    @property
    def n_parts(self) -> int:
        return len(self.problems) * (self.repeats + 2)

    @property
    def asked(self) -> dict[str, Any]:
        return rank_arguments(self, iterations=self.iterations, repeats=self.repeats, device=self.device)

    def published(self) -> dict[str, Any]:
        """The options as JSON values; files are named without their folders."""
        values = asdict(self)
        return {**values, "data": self.data and self.data.name, "problems": [given.name for given in self.problems]}


@dataclass(frozen=True, slots=True, kw_only=True)
class GLMRow(RankRow):
    """One contender on one problem; seconds, messages and bytes are those of an iteration.

    cpu_seconds  of a rank, all threads; least sensitive to other work on the machine
    messages     reductions over ranks
    loss         half the mean deviance, penalty included, after all iterations; None without messages
    loss_gap     loss over that of SGD in float32 on the same batches, minus 1
    difference   ‖x − x'‖ / ‖x'‖ from the iterate x' of SGD in float32, after the first round
    """

    problem: str
    family: str
    n_rows: int
    n_features: int
    solver: str
    recipe: str
    s: int
    batch_size: int
    n_iterations: int
    cpu_seconds: float
    messages: float
    loss: float | None
    loss_gap: float | None
    difference: float | None

    @property
    def is_floor(self) -> bool:
        """Whether the contender does the work without the messages."""
        return self.loss is None


def glm_rows(options: GLMOptions, progress: Progress = no_progress) -> list[GLMRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    if options.ranks == 1:
        return rows_of(options, [glm_on_rank(progress, **options.asked)])
    results = options.results(progress)
    return None if results is None else rows_of(options, results)


def rows_of(options: GLMOptions, results: Sequence[Any]) -> list[GLMRow]:
    """One row per contender and problem from the results of the ranks."""
    found = [_rows(given.name, options, ranks) for given, *ranks in zip(options.problems, *results, strict=True)]
    return [row for rows in found for row in rows]


def rank_arguments(options: Any, **more: object) -> dict[str, Any]:
    """Arguments of `glm_on_rank` from these options, as JSON values."""
    return {
        "problems": [asdict(given) for given in options.problems],
        "contenders": [asdict(contender) for contender in options.contenders],
        "batch_size": options.batch_size,
        **more,
    }


def check_iterates(contender: Contender, runs: Sequence[dict[str, Any]]) -> float:
    """Relative distance of the iterate from SGD's in float32; raises `WrongResult` if it is too large.

    Also if the ranks' sums, and so intercept and loss, are not the same bit by bit.
    """
    label = contender.label
    if len({run["digest"] for run in runs}) > 1:
        raise WrongResult(f"{label}: the ranks do not have the same margins")
    apart, size = (math.sqrt(sum(run["checked"][i] for run in runs)) for i in (0, 1))
    difference = apart / size if size else apart
    if contender.teams > 1:  # iterates of teams differ from SGD's by design
        return difference
    if not math.isfinite(difference):
        raise WrongResult(f"{label}: the weights are no longer numbers")
    if contender.recipe == "fp32" and difference > LARGEST_DIFFERENCE:
        raise WrongResult(f"{label}: the weights are off by {difference:.3g} of their length from those of {FP32}")
    return difference


def _rows(problem: str, options: GLMOptions, results: Sequence[dict[str, Any]]) -> list[GLMRow]:
    about = {key: results[0][key] for key in ("family", "n_rows", "n_features")}
    found = rank_fields(options, [result["runs"] for result in results])
    base = found[FP32][0][0]["losses"][-1]

    def row(contender: Contender) -> GLMRow:
        ranks, common = found[contender.label]
        silent, loss = contender.silent, ranks[0]["losses"][-1]
        return GLMRow(
            **about,
            **common | ({"bytes_sent": 0.0} if silent else {}),
            **{name: getattr(contender, name) for name in ("solver", "recipe", "s")},
            problem=problem,
            batch_size=options.batch_size,
            n_iterations=ranks[0]["n_iterations"],
            cpu_seconds=mean(mean(run["cpu_seconds"]) for run in ranks),
            messages=0.0 if silent else ranks[0]["messages"],
            loss=None if silent else loss,
            loss_gap=None if silent else loss / base - 1,
            difference=None if silent else check_iterates(contender, ranks),
        )

    return [row(contender) for contender in options.contenders]


def problems(document: Row) -> str:
    """The names of the problems; with its size if there is only one."""
    rows = rows_in(document)
    names = [name for name in names_in(rows, "problem") if name]
    size = f" ({shape(rows[0])})" if len(names) == 1 and shape(rows[0]) else ""
    return f"{', '.join(names)}{size}" or "no rows"


def an_iteration(rows: Sequence[Row]) -> str:
    """The title of a problem's table."""
    first = rows[0]
    return f"{text_in(first, 'problem')}: {shape(first)}, {text_in(first, 'family')}; per iteration"


def is_ours(row: Row) -> bool:
    """Whether a row is of CA-SGD with messages."""
    return text_in(row, "solver") == "ca_sgd" and row.get("is_floor") is not True


def losses(document: Row) -> list[str]:
    """Sentences on problems where CA-SGD is slower than SGD or ends at a worse loss."""
    found = []
    for problem in names_in(rows_in(document), "problem"):
        ours = [row for row in rows_in(document) if text_in(row, "problem") == problem and is_ours(row)]
        slow = [text_in(row, "contender") for row in ours if _speed(row) < 1]
        if slow:
            found.append(f"{problem}: slower than SGD: {', '.join(slow)}.")
        gaps = [(text_in(row, "contender"), number_in(row, "loss_gap") or 0.0) for row in ours]
        worse = [f"{name} (by {100 * gap:.2g} %)" for name, gap in gaps if gap > WORST_GAP]
        if worse:
            found.append(f"{problem}: a loss over {100 * WORST_GAP} % above that of sgd fp32: {', '.join(worse)}.")
    return ["Where we lose:" + ("" if found else " nowhere in this run."), *found]


def _speed(row: Row) -> float:
    ratios = [number_in(row, key) for key in ("speedup_over_fp32", "speedup_over_bf16")]
    return min((ratio for ratio in ratios if ratio is not None), default=1.0)


def _working(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.get("is_floor") is not True]


PER_ITERATION = RowTable(
    an_iteration,
    columns_of(
        Column("µs", "seconds", "µs"),
        Column("CPU µs", "cpu_seconds", "µs"),
        Column("messages", "messages"),
        Column("bytes sent", "bytes_sent"),
        Column("loss gap", "loss_gap", "%"),
    ),
    "µs: the slowest rank's. × fp32, × bf16: speed over sgd fp32 and sgd C in the same round. CPU µs, messages, bytes: "
    "of a rank. loss gap: above that of sgd fp32 "
    "on the same batches. no messages: the same work, each rank alone. teams: per batch, each team at one "
    "of its own; their iterates are their own.",
    by="problem",
)
SPEEDUPS = speedups("SGD in float32, per iteration", group="problem", rows=_working)

PRESENTATION = Presentation(
    lambda document: f"Generalised linear models: {problems(document)}",
    [Text(noise), PER_ITERATION, Text(losses), SPEEDUPS],
    lambda document: f"{where(document)}; SGD sends a message in every iteration, CA-SGD one in s.",
)


SUITE = Suite(
    "glm",
    GLMOptions,
    glm_rows,
    """SGD and CA-SGD over blocks of columns: time, messages, bytes and loss of each precision and each s.

    CA-SGD in fp32 must give SGD's iterates, and all ranks the same bits, before a time counts. Under torchrun, uses
    its ranks. With --device and without --ranks, runs on one GPU.
    """,
)
