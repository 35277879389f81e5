"""`laconic plan`: what each option would cost here or elsewhere, and which one to take."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from laconic.atomic_write import atomic_write, check_writable
from laconic.cli.errors import BadInput, bad_input
from laconic.cli.numbers import duration, link_rate, whole_number
from laconic.cli.plan_job import job_for
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.planner import Cluster, Plan
    from laconic.planner.calibration import Calibration
    from laconic.report.svg import Chart

T = TypeVar("T")
TYPICAL = "typical"
CHARTS = (".html", ".svg")


def plan(
    rows: Annotated[int | None, typer.Option(parser=whole_number(), help="Rows of a model's data.")] = None,
    features: Annotated[int | None, typer.Option(parser=whole_number(), help="Columns of a model's data.")] = None,
    density: Annotated[float | None, typer.Option(help="Share of the entries that are not zero; by default 1.")] = None,
    family: Annotated[str | None, typer.Option(help="As for `laconic fit`; by default logistic.")] = None,
    outputs: Annotated[int | None, typer.Option(parser=whole_number(), help="Classes of a multinomial model.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(parser=whole_number(), help="Rows of a batch; by default 32.")
    ] = None,
    s: Annotated[
        int | None, typer.Option("--s", parser=whole_number(), help="Only this many iterations per message; 1 is SGD.")
    ] = None,
    loss_gap: Annotated[
        float | None,
        typer.Option(
            help="How far above fp32 SGD's the loss may end: by default 0.005, which allows C; 0.02 allows D."
        ),
    ] = None,
    parameters: Annotated[int | None, typer.Option(parser=whole_number(), help="Parameters of a network.")] = None,
    backward: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="TIME", help="Its backward pass, such as 80ms; by default 0."),
    ] = None,
    other: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="TIME", help="The rest of a step: forward, update; by default 0."),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(),
            help="Ranks to start here, by default 4; with --from or --calibration, ranks to plan for.",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="What to measure: cpu (the default) or cuda.")] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE|typical", help="Do not measure: use this file, or typical rates.")
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN.json", help="Do not measure: take job and rates of this plan."),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option(parser=link_rate, metavar="RATE", help="Plan for links of this rate, such as 25gbit."),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="TIME", help="Plan for links of this latency, such as 20us."),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Plan for this all-reduce: ring, tree, or best of both.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print every term of the prediction.")] = False,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Draw time against s and against the link's rate: .html or .svg."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="PLAN.json", help="Write the plan.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the calibration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Predict the time of each option and recommend one, which may be not to compress.

    For a model, give --rows and --features; for a network, --parameters. Measures the ranks of this machine, or those
    of torchrun, for some seconds; with --from or --calibration measures nothing. With --from, what is not given is as
    in that plan.
    """
    asked = dict(locals())
    first = os.environ.get("RANK", "0") == "0"
    _check_files(chart, output, save)
    _check_device(asked)
    from laconic.planner import from_json

    old = None if given is None else _read(given, from_json)
    job, s = job_for(asked, old)
    cluster, calibrated = _known(old, calibration)
    if cluster is None:
        calibrated = _measured(ranks, device or "cpu", quiet=quiet or not first)
        if calibrated is None:
            return
        cluster, ranks = calibrated.cluster, None
    from laconic.planner import plan as make

    with bad_input():
        made = make(job, cluster.what_if(ranks, link, latency, algorithm), s)
        document = made.to_json() | ({} if calibrated is None else {"calibration": calibrated.to_json()})
        _write(made, document, calibrated, chart, output, save)
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    elif explain:
        typer.echo(made.explain())
    else:
        from laconic.report import show, terminal
        from laconic.report.runs import PLAN

        for line in (made.cluster.describe(), *(calibrated.lines() if calibrated is not None else [])):
            typer.echo(line)
        show(terminal(PLAN, document))


