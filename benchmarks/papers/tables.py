"""The tables of `python -m benchmarks papers`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from benchmarks.goals.outcome import Outcome, goals_table
from benchmarks.papers.ca_sgd import goals as ca_sgd_goals
from benchmarks.papers.ca_sgd.data import SYNTHETIC
from benchmarks.papers.ca_sgd.suite import CASGDRow
from benchmarks.papers.claim import Claim
from benchmarks.papers.nuqsgd import goals as nuqsgd_goals
from benchmarks.papers.nuqsgd.row import NUQSGDRow
from laconic.cli.bench.tables import between, lost, machine, noise, percent
from laconic.report.table import Column, number, table

Rows = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a suite is shown.

    about    one or two sentences: what was run, and what differs from the paper
    tables   of its rows
    losses   where we lose, in sentences
    """

    title: str
    setting: str
    about: Callable[[Rows], str]
    tables: Callable[[Rows], Iterator[RenderableType]]
    losses: Callable[[Rows], list[str]]

    def page(
        self, rows: Rows, claims: Sequence[Claim], outcomes: Sequence[Outcome], environment: Any
    ) -> Iterator[RenderableType]:
        """All that a person is shown."""
        yield machine(environment)
        yield self.about(rows)
        yield f"{noise(rows[0].seconds)}\n"
        for shown in self.tables(rows):
            yield shown
            yield ""
        yield beside(claims)
        yield ""
        yield from lost(self.losses(rows))
        yield from goals_table(outcomes, self.setting)


def beside(claims: Sequence[Claim]) -> RenderableType:
    """The paper's figures beside ours."""
    columns: list[Column[Claim]] = [
        Column("what", lambda c: c.what, "left"),
        Column("published", lambda c: _with_unit(c.published, c.unit)),
        Column("here", lambda c: _with_unit(c.measured, c.unit)),
        Column("holds", lambda c: {True: "yes", False: "no", None: "–"}[c.holds], "left"),
    ]
    return table(
        "Published and measured", columns, claims, f"Published: {'; '.join(dict.fromkeys(c.source for c in claims))}."
    )


def _with_unit(value: float | str | None, unit: str) -> str:
    return "–" if value is None else f"{value if isinstance(value, str) else f'{value:.3g}'} {unit.strip()}".strip()


def _about_ca_sgd(rows: Sequence[CASGDRow]) -> str:
    first = rows[0]
    files = sorted({row.source for row in rows if row.source != SYNTHETIC})
    made = sorted({row.problem for row in rows if row.source == SYNTHETIC})
    where = f"{first.ranks} ranks of one thread" if first.device == "cpu" else "one GPU, one process"
    link = f" over links of {first.rate}" if first.rate else ""
    said = [f"{where}{link}; batches of {first.batch_size}, {first.n_iterations} iterations on the same batches."]
    if files:
        said.append(f"Rows of {', '.join(files)}.")
    if made:
        said.append(f"Synthetic rows of the published shapes: {', '.join(made)}.")
    return " ".join(said)


def _ca_sgd_tables(rows: Sequence[CASGDRow]) -> Iterator[RenderableType]:
    for problem in dict.fromkeys(row.problem for row in rows):
        yield _problem([row for row in rows if row.problem == problem])


def _problem(rows: Sequence[CASGDRow]) -> RenderableType:
    first = rows[0]
    columns: list[Column[CASGDRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("µs", lambda r: number(1e6 * r.seconds.median)),
        Column("×\nfp32", lambda r: number(r.speedup_over_fp32.median)),
        Column("20–80 %", lambda r: between(r.speedup_over_fp32)),
        Column("×\neager", lambda r: number(r.speedup_over_eager)),
        Column("mes-\nsages", lambda r: number(r.messages)),
        Column("loss", lambda r: number(r.loss, 5)),
        Column("gap %", lambda r: percent(r.loss_gap)),
        Column("largest\ngap %", lambda r: percent(r.largest_gap)),
    ]
    return table(
        f"{first.problem}: {first.n_rows:,} × {first.n_features:,}, {first.family}; {first.source}",
        columns,
        rows,
        f"µs an iteration. × fp32: speed over {first.contender} in the same round. gap: of the loss above that of "
        f"{first.contender}, at the end and where it is largest on the way.",
    )


def _about_nuqsgd(rows: Sequence[NUQSGDRow]) -> str:
    first = rows[0]
    who = f"{first.ranks} workers simulated on one device" if first.simulated else f"{first.ranks} ranks"
    return (
        f"{who}, mini-batches of {first.batch_size} each, {first.n_iterations} iterations on the same images "
        f"({first.source}, {first.n_train:,} to train on). Shorter than the paper; 1-D parameters stay in float32."
    )


def _nuqsgd_tables(rows: Sequence[NUQSGDRow]) -> Iterator[RenderableType]:
    first = rows[0]
    columns: list[Column[NUQSGDRow]] = [
        Column("method", lambda r: r.contender, "left"),
        Column("variance,\nown run", lambda r: number(r.variance)),
        Column("at fp32's\ngradients", lambda r: number(r.variance_at_fp32)),
        Column("bound", lambda r: number(r.bound)),
        Column("loss", lambda r: number(r.loss, 4)),
        Column("accuracy\n%", lambda r: f"{100 * r.accuracy:.2f}"),
        Column("ms", lambda r: number(1e3 * r.seconds.median)),
        Column("s an\nepoch", lambda r: number(r.seconds_per_epoch)),
    ]
    yield table(
        f"{first.problem}, {first.n:,} parameters",
        columns,
        rows,
        "variance: of a worker's gradient, E‖Q(g) − g‖² / ‖g‖², mean over the run. ms: an iteration of all workers.",
    )
    coded = [row for row in rows if row.bits_by_coder]
    if coded:
        yield table(
            "Bits a coordinate by coder, on the same gradients", _bits(coded), coded, "Norms, headers included."
        )


def _bits(rows: Sequence[NUQSGDRow]) -> list[Column[NUQSGDRow]]:
    def cell(name: str) -> Callable[[NUQSGDRow], str]:
        return lambda row: number((row.bits_by_coder or {}).get(name))

    coders = [Column(name, cell(name)) for name in (rows[0].bits_by_coder or {})]
    return [
        Column("method", lambda r: r.contender, "left"),
        *coders,
        Column("entropy", lambda r: number(r.entropy)),
        Column("kB sent", lambda r: number(r.bytes_sent / 1e3)),
    ]


CA_SGD = Shown(
    "Mixed-precision CA-SGD for generalised linear models", ca_sgd_goals.SETTING, _about_ca_sgd, _ca_sgd_tables,
    ca_sgd_goals.ca_sgd_losses,
)  # fmt: skip
NUQSGD = Shown(
    "NUQSGD: nonuniform quantisation of gradients", nuqsgd_goals.SETTING, _about_nuqsgd, _nuqsgd_tables,
    nuqsgd_goals.nuqsgd_losses,
)  # fmt: skip
