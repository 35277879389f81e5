"""`laconic analyze DATA`."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.atomic_write import atomic_write
from laconic.cli import fit as o
from laconic.cli.errors import bad_input
from laconic.cli.numbers import whole_number
from laconic.cli.progress import progress
from laconic.errors import InvalidOption, Option
from laconic.glm.options import DEFAULTS
from laconic.glm.precision import AUTO

if TYPE_CHECKING:
    from laconic.glm.analysis import Term

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""For which recipes are chosen, unless the user asks for one."""
PLOTS = (".svg", ".html", ".json")


def analyze(
    data: Annotated[
        Path, typer.Argument(help="LIBSVM, CSV, Parquet, .npy, .npz, or a store made by `laconic convert`.")
    ],
    family: Annotated[str | None, o.of_fit("family")] = DEFAULTS.family,
    tweedie_power: Annotated[float, o.of_fit("tweedie_power")] = DEFAULTS.tweedie_power,
    target: o.Target = None,
    weight: o.Weight = None,
    offset: o.Offset = None,
    exposure: o.Exposure = None,
    one_hot: o.OneHot = None,
    drop: o.Drop = None,
    dense: o.Dense = False,
    n_features: o.NFeatures = None,
    standardize: Annotated[bool, o.of_fit("standardize", "--standardize")] = DEFAULTS.standardize,
    tolerance: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Largest error of an outer iteration, as a share of its step."),
    ] = None,
    device: Annotated[str, typer.Option(help="Whose formats: cpu, cuda-ampere or cuda-hopper.")] = "cpu",
    ranks: Annotated[int, typer.Option(parser=whole_number(most=1024), help="Ranks that would share the columns.")] = 4,
    s: Annotated[str, o.of_fit("s", metavar="N")] = AUTO,
    batch_size: Annotated[int, o.of_fit("batch_size", parser=whole_number())] = DEFAULTS.batch_size,
    alpha: Annotated[float, typer.Option(help="Strength of the squared penalty.")] = DEFAULTS.alpha,
    intercept: Annotated[bool, o.of_fit("fit_intercept")] = DEFAULTS.fit_intercept,
    eta0: Annotated[str, typer.Option(metavar="NUMBER", help="Step size, or auto.")] = AUTO,
    blocks: Annotated[int, typer.Option(parser=whole_number(), help="Outer iterations to analyse.")] = 5,
    seed: Annotated[int, o.of_fit("seed", parser=whole_number(least=0))] = DEFAULTS.seed,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Bar plot (.svg), page (.html) or report (.json)."),
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Measure the error that each of the nine precision knobs causes on this data; find the cheapest recipe.

    Runs one epoch in float64, takes some outer iterations of it, bounds and measures each knob's error in them, and
    chooses the cheapest recipe that meets a tolerance. docs/precision.md derives the bounds.
    """
    given = dict(locals())

    with ExitStack() as stack:
        with bad_input():
            file = stack.enter_context(atomic_write(output)) if output and _checked(output) else None
        on_progress = stack.enter_context(progress(1 + 9 * blocks, quiet=quiet))
        terms, report = run(given, on_progress)
        if file and output:
            file.write(_file_text(terms, report, output.suffix))
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    from laconic.report import show, terminal

    show(terminal("analyze", report))


def run(given: dict[str, Any], on_progress: Callable[[str], None]) -> "tuple[Sequence[Term], dict[str, Any]]":
    """Read the file, analyse it, and choose recipes: the terms, and all of it as JSON values."""
    from laconic.bench.suite import document
    from laconic.exchange import Communicator
    from laconic.exchange.agreement import user_errors
    from laconic.glm.analysis import analyse, choose, device_named, samples
    from laconic.glm.problem import load, problem_of
    from laconic.glm.resolve import auto_s
    from laconic.measure.environment import Environment

    comm = Communicator.over()
    with bad_input():
        machine, asked = device_named(given["device"]), _tolerance(given["tolerance"])
        options = o.fit_options(given, solver="ca_sgd", learning_rate="constant", recipe="fp64", device=None)
        if options.s == AUTO:
            options = replace(options, s=auto_s(options.batch_size, given["ranks"]))
    on_progress("one epoch in float64")
    with user_errors(comm):
        problem = problem_of(load(o.file_source(given), comm, "fp64"), options)
    taken, used = samples(
        problem, options, n_ranks=given["ranks"], n_blocks=given["blocks"], smaller=options.eta0 == AUTO
    )
    with bad_input():
        analysis = analyse(taken, machine, on_progress)
        tolerances = [t for t in TOLERANCES if t >= analysis.exact] if asked is None else [asked]
        choices = [choose(analysis, machine, tolerance) for tolerance in tolerances]
    shown = {name: value for name, value in given.items() if name not in ("output", "as_json", "quiet", "data")}
    shown |= {name: ",".join(given[name]) if given[name] else None for name in ("one_hot", "drop")}
    report = document(
        "analyze",
        analysis.terms,
        Environment.here(),
        options={"data": given["data"].name, **shown},
        n_rows=problem.columns.m,
        n_features=problem.n_features,
        family=problem.family.option,
        s=used.s,
        eta0=used.eta0,
        **analysis.to_json(),
        choices=[choice.to_json() for choice in choices],
    )
    return analysis.terms, {name: finite(value) for name, value in report.items()}


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        why = " must be a number between 0 and 1 (at 1 the error is as large as the step), "
        raise InvalidOption(Option("tolerance"), why, f"got {text!r}")
    return value


def _checked(output: Path) -> bool:
    if output.suffix not in PLOTS:
        raise ValueError(
            f"{output}: a plot is {PLOTS[0]} or {PLOTS[1]}, a report {PLOTS[2]}; give one of these endings"
        )
    return True


def finite(value: Any) -> Any:
    """A JSON value with None for numbers that JSON lacks, such as the bound of a term that has none.

    >>> finite({"a": [1.5, float("inf")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _file_text(terms: "Sequence[Term]", report: dict[str, Any], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(report, indent=2, allow_nan=False) + "\n"
    from laconic.report import Bar, Run, bars
    from laconic.report import report as page

    if suffix == ".html":
        return page("laconic analyze", [Run("analyze", "analyze", report)])[0]
    formats = [term.format for term in terms]
    ordered = sorted(terms, key=lambda term: formats.index(term.format))
    rows = [Bar(f"{term.format}  {term.knob}", term.measured, limit=term.bound) for term in ordered]
    title = f"{report['options']['data']}, {report['family']}: local error of an outer iteration ÷ its step"
    return bars(title, rows, ("measured", "bound"))