def _check_device(asked: dict[str, Any]) -> None:
    device, source = asked["device"], "--from" if asked["given"] else "--calibration"
    if device == "cuda" and asked["rows"] is not None:
        raise BadInput(
            "--device cuda measures links and codecs, for a network (--parameters); how long a model's iterations "
            "take on a GPU is measured by laconic bench glm --device cuda"
        )
    if device is not None and (asked["given"] or asked["calibration"]):
        raise BadInput(f"--device is what to measure, and {source} measures nothing")


def _read(path: Path, make: Callable[[Any], T]) -> T:
    """What `make` makes of the JSON in a file."""
    try:
        return make(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _known(old: "Plan | None", calibration: str | None) -> "tuple[Cluster | None, Calibration | None]":
    """The cluster to plan for, if it need not be measured, and the calibration that it comes from, if any."""
    from laconic.planner import DEFAULT
    from laconic.planner.calibration import Calibration

    if calibration is None:
        return None if old is None else old.cluster, None
    if calibration == TYPICAL:
        return DEFAULT, None
    loaded = _read(Path(calibration), Calibration.from_json)
    return loaded.cluster, loaded


def _measured(ranks: int | None, device: str, *, quiet: bool) -> "Calibration | None":
    from laconic.exchange.launch import n_ranks
    from laconic.measure.calibrate import N_PARTS, calibrate_here

    with bad_input():
        size = n_ranks(ranks)
    with progress(N_PARTS, quiet=quiet) as begin, bad_input():
        return calibrate_here(size, device, begin)


def _check_files(chart: Path | None, output: Path | None, save: Path | None) -> None:
    given = [path for path in (chart, output, save) if path is not None]
    for i, path in enumerate(given):
        check_writable(path)
        if path.resolve() in [other.resolve() for other in given[:i]]:
            raise BadInput(f"--chart, --output and --save are files of their own; {path} is given twice")
    if chart is not None and chart.suffix not in CHARTS:
        raise BadInput(
            f"charts are written as {' or '.join(CHARTS)}, not {chart.suffix or 'without an ending'}: {chart}"
        )


def _write(
    made: "Plan",
    document: dict[str, Any],
    calibrated: "Calibration | None",
    chart: Path | None,
    output: Path | None,
    save: Path | None,
) -> None:
    picture = _draw(made, chart) if chart is not None else ""
    if save is not None:
        if calibrated is None:
            raise BadInput(
                "--save writes what was measured, and nothing was; leave out --from and --calibration typical"
            )
        calibrated.save(save)
    for path, text in ((output, json.dumps(document, indent=2, allow_nan=False) + "\n"), (chart, picture)):
        if path is not None:
            with atomic_write(path) as file:
                file.write(text)


def _draw(made: "Plan", path: Path) -> str:
    """The charts as one HTML page with the explanation, or the first as SVG."""
    from laconic.report.svg import lines, page

    found = _charts(made)
    if not found:
        raise BadInput("one rank sends nothing, so that there is nothing to draw")
    return page("A plan by laconic", made.explain(), found) if path.suffix == ".html" else lines(found[0])


def _charts(made: "Plan") -> "list[Chart]":
    """Time against s, if the job has one, and against the rate of the links."""
    from laconic.planner.plan import against_rate, against_s
    from laconic.planner.terms import duration as seconds
    from laconic.planner.terms import rate
    from laconic.report.svg import Chart, Curve

    def curves(found: dict[str, tuple[list[float], list[float]]]) -> list[Curve]:
        return [Curve(name, xs, ys) for name, (xs, ys) in found.items()]

    unit = made.job.unit
    charts, by_s, n_ranks = [], against_s(made), made.cluster.n_ranks
    if by_s:
        blocks = next(iter(by_s.values()))[0]
        mark = (float(getattr(made.recommended.option, "s", 1)), made.recommended.seconds)
        title, axis = f"Time of {unit} against s, {n_ranks} ranks", "s, iterations that share a message"
        charts.append(Chart(title, axis, "time", curves(by_s), y_text=seconds, mark=mark, x_ticks=blocks))
    if n_ranks > 1:
        title, axis = f"Time of {unit} against the link, {n_ranks} ranks", "rate of the links"
        charts.append(Chart(title, axis, "time", curves(against_rate(made)), x_text=rate, y_text=seconds))
    return charts
