"""`laconic plan`: what every option would cost here, or elsewhere, and which one to take."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.atomic_write import atomic_write, check_writable
from laconic.cli.errors import BadInput, bad_input
from laconic.cli.numbers import whole_number
from laconic.cli.plan_job import job_for
from laconic.cli.plan_numbers import duration, link_rate
from laconic.cli.progress import progress

if TYPE_CHECKING:
    from laconic.planner import Cluster, GlmJob, NetworkJob, Plan
    from laconic.planner.calibration import Calibration

TYPICAL = "typical"


def plan(
    rows: Annotated[int | None, typer.Option(parser=whole_number(), help="Rows of a model's data.")] = None,
    features: Annotated[int | None, typer.Option(parser=whole_number(), help="Columns of a model's data.")] = None,
    density: Annotated[float | None, typer.Option(help="Share of the entries that are not zero; 1.")] = None,
    family: Annotated[
        str | None, typer.Option(help="logistic, which is meant otherwise, linear, poisson or multinomial.")
    ] = None,
    outputs: Annotated[int | None, typer.Option(parser=whole_number(), help="Classes of a multinomial model.")] = None,
    batch_size: Annotated[int | None, typer.Option(parser=whole_number(), help="Rows of a batch; 32.")] = None,
    s: Annotated[
        int | None, typer.Option("--s", parser=whole_number(), help="Only this many iterations a message; 1 is SGD.")
    ] = None,
    loss_gap: Annotated[
        float | None,
        typer.Option(help="How far above fp32 SGD's the loss may end: 0.005, for recipe C; 0.02 for D, too."),
    ] = None,
    parameters: Annotated[int | None, typer.Option(parser=whole_number(), help="Parameters of a network.")] = None,
    backward: Annotated[
        float | None, typer.Option(parser=duration, help="A backward pass of it, such as 80ms; 0.")
    ] = None,
    other: Annotated[
        float | None, typer.Option(parser=duration, help="The rest of a step: forward, update; 0.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(), help="Ranks to start here, 4 if not given; from a file, ranks to plan for."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="What to measure: cpu, which is meant otherwise, or cuda.")] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE|typical", help="Do not measure: use this file, or typical rates.")
    ] = None,
    given: Annotated[
        Path | None, typer.Option("--from", metavar="PLAN.json", help="Do not measure: what if this plan's were …")
    ] = None,
    link: Annotated[
        float | None, typer.Option(parser=link_rate, help="… on links of this rate, such as 25gbit.")
    ] = None,
    latency: Annotated[float | None, typer.Option(parser=duration, help="… and this latency, such as 20us.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="… whose all-reduce is a ring, a tree, or the best of both.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print every term of the arithmetic.")] = False,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Draw time against s and the link: .html, or .svg.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="PLAN.json", help="Write the plan.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the calibration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Predict the time of every option, recommend one, and say why; also when that is not to compress.

    For a model, give --rows and --features; for a network, --parameters. Measures the ranks of this machine, or those
    of torchrun, for some seconds; with --from or --calibration measures nothing. Beside --from, what is given comes
    first, and the rest is as in that plan.
    """
    asked = dict(locals())
    first = os.environ.get("RANK", "0") == "0"
    with bad_input():
        _check_files(chart, output, save)
        if device == "cuda" and rows is not None:
            raise BadInput(
                "--device cuda measures links and codecs, for a network (--parameters); how long a model's iterations "
                "take on a GPU is measured by python -m benchmarks glm --device cuda"
            )
        if device is not None and (given or calibration):
            raise BadInput(
                f"--device is what to measure, and {'--from' if given else '--calibration'} measures nothing"
            )
        old = _former(given)
        job, s = job_for(asked, old)
        cluster = old.cluster if old is not None and calibration is None else None
        found = None if cluster is not None or calibration == TYPICAL else _load(calibration)
    if cluster is None and found is None and calibration != TYPICAL:
        found = _measured(ranks, device or "cpu", quiet=quiet or not first)
        if found is None:
            return
        ranks = None
    with bad_input():
        made = _plan(job, _cluster(cluster, found), s, (ranks, link, latency, algorithm))
        document = _document(made, found)
        _write(made, document, found, chart, output, save)
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    elif explain:
        typer.echo(made.explain())
    else:
        from laconic.cli.plan_tables import shown
        from laconic.report import show

        show(shown(made, found))


def _former(path: Path | None) -> "Plan | None":
    from laconic.planner import from_json

    if path is None:
        return None
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _load(path: str | None) -> "Calibration | None":
    from laconic.planner.calibration import Calibration

    if path is None:
        return None
    try:
        return Calibration.load(Path(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


def _measured(ranks: int | None, device: str, *, quiet: bool) -> "Calibration | None":
    from laconic.exchange.launch import n_ranks
    from laconic.measure.calibrate import N_PARTS, calibrate_here

    with bad_input():
        size = n_ranks(ranks)
    with progress(N_PARTS, quiet=quiet) as begin, bad_input():
        return calibrate_here(size, device, begin)


def _cluster(cluster: "Cluster | None", found: "Calibration | None") -> "Cluster":
    from laconic.planner import DEFAULT

    return cluster or (found.cluster if found is not None else DEFAULT)


def _plan(
    job: "GlmJob | NetworkJob", cluster: "Cluster", s: int | None, elsewhere: tuple[Any, Any, Any, Any]
) -> "Plan":
    from laconic.planner import plan as make

    ranks, link, latency, algorithm = elsewhere
    return make(job, cluster.what_if(ranks, link, latency, algorithm), s)


def _document(made: "Plan", found: "Calibration | None") -> dict[str, Any]:
    document = made.to_json()
    if found is not None:
        document["calibration"] = found.to_json()
    return document


def _check_files(chart: Path | None, output: Path | None, save: Path | None) -> None:
    from laconic.cli.plan_tables import CHARTS

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
    found: "Calibration | None",
    chart: Path | None,
    output: Path | None,
    save: Path | None,
) -> None:
    from laconic.cli.plan_tables import draw

    picture = draw(made, chart) if chart is not None else ""
    if save is not None:
        if found is None:
            raise BadInput(
                "--save writes what was measured, and nothing was; leave out --from and --calibration typical"
            )
        found.save(save)
    if output is not None:
        with atomic_write(output) as file:
            file.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    if chart is not None:
        with atomic_write(chart) as file:
            file.write(picture)
