"""The suite `sensitivity`: where s-step SGD loses digits, by s, batch size and condition number.

CA-SGD computes SGD's iterates from Gram matrices; in exact arithmetic they are the same. Here both run on the same
batches in one process, in float32 and Recipe C, and are compared with SGD in float64.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from laconic.bench.glm.runs import SEED, GLMRun, distance, objective, rounds_of
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.exchange import Communicator
from laconic.glm import FitOptions, Problem, auto_eta0
from laconic.glm.families import FAMILIES
from laconic.glm.problem import make_problem
from laconic.measure.solvers import Contender, Copies
from laconic.options import check_counts, option
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, text
from laconic.report.values import Row, number_in, rows_in, text_in

REFERENCE, PLAIN = Contender("sgd", "fp64"), Contender("sgd", "fp32")
BASE = {"s": 16, "batch_size": 8, "condition": 100.0}
VARIED = {"s": (1, 4, 16, 64, 256), "batch_size": (8, 32, 128, 512), "condition": (1.0, 1e2, 1e4, 1e6)}
"""Values of each parameter, varied one at a time with the others as in BASE."""


@dataclass(frozen=True, slots=True)
class SensitivityOptions:
    """What to run."""

    rows: int = option(8192, "Rows of the logistic problem.")
    columns: int = option(64, "Its columns.")
    iterations: int = option(2048, "Iterations, a multiple of 256.")

    def __post_init__(self) -> None:
        check_counts(self)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return sum(len(values) for values in VARIED.values())


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """One setting.

    varied      the parameter varied: s, batch_size or condition; `value` is its value
    condition   largest over smallest eigenvalue of the columns' second moments
    sgd_fp32, ca_sgd_fp32, ca_sgd_C  ‖x − x'‖ / ‖x'‖ from the weights of SGD in float64
    digits_lost  decimal digits that s-step in float32 loses to SGD in float32: log₁₀ of their ratio
    gap_fp32, gap_C  relative loss above that of SGD in float64
    """

    varied: str
    value: float
    s: int
    batch_size: int
    condition: float
    sgd_fp32: float
    ca_sgd_fp32: float
    ca_sgd_C: float
    digits_lost: float
    gap_fp32: float
    gap_C: float


def conditioned(rows: int, columns: int, condition: float) -> Problem:
    """Logistic labels of normal columns, whose variances go from 1 to 1/condition."""
    generator = torch.Generator().manual_seed(SEED)
    scale = torch.logspace(0, -0.5 * math.log10(condition), columns, dtype=torch.float64)
    X = torch.randn(rows, columns, generator=generator, dtype=torch.float64) * scale
    margins = X @ (torch.randn(columns, generator=generator, dtype=torch.float64) / scale.norm())
    y = (torch.rand(rows, generator=generator) < margins.sigmoid()).float()
    family = FAMILIES["logistic"].of()
    more: dict[str, Any] = {"comm": Communicator(), "first": 0, "n_features": columns}
    return make_problem(FitOptions(recipe="fp32", standardize=False), X.float(), family, y, None, **more)


def compared(options: SensitivityOptions, s: int, batch_size: int, condition: float) -> dict[str, float]:
    """Distances and gaps of one setting, by the names of the row."""
    problem, comm = conditioned(options.rows, options.columns, condition), Communicator()
    eta, copies = auto_eta0(problem, PLAIN.options(1.0, batch_size, SEED), comm), Copies(problem)
    rows = rounds_of(problem.n_rows, 1, options.iterations * batch_size)[0]
    everyone = {"fp64": REFERENCE, "sgd_fp32": PLAIN, "ca_sgd_fp32": Contender("ca_sgd", "fp32", s),
                "ca_sgd_C": Contender("ca_sgd", "C", s)}  # fmt: skip
    runs = {name: GLMRun.of(one, copies, batch_size, comm, eta, SEED) for name, one in everyone.items()}
    for run in runs.values():
        run.run(rows)
    reference = runs.pop("fp64")
    losses = {name: objective(problem, run.options, run.state, comm) for name, run in runs.items()}
    best = objective(problem, reference.options, reference.state, comm)
    found = {}
    for name, run in runs.items():
        apart, size = distance(run.state, reference.state, comm.rank)
        found[name] = math.sqrt(apart / size)
    gaps = {f"gap_{name.rpartition('_')[2]}": losses[name] / best - 1 for name in ("ca_sgd_fp32", "ca_sgd_C")}
    return {**found, "digits_lost": math.log10(found["ca_sgd_fp32"] / found["sgd_fp32"]), **gaps}


def sensitivity_rows(options: SensitivityOptions, progress: Progress = no_progress) -> list[SensitivityRow]:
    """One row for each value of each varied parameter."""
    rows = []
    for varied, values in VARIED.items():
        for value in values:
            progress(f"{varied} = {value:g}")
            setting: dict[str, Any] = {**BASE, varied: value}
            found: dict[str, Any] = compared(options, **setting)
            rows.append(SensitivityRow(varied=varied, value=value, **setting, **found))
    return rows


def _curves(rows: list[Row]) -> list[Row]:
    """A curve for each contender over the varied parameter."""
    names = {"sgd_fp32": "SGD, float32", "ca_sgd_fp32": "CA-SGD, float32", "ca_sgd_C": "CA-SGD, Recipe C"}
    found: list[Row] = []
    for varied in VARIED:
        own = [row for row in rows if row.get("varied") == varied]
        for key, label in names.items():
            points = [{"value": row.get("value"), "distance": row.get(key)} for row in own]
            found.append({"problem": varied, "contender": label, "curve": points})
    return found


def _setting(row: Row) -> str:
    return f"{text_in(row, 'varied').replace('_', ' ')} = {number_in(row, 'value') or 0:g}"


def about(document: Row) -> str:
    asked: Sequence[str] = [f"{name} {value:g}" for name, value in BASE.items()]
    n = number_in(document.get("options"), "iterations") or 0
    return f"Logistic regression, {n:.0f} iterations on the same batches; unless varied: {', '.join(asked)}."


PRESENTATION = Presentation(
    "Where s-step SGD loses digits",
    [
        RowTable(
            "Distances from SGD in float64",
            [
                text("setting", _setting),
                Column("SGD fp32", "sgd_fp32"),
                Column("CA-SGD fp32", "ca_sgd_fp32"),
                Column("Recipe C", "ca_sgd_C"),
                Column("digits lost", "digits_lost"),
                Column("gap fp32", "gap_fp32", "%"),
                Column("gap C", "gap_C", "%"),
            ],
            "‖x − x'‖ / ‖x'‖. digits lost: of CA-SGD in float32 against SGD in float32. gap: of the loss.",
        ),
        LineChart(Axis("distance", "distance from float64"), axes=[Axis("value", "value")], rows=_curves, by="problem",
                  log=True, log_x=True),
    ],
    lambda document: about(document) if rows_in(document) else "",
)  # fmt: skip
SUITE = Suite(
    "sensitivity",
    SensitivityOptions,
    sensitivity_rows,
    """Where s-step SGD loses digits: distance from SGD in float64 by s, batch size and condition number.""",
)
