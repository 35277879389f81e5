"""The suite `plan`: predicted against measured time of every option, and the regret of each recommendation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from laconic.bench.network import bits_per_second
from laconic.bench.protocol import Spread
from laconic.bench.ranks import on_ranks
from laconic.exchange.launch import inside_torchrun
from laconic.measure.environment import Environment
from laconic.planner import GlmJob, GlmOption, NetworkJob, Plan, plan
from laconic.planner.calibration import Calibration
from laconic.planner.choice import is_compressed, recommend
from laconic.planner.network import NETWORK_OPTIONS

RANK_FUNCTION = "benchmarks.plan.grid:plan_on_rank"
GLM_ROWS = 10**6
RECIPES = ("fp32", "C", "D")
SLOWER = 1.05
"""Compression that is measured to be so much slower than bfloat16 all-reduce must never be recommended."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The grid.

    ranks          how many, each in turn
    rates          of the links, such as "1gbit"; None for loopback
    s              iterations that share a message
    shapes         (columns, batch size) of generalised linear models
    sizes          gradients of networks
    rounds         timed rounds, each of about `round_seconds` an option
    """

    ranks: Sequence[int] = (1, 2, 4)
    rates: Sequence[str | None] = ("100mbit", "1gbit", None)
    s: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    shapes: Sequence[tuple[int, int]] = ((32, 8), (512, 8), (2048, 8), (512, 32))
    sizes: Sequence[int] = (2**14, 2**18, 2**21)
    rounds: int = 5
    round_seconds: float = 0.05

    def __post_init__(self) -> None:
        if inside_torchrun():
            raise ValueError("bench plan starts ranks of its own, once for each network; run it without torchrun")
        for name in ("ranks", "rates", "s"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        if min(self.ranks) < 1 or max(self.ranks) > 64:
            raise ValueError(f"ranks must be from 1 to 64, got {list(self.ranks)}")
        for rate in self.rates:
            if rate is not None:
                bits_per_second(rate)

    @property
    def cells(self) -> list[tuple[int, str | None]]:
        """(ranks, rate); a single rank has no links."""
        pairs = [(ranks, rate) for ranks in self.ranks for rate in self.rates]
        return list(dict.fromkeys((ranks, rate if ranks > 1 else None) for ranks, rate in pairs))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return sum(1 + len(self.shapes) + (len(self.sizes) if ranks > 1 else 0) for ranks, _ in self.cells)

    @classmethod
    def quick(cls) -> "PlanOptions":
        """A small grid: a minute or two."""
        return cls(ranks=(1, 4), rates=("1gbit", None), s=(1, 8, 64), shapes=((512, 8),), sizes=(2**18,), rounds=3)


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One option of one problem on one network.

    problem      what is to be done
    predicted    seconds of an iteration, or of an exchange
    measured     the same
    recommended  whether the planner says to take it
    compressed   whether it says less than the baselines
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
    should_not       whether every compressed option is measured 5 % slower than bfloat16 all-reduce, or more
    wrongly          whether a compressed option is recommended that is measured so much slower
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


def plan_rows(
    options: PlanOptions, tell: Callable[[str], None] = lambda label: None
) -> tuple[list[PlanRow], list[Calibration]]:
    """Run the grid, network after network; each is removed before the next is made."""
    rows, found = [], []
    machine = asdict(Environment.here())
    for ranks, rate in options.cells:
        problems = _problems(options, ranks)
        arguments = {
            "machine": machine,
            "glm": [p.asked for p in problems if p.kind == "glm"],
            "network": [p.asked for p in problems if p.kind == "network"],
            "rounds": options.rounds,
            "round_seconds": options.round_seconds,
        }
        results = on_ranks(RANK_FUNCTION, arguments, ranks, rate, _saying(tell, ranks, rate))
        if results is None:  # only under torchrun, which PlanOptions refuses
            continue
        calibration = Calibration.from_json(results[0]["calibration"])
        found.append(calibration)
        for problem, measured in zip(problems, results[0]["measured"], strict=True):
            rows += _rows(problem, plan(problem.job, calibration.cluster), measured, ranks, rate)
    return rows, found


@dataclass(frozen=True, slots=True)
class _Problem:
    kind: str
    name: str
    job: GlmJob | NetworkJob
    asked: Mapping[str, Any]


def _problems(options: PlanOptions, ranks: int) -> list[_Problem]:
    ways = [GlmOption("sgd", recipe) for recipe in RECIPES[:2]]
    ways += [GlmOption("ca_sgd", recipe, s) for recipe in RECIPES for s in options.s]
    models = [
        _Problem(
            "glm",
            f"{n} columns, batches of {b}",
            GlmJob(GLM_ROWS, n, batch_size=b, loss_gap=1.0),
            {"n": n, "b": b, "options": [asdict(way) for way in ways]},
        )
        for n, b in options.shapes
    ]
    averages = [
        _Problem(
            "network", f"{n} gradients", NetworkJob(n), {"n": n, "options": [asdict(way) for way in NETWORK_OPTIONS]}
        )
        for n in (options.sizes if ranks > 1 else ())
    ]
    return [*models, *averages]


def _saying(tell: Callable[[str], None], ranks: int, rate: str | None) -> Callable[[str], None]:
    return lambda label: tell(f"{ranks} ranks, {rate or 'loopback'}: {label}")


def _rows(
    problem: _Problem, made: Plan, measured: Mapping[str, Sequence[float]], ranks: int, rate: str | None
) -> list[PlanRow]:
    """Options that were measured, with their prediction; the recommendation is among those."""
    found = [choice for choice in made.choices if choice.option.label in measured]
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
            compressed=is_compressed(choice.option),
        )
        for choice in found
    ]


def regrets(rows: Sequence[PlanRow]) -> list[Regret]:
    """One for each problem on each network."""
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
