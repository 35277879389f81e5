"""`laconic plan`: predict the cost of each option here or elsewhere, and recommend one."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from laconic.atomic_write import atomic_write, check_writable
from laconic.cli.command import BadInput, Printing, bad_input, options_command, progress
from laconic.errors import InvalidOption, Option
from laconic.options import option
from laconic.planner import DEFAULT, GlmJob, NetworkJob, from_json
from laconic.planner import plan as make
from laconic.planner.plan import JOBS

if TYPE_CHECKING:
    from laconic.measure.calibrate import Calibration
    from laconic.planner import Plan
    from laconic.planner.plan import Job

T = TypeVar("T")
TYPICAL = "typical"
CHARTS = (".html", ".svg")
KINDS = {"glm": "model", "network": "network"}
"""Kinds of job, and their names in messages."""


@dataclass(frozen=True, slots=True)
class PlanOptions(Printing):
    """Options of `laconic plan` besides a job: the cluster, and where the plan goes."""

    s: int | None = option(None, "Only this many iterations per message; 1 is SGD.")
    ranks: int | None = option(
        None, "Ranks to start here, by default 4; with --from or --calibration, ranks to plan for."
    )
    device: str | None = option(None, "What to measure: cpu (the default) or cuda.")
    gradient: str | None = option(
        None, "What to measure bits and errors of codecs on; by default log-normal values.", metavar="FILE.npy"
    )
    calibration: str | None = option(None, "Do not measure: use this file, or typical rates.", metavar="FILE|typical")
    given: Path | None = option(  # noqa: RUF009
        None, "Do not measure: take job and rates of this plan.", flag="--from", metavar="PLAN.json"
    )
    link: float | None = option(None, "Plan for links of this rate, such as 25gbit.", metavar="RATE")
    latency: float | None = option(None, "Plan for links of this latency, such as 20us.", metavar="TIME")
    algorithm: str | None = option(None, "Plan for this all-reduce: ring, tree, or best of both.")
    explain: bool = option(False, "Print every term of the prediction.")
    chart: Path | None = option(  # noqa: RUF009
        None, "Draw time against s and against the link's rate: .html or .svg.", metavar="FILE.html"
    )
    output: Path | None = option(None, "Write the plan.", flag="--output -o", metavar="PLAN.json")  # noqa: RUF009
    save: Path | None = option(None, "Write the calibration.", metavar="FILE.json")  # noqa: RUF009

    def __post_init__(self) -> None:
        paths = [path for path in (self.chart, self.output, self.save) if path is not None]
        for i, path in enumerate(paths):
            check_writable(path)
            if path.resolve() in [other.resolve() for other in paths[:i]]:
                raise BadInput(f"--chart, --output and --save are files of their own; {path} is given twice")
        if self.chart is not None and self.chart.suffix not in CHARTS:
            ending = self.chart.suffix or "without an ending"
            raise BadInput(f"charts are written as {' or '.join(CHARTS)}, not {ending}: {self.chart}")
        for name in ("device", "gradient"):
            if getattr(self, name) is not None and (self.given or self.calibration):
                source = "--from" if self.given else "--calibration"
                raise BadInput(f"--{name} is what to measure, and {source} measures nothing")
        if self.gradient is not None:
            from laconic.data import read_gradient

            read_gradient(self.gradient)


def run(model: dict[str, Any], network: dict[str, Any], asked: dict[str, Any]) -> None:
    """Predict the time of each option and recommend one, which may be not to compress.

    For a model, give --rows and --features; for a network, --parameters, and --gathers 2 if it is sharded by
    fully_shard. Measures the ranks of this machine, or those
    of torchrun, for some seconds; with --from or --calibration measures nothing. With --from, what is not given is as
    in that plan.
    """
    o = PlanOptions(**asked)
    if o.device == "cuda" and "n_rows" in model:
        raise BadInput(
            "--device cuda measures links and codecs, for a network (--parameters); how long a model's iterations "
            "take on a GPU is measured by laconic bench glm --device cuda"
        )
    old = None if o.given is None else _read(o.given, from_json)
    job, s = job_for({"glm": model, "network": network}, o.s, old)
    calibrated = None
    if o.calibration == TYPICAL or (old is not None and o.calibration is None):
        cluster = DEFAULT if old is None or o.calibration else old.cluster
    elif (calibrated := _calibration(o)) is not None:
        cluster = calibrated.cluster
    else:
        return
    ranks = None if old is None and o.calibration is None else o.ranks
    with bad_input():
        made = make(job, cluster.what_if(ranks, o.link, o.latency, o.algorithm), s)
        document = made.to_json() | ({} if calibrated is None else {"calibration": calibrated.to_json()})
        written = json.dumps(document, indent=2, allow_nan=False)
        _write(document, written, calibrated, o)
    if o.as_json or o.explain:
        typer.echo(written if o.as_json else made.explain())
        return
    from laconic.report import show, terminal
    from laconic.report.runs import PLAN

    for line in (made.cluster.describe(), *(calibrated.lines() if calibrated is not None else [])):
        typer.echo(line)
    show(terminal(PLAN, document))


plan = options_command(run, "plan", GlmJob, NetworkJob, PlanOptions, unset=(GlmJob, NetworkJob))


def job_for(given: Mapping[str, Mapping[str, Any]], s: int | None, old: "Plan | None") -> "tuple[Job, int | None]":
    """The job and its s: the given options, completed by the old plan if it is of the same kind.

    given  by kind of job, the fields given
    """
    from laconic.glm.families import FAMILIES

    family = given["glm"].get("family", "logistic")
    if family not in FAMILIES:
        raise InvalidOption("unknown ", Option("family", family), f"; choose one of {', '.join(FAMILIES)}")
    kind = _kind({"glm": [*given["glm"], *([] if s is None else ["s"])], "network": [*given["network"]]}, old)
    if old is not None and old.job.kind == kind:
        job, s = replace(old.job, **given[kind]), s or old.s
    else:
        job = JOBS[kind](**given[kind])
    batches = getattr(job, "batches", None)
    if s is not None and batches is not None and s > batches:
        most = Option("s", batches)
        raise InvalidOption(Option("s", s), f" is more than the {batches} batches of an epoch; give ", most, " or less")
    return job, s


def _kind(about: Mapping[str, list[str]], old: "Plan | None") -> str:
    """The kind of job of the given options, or of the old plan; raises `InvalidOption` if they are not enough."""
    kinds = [kind for kind, names in about.items() if names]
    if len(kinds) > 1:
        model, network = (Option(about[kind][0]) for kind in kinds)
        raise InvalidOption(model, " is about a model and ", network, " about a network: give one of them, not both")
    former = None if old is None else old.job.kind
    kind = kinds[0] if kinds else former
    needed = [one.name for one in fields(JOBS[kind]) if one.default is MISSING] if kind else []
    if kind is not None and (kind == former or set(needed) <= set(about[kind])):
        return kind
    if kind is None or former is None:
        raise InvalidOption("say what to plan: --rows and --features of a model's data, or --parameters of a network")
    why = f"the plan is of a {KINDS[former]}; for a {KINDS[kind]}, which "
    more = [part for name in needed[1:] for part in (" and ", Option(name))]
    raise InvalidOption(why, Option(about[kind][0]), " is about, give ", Option(needed[0]), *more)


def _read(path: Path, make: Callable[[Any], T]) -> T:
    """`make` applied to the JSON in a file."""
    try:
        return make(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not JSON; give a file that laconic plan wrote") from error
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _calibration(o: PlanOptions) -> "Calibration | None":
    """The calibration from a file, or measured here; None on the ranks of torchrun other than the first."""
    from laconic.exchange.launch import n_ranks
    from laconic.measure.calibrate import N_PARTS, Calibration, calibrate_here

    if o.calibration is not None:
        return _read(Path(o.calibration), Calibration.from_json)
    quiet = o.quiet or os.environ.get("RANK", "0") != "0"
    with bad_input(), progress(N_PARTS, quiet=quiet) as begin:
        return calibrate_here(n_ranks(o.ranks), o.device or "cpu", begin, gradient=o.gradient)


def _write(document: dict[str, Any], written: str, calibrated: "Calibration | None", o: PlanOptions) -> None:
    picture = _draw(document, o.chart) if o.chart is not None else ""
    if o.save is not None:
        if calibrated is None:
            raise BadInput(
                "--save writes what was measured, and nothing was; leave out --from and --calibration typical"
            )
        calibrated.save(o.save)
    for path, text in ((o.output, written + "\n"), (o.chart, picture)):
        if path is not None:
            with atomic_write(path) as file:
                file.write(text)


def _draw(document: dict[str, Any], path: Path) -> str:
    """The plan as a page with charts of time against s and against the link rate, or the first chart as SVG."""
    from laconic.report import Run, report, sections
    from laconic.report.charts import Curves
    from laconic.report.runs import PLAN
    from laconic.report.svg import lines

    charts = [one for section in sections(PLAN, document) for one in section.blocks if isinstance(one, Curves)]
    if not charts:
        raise BadInput("one rank sends nothing, so that there is nothing to draw")
    return report("A plan by laconic", [Run("plan", PLAN, document)])[0] if path.suffix == ".html" else lines(charts[0])
