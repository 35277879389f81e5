"""`laconic analyze DATA`."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.atomic_write import atomic_write
from laconic.cli import fit_options as o
from laconic.cli.errors import BadInput, bad_input
from laconic.cli.numbers import AUTO, whole_number
from laconic.cli.progress import progress
from laconic.glm.options import DEFAULTS

if TYPE_CHECKING:
    from laconic.glm import Settings
    from laconic.glm.analysis import Analysis, Choice
    from laconic.glm.fit import Prepared

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Asked of every problem, unless the user asks for one."""
PLOTS = (".svg", ".html", ".json")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What there is to show."""

    options: dict[str, Any]
    data: "Prepared"
    settings: "Settings"
    analysis: "Analysis"
    choices: "tuple[Choice, ...]"


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
    standardize: Annotated[
        bool,
        typer.Option("--standardize", help="Columns of mean 0 and variance 1 (a sparse X is not centred)."),
    ] = False,
    tolerance: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Largest error of an outer iteration, as a share of its step."),
    ] = None,
    device: Annotated[str, typer.Option(help="Whose formats: cpu, cuda-ampere or cuda-hopper.")] = "cpu",
    ranks: Annotated[int, typer.Option(parser=whole_number(most=1024), help="Ranks that would share the columns.")] = 4,
    s: Annotated[str, typer.Option(metavar="N", help="Iterations that share a message, or auto.")] = AUTO,
    batch_size: Annotated[int, typer.Option(parser=whole_number(), help="Rows of a batch.")] = 32,
    alpha: Annotated[float, typer.Option(help="Strength of the squared penalty.")] = 1e-4,
    intercept: Annotated[bool, typer.Option(help="Whether there is an intercept.")] = True,
    eta0: Annotated[str, typer.Option(metavar="NUMBER", help="Step size, or auto.")] = AUTO,
    blocks: Annotated[int, typer.Option(parser=whole_number(), help="Outer iterations to look at.")] = 5,
    seed: Annotated[int, typer.Option(parser=whole_number(least=0), help="Of the order of the rows.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Bar plot (.svg), page (.html) or report (.json)."),
    ] = None,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Say what each of the nine precision knobs costs on this data, and which recipe meets a tolerance.

    Runs one epoch in float64 and looks at some outer iterations on the way: bounds, measurements, and the cheapest
    recipe. docs/precision.md derives the bounds.
    """
    given = dict(locals())

    with ExitStack() as stack:
        with bad_input():
            file = stack.enter_context(atomic_write(output)) if output and _checked(output) else None
        begin = stack.enter_context(progress(1 + 9 * blocks, quiet=quiet))
        found = find(given, begin)
        report = make_report(found)
        if file and output:
            file.write(_written(found, report, output.suffix))
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    from laconic.report import show, terminal

    show(terminal("analyze", report))


def find(given: dict[str, Any], begin: Callable[[str], None]) -> Found:
    """Read the file, analyse it, and choose recipes."""
    from laconic.exchange import Communicator
    from laconic.glm.analysis import analyse, choose, device_named, samples
    from laconic.glm.data import Data
    from laconic.glm.fit import prepare
    from laconic.glm.ranks import user_errors
    from laconic.glm.resolve import auto_s, settings_for
    from laconic.glm.source import load

    comm = Communicator.over()
    with bad_input():
        machine, asked = device_named(given["device"]), _tolerance(given["tolerance"])
        options = o.fit_options(given, solver="ca_sgd", learning_rate="constant", recipe="fp64", device=None)
        if options.s == AUTO:
            options = replace(options, s=auto_s(options.batch_size, given["ranks"]))
    begin("one epoch in float64")
    with user_errors(comm):
        data = prepare(options, Data.of_table(load(o.source(given), comm, "fp64"), options), comm)
    settings = settings_for(options, data.problem, data.precision, comm)
    taken, settings = samples(
        data.problem, settings, n_ranks=given["ranks"], n_blocks=given["blocks"], smaller=options.eta0 == AUTO
    )
    with bad_input():
        analysis = analyse(taken, machine, begin)
        wanted = [t for t in TOLERANCES if t >= analysis.exact] if asked is None else [asked]
        choices = tuple(choose(analysis, machine, tolerance) for tolerance in wanted)
    asked_for = {name: value for name, value in given.items() if name not in ("output", "as_json", "quiet", "data")}
    return Found({"data": given["data"].name, **asked_for}, data, settings, analysis, choices)


def _tolerance(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise BadInput(
            f"--tolerance must be a number between 0 and 1 (at 1 the error is as large as the step), got {text!r}"
        )
    return value


def _checked(output: Path) -> bool:
    if output.suffix not in PLOTS:
        raise ValueError(
            f"{output}: a plot is {PLOTS[0]} or {PLOTS[1]}, a report {PLOTS[2]}; give one of these endings"
        )
    return True


def make_report(found: Found) -> dict[str, Any]:
    """All of it as JSON values."""
    from laconic import bench
    from laconic.measure.environment import Environment

    report = bench.document(
        "analyze",
        found.analysis.terms,
        Environment.here(),
        options=found.options,
        n_rows=found.data.problem.columns.m,
        n_features=found.data.n_features,
        family=found.data.family,
        s=found.settings.s,
        eta0=found.settings.schedule.eta0,
        **found.analysis.to_json(),
        choices=[choice.to_json() for choice in found.choices],
    )
    return {name: finite(value) for name, value in report.items()}


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


def _written(found: Found, report: dict[str, Any], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(report, indent=2, allow_nan=False) + "\n"
    if suffix == ".html":
        from laconic import report as pages

        return pages.report("laconic analyze", [pages.Run("analyze", "analyze", report)])[0]
    from laconic.report import Bar, bars

    terms = sorted(found.analysis.terms, key=lambda term: [t.format for t in found.analysis.terms].index(term.format))
    title = f"{found.options['data']}, {found.data.family}: local error of an outer iteration ÷ its step"
    rows = [Bar(f"{term.format}  {term.knob}", term.measured, term.bound) for term in terms]
    return bars(title, rows, ("measured", "bound"))
