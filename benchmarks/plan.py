"""The suite `plan`: predicted and measured time of every option, and the regret of each recommendation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from laconic.bench.protocol import Spread
from laconic.bench.ranks import on_ranks
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.exchange.emulated_network import bits_per_second
from laconic.exchange.launch import inside_torchrun
from laconic.measure.calibrate import Calibration
from laconic.measure.environment import Environment
from laconic.options import option
from laconic.planner import GlmJob, GlmOption, NetworkJob, Plan, plan
from laconic.planner.network import NETWORK_OPTIONS
from laconic.planner.plan import recommend
from laconic.report import BarChart, Column, Presentation, RowTable, text
from laconic.report.values import Row, number_in, text_in

RANK_FUNCTION = "benchmarks.plan_measurement:plan_on_rank"
GLM_ROWS = 10**6
RECIPES = ("fp32", "C", "D")
SLOWER = 1.05
"""Compression measured to be slower than bfloat16 all-reduce by this factor must not be recommended."""
LOOPBACK = "loopback"
ROUND_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The grid of ranks, links and options of a problem."""

    ranks: Sequence[int] = option((1, 2, 4), "Ranks to start, each number in turn; 1,2,4.", metavar="N,...")
    rates: Sequence[str] = option(
        ("100mbit", "1gbit", LOOPBACK),
        "Emulated links; they need root and iproute2, unless it is loopback; 100mbit,1gbit,loopback.",
        metavar="RATE,...",
    )
    s: Sequence[int] = option((1, 2, 4, 8, 16, 32, 64), "Iterations per message; 1,2,4,...,64.", metavar="N,...")
    quick: bool = option(False, "A small grid, of about a minute.")

    def __post_init__(self) -> None:
        if inside_torchrun():
            raise InvalidOption("the suite plan starts ranks of its own for each network; run it without torchrun")
        if self.quick:
            for name, value in (("ranks", (1, 4)), ("rates", ("1gbit", LOOPBACK)), ("s", (1, 8, 64))):
                object.__setattr__(self, name, value)
        for name in ("ranks", "rates", "s"):
            if not getattr(self, name):
                raise InvalidOption(Option(name), " must not be empty")
        if min(self.ranks) < 1 or max(self.ranks) > 64:
            raise InvalidOption(Option("ranks"), f" must be from 1 to 64, got {list(self.ranks)}")
        for rate in self.links:
            if rate is not None:
                bits_per_second(rate)

    @property
    def links(self) -> list[str | None]:
        """Rates of the links; None for loopback."""
        return [None if rate == LOOPBACK else rate for rate in self.rates]

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """Columns and batch sizes of generalised linear models."""
        return ((512, 8),) if self.quick else ((32, 8), (512, 8), (2048, 8), (512, 32))

    @property
    def sizes(self) -> Sequence[int]:
        """Numbers of gradient values of networks."""
        return (2**18,) if self.quick else (2**14, 2**18, 2**21)

    @property
    def rounds(self) -> int:
        """Timed rounds, each of about `ROUND_SECONDS` per option."""
        return 3 if self.quick else 5

    @property
    def cells(self) -> list[tuple[int, str | None]]:
        """(ranks, rate); a single rank has no links."""
        pairs = [(ranks, rate) for ranks in self.ranks for rate in self.links]
        return list(dict.fromkeys((ranks, rate if ranks > 1 else None) for ranks, rate in pairs))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return sum(1 + len(self.shapes) + (len(self.sizes) if ranks > 1 else 0) for ranks, _ in self.cells)

    def published(self) -> dict[str, Any]:
        """The grid as JSON values."""
        names = ("ranks", "s", "shapes", "sizes", "rounds")
        return {**{name: getattr(self, name) for name in names}, "rates": self.links, "round_seconds": ROUND_SECONDS}


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One option of one problem on one network.

    predicted, measured  seconds of an iteration, or of an exchange
    recommended  whether the planner recommends it
    compressed   whether it sends less than the baselines
    """

    kind: str
    problem: str
    ranks: int
    rate: str | None
    option: str
    predicted: float
    measured: Spread
    recommended: bool
    compressed: bool

    @property
    def error(self) -> float:
        """Predicted ÷ measured − 1."""
        return self.predicted / self.measured.median - 1


@dataclass(frozen=True, slots=True)
class Regret:
    """One recommendation.

    regret           time of the recommended option ÷ time of the fastest, both measured
    against_bf16     time of the recommended option ÷ that of the bfloat16 baseline
    should_not       whether every compressed option is measured at least 5 % slower than bfloat16 all-reduce
    wrongly          whether a compressed option that is at least 5 % slower is recommended
    """

    kind: str
    problem: str
    ranks: int
    rate: str | None
    recommended: str
    best: str
    regret: float
    against_bf16: float
    should_not: bool
    wrongly: bool


def plan_rows(options: PlanOptions, progress: Progress = no_progress) -> dict[str, Any]:
    """Run the grid, one emulated network after another; returns rows, regrets and calibrations."""
    rows: list[PlanRow] = []
    calibrations = []
    for ranks, rate in options.cells:
        calibration, found = _cell(options, ranks, rate, progress)
        rows += found
        calibrations.append({k: v for k, v in calibration.to_json().items() if k != "machine"})  # rows have it
    return {"regrets": [asdict(one) for one in regrets(rows)], "calibrations": calibrations, "rows": rows}


def _cell(options: PlanOptions, ranks: int, rate: str | None, progress: Progress) -> tuple[Calibration, list[PlanRow]]:
    """One network: its calibration, and rows of predicted and measured times for every problem."""
    problems = _problems(options, ranks)
    arguments = {
        "machine": asdict(Environment.here()),
        "glm": [p.asked for p in problems if p.kind == "glm"],
        "network": [p.asked for p in problems if p.kind == "network"],
        "rounds": options.rounds,
        "round_seconds": ROUND_SECONDS,
    }
    where = f"{ranks} ranks, {rate or LOOPBACK}"
    (first, *_) = on_ranks(RANK_FUNCTION, arguments, ranks, rate, lambda label: progress(f"{where}: {label}")) or []
    calibration = Calibration.from_json(first["calibration"])
    rows: list[PlanRow] = []
    for problem, measured in zip(problems, first["measured"], strict=True):
        rows += _rows(problem, plan(problem.job, calibration.cluster), measured, ranks, rate)
    return calibration, rows


@dataclass(frozen=True, slots=True)
class _Problem:
    kind: str
    name: str
    job: GlmJob | NetworkJob
    asked: Mapping[str, Any]


def _problems(options: PlanOptions, ranks: int) -> list[_Problem]:
    solvers = [GlmOption("sgd", recipe) for recipe in RECIPES[:2]]
    solvers += [GlmOption("ca_sgd", recipe, s) for recipe in RECIPES for s in options.s]
    models = [
        _Problem(
            "glm",
            f"{n} columns, batches of {b}",
            GlmJob(GLM_ROWS, n, batch_size=b, loss_gap=1.0),
            {"n": n, "b": b, "options": [asdict(solver) for solver in solvers]},
        )
        for n, b in options.shapes
    ]
    averages = [
        _Problem(
            "network",
            f"{n} gradients",
            NetworkJob(n),
            {"n": n, "options": [asdict(one) for one in NETWORK_OPTIONS]},
        )
        for n in (options.sizes if ranks > 1 else ())
    ]
    return [*models, *averages]


def _rows(
    problem: _Problem, made: Plan, measured: Mapping[str, Sequence[float]], ranks: int, rate: str | None
) -> list[PlanRow]:
    """Rows of the options that were measured, the recommendation among them."""
    found = [choice for choice in made.predictions if choice.option.label in measured]
    chosen = recommend(problem.job, found, made.cluster).option.label
    return [
        PlanRow(
            kind=problem.kind,
            problem=problem.name,
            ranks=ranks,
            rate=rate,
            option=choice.option.label,
            predicted=choice.seconds,
            measured=Spread.of(measured[choice.option.label]),
            recommended=choice.option.label == chosen,
            compressed=choice.option.compressed,
        )
        for choice in found
    ]


def regrets(rows: Sequence[PlanRow]) -> list[Regret]:
    """One regret for each problem on each network."""
    cells = dict.fromkeys((row.kind, row.problem, row.ranks, row.rate) for row in rows)
    return [_regret([r for r in rows if (r.kind, r.problem, r.ranks, r.rate) == cell]) for cell in cells]


def _regret(rows: Sequence[PlanRow]) -> Regret:
    best = min(rows, key=lambda row: row.measured.median)
    chosen = next(row for row in rows if row.recommended)
    plain = "bf16 all_reduce" if chosen.kind == "network" else "sgd C"
    bf16 = next(row for row in rows if row.option == plain).measured.median
    less = [row.measured.median for row in rows if row.compressed]
    return Regret(
        chosen.kind,
        chosen.problem,
        chosen.ranks,
        chosen.rate,
        chosen.option,
        best.option,
        chosen.measured.median / best.measured.median,
        chosen.measured.median / bf16,
        bool(less) and min(less) >= SLOWER * bf16,
        chosen.compressed and chosen.measured.median >= SLOWER * bf16,
    )


def _where(row: Row) -> str:
    return f"{text_in(row, 'ranks')} × {text_in(row, 'rate', 'loopback')}"


def _chosen(row: Row) -> str:
    return f"{_where(row)}: {text_in(row, 'option')}"


def _worst(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -abs(number_in(row, "error") or 0.0))[:12]


PRESENTATION = Presentation(
    "Predictions and what was measured",
    [
        RowTable(
            "Recommendations",
            [
                text("ranks and link", _where),
                text("problem", "problem"),
                text("recommended", "recommended"),
                text("fastest", "best"),
                Column("regret", "regret"),
            ],
            "regret: time of what is recommended over that of the fastest option, both measured.",
            of="regrets",
        ),
        RowTable(
            "The worst predictions",
            [
                text("ranks and link", _where),
                text("problem", "problem"),
                text("option", "option"),
                Column("predicted", "predicted", "s"),
                Column("measured", "measured", "s"),
                Column("error", "error", "%"),
            ],
            rows=_worst,
        ),
        BarChart(
            "What is recommended: measured, beside what was predicted",
            "measured",
            "s",
            label=_chosen,
            group="problem",
            limit=("predicted", "predicted"),
            log=True,
            rows=lambda rows: [row for row in rows if row.get("recommended") is True],
        ),
    ],
)
SUITE = Suite(
    "plan",
    PlanOptions,
    plan_rows,
    """Calibrate on each network, run every option there, and compare with what was predicted.

    Below ten minutes on two cores; every network is removed before the next is made.
    """,
)
