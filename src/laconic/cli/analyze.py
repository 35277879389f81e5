"""`laconic analyze DATA`."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import typer

from laconic.atomic_write import atomic_write
from laconic.cli.command import BadInput, Printing, bad_input, options_command, progress
from laconic.data.files import Source
from laconic.errors import InvalidOption, Option
from laconic.glm.options import FitOptions
from laconic.glm.precision import AUTO
from laconic.options import option

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Tolerances for which recipes are chosen, unless the user gives one."""
PLOTS = (".svg", ".html", ".json")


OF_FIT = (
    "family",
    "tweedie_power",
    "theta",
    "standardize",
    "s",
    "batch_size",
    "alpha",
    "fit_intercept",
    "eta0",
    "seed",
)
"""Options of a fit that change what an outer iteration computes."""


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """Options of `laconic analyze` besides the file and some options of a fit."""

    tolerance: float | None = option(
        None, "Largest error of an outer iteration, as a share of its step.", metavar="NUMBER"
    )
    device: str = option("cpu", "Whose formats: cpu, cuda-ampere or cuda-hopper.")
    ranks: int = option(4, "Ranks that would share the columns.", most=1024)
    blocks: int = option(5, "Outer iterations to analyse.")
    output: Path | None = option(  # noqa: RUF009
        None, "Bar plot (.svg), page (.html) or report (.json).", flag="--output -o", metavar="FILE"
    )

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            why = " must be a number between 0 and 1 (at 1 the error is as large as the step), "
            raise InvalidOption(Option("tolerance"), why, f"got {self.tolerance:g}")
        if self.output is not None and self.output.suffix not in PLOTS:
            plot, page, report = PLOTS
            raise BadInput(f"{self.output}: a plot is {plot} or {page}, a report {report}; give one of these endings")


def run(data: dict[str, Any], options: dict[str, Any], given: dict[str, Any], printing: dict[str, Any]) -> None:
    """Measure the error that each of the nine precision knobs causes on this data; find the cheapest recipe.

    Runs one epoch in float64, takes some outer iterations of it, bounds and measures each knob's error in them, and
    chooses the cheapest recipe that meets a tolerance. docs/precision.md derives the bounds.
    """
    asked, printed = AnalyzeOptions(**given), Printing(**printing)
    with (
        nullcontext() if asked.output is None else atomic_write(asked.output) as file,
        progress(1 + 9 * asked.blocks, quiet=printed.quiet) as on_progress,
    ):
        report = analysed(Source(**data), options, asked, on_progress)
        if file and asked.output:
            file.write(_file_text(report, asked.output.suffix))
    if printed.as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    from laconic.report import show, terminal

    show(terminal("analyze", report))


analyze = options_command(run, "analyze", Source, (FitOptions, OF_FIT), AnalyzeOptions, Printing)


def analysed(
    source: Source, options: dict[str, Any], asked: AnalyzeOptions, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Read the file, analyse it and choose recipes; the report as JSON values, numbers that JSON lacks as None."""
    from laconic.bench.suite import document
    from laconic.exchange import Communicator
    from laconic.exchange.agreement import user_errors
    from laconic.glm.analysis import analyse, choose, device_named, samples
    from laconic.glm.problem import load, problem_of
    from laconic.glm.resolve import auto_s
    from laconic.measure.environment import Environment

    comm = Communicator.over()
    with bad_input():
        machine = device_named(asked.device)
        fit = FitOptions(**options, solver="ca_sgd", learning_rate="constant", recipe="fp64")
        if fit.s == AUTO:
            fit = replace(fit, s=auto_s(fit.batch_size, asked.ranks))
    on_progress("one epoch in float64")
    with user_errors(comm):
        problem = problem_of(load(source, comm, fit), fit)
    taken, used = samples(problem, fit, n_ranks=asked.ranks, n_blocks=asked.blocks, smaller=fit.eta0 == AUTO)
    with bad_input():
        analysis = analyse(taken, machine, on_progress)
        tolerances = [asked.tolerance] if asked.tolerance else [t for t in TOLERANCES if t >= analysis.exact]
        choices = [choose(analysis, machine, tolerance) for tolerance in tolerances]
    shown = {"data": Path(source.path).name} | asdict(source) | options | asdict(asked)
    shown = {name: value for name, value in shown.items() if name not in ("path", "output") and value not in (None, ())}
    report = document(
        "analyze",
        analysis.terms,
        Environment.here(),
        options=shown,
        n_rows=problem.columns.m,
        n_features=problem.n_features,
        family=problem.family.option,
        s=used.s,
        eta0=used.eta0,
        **analysis.to_json(),
        choices=[choice.to_json() for choice in choices],
    )
    return cast(dict[str, Any], json.loads(json.dumps(report), parse_constant=lambda name: None))


def _file_text(report: dict[str, Any], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(report, indent=2, allow_nan=False) + "\n"
    from laconic.report import Run, bars, sections
    from laconic.report import report as page
    from laconic.report.charts import Bars

    if suffix == ".html":
        return page("laconic analyze", [Run("analyze", "analyze", report)])[0]
    (section,) = sections("analyze", report)
    return bars(next(block for block in section.blocks if isinstance(block, Bars)))
