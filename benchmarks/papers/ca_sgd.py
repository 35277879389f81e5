"""The suite `papers-ca-sgd`: loss curves and speed of SGD and of CA-SGD in each precision, on the paper's problems.

Rows are the LIBSVM originals where given, otherwise synthetic ones of the same shape. Other data files (`FILES`), among
them samples of the originals, are problems with names of their own.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.papers.ca_sgd_claims import SYNTHETIC, losses
from benchmarks.papers.checks import check_at_least, check_device
from benchmarks.papers.claims import PUBLISHED
from laconic.atomic_write import atomic_write
from laconic.bench.glm.runs import CHECKED, FP32, Given, check_contenders, races, rounds_of
from laconic.bench.glm.suite import check_iterates, rank_arguments
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import n_ranks, noise, on_ranks, slowest
from laconic.bench.suite import Progress, no_progress
from laconic.data import SHAPES, BadTable, Source
from laconic.data.files import format_of
from laconic.errors import InvalidOption, Option
from laconic.exchange.agreement import gather_json
from laconic.measure.environment import n_cores
from laconic.measure.solvers import Contender
from laconic.options import check_names
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, Text, speedups, text
from laconic.report.documents import shape
from laconic.report.values import Row, number_in, text_in

RANK_FUNCTION = "benchmarks.papers.ca_sgd:ca_sgd_on_rank"
PROBLEMS = tuple(SHAPES)
ORIGINALS = {"epsilon": ("epsilon_normalized", "epsilon"), "susy": ("susy",), "higgs": ("higgs",)}
"""File names in lower case, without suffixes. synth and Poisson-synth are synthetic in the paper, too."""
SCALED = ("susy", "higgs")
"""Problems whose columns are standardised: the original files are not, unlike epsilon's."""
SETTINGS = ("s", "epochs", "iterations", "points", "ranks", "rate", "device")
"""Options that determine the iterations between points and the network; sent to each rank."""
SAMPLE = "-sample"
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    f"epsilon{SAMPLE}": ("epsilon_sample", {"n_features": 2000, "dense": True}, {"family": "logistic"}),
    f"higgs{SAMPLE}": ("higgs_sample", {"target": "label"}, {"family": "logistic", "standardize": True}),
    "covtype": ("covtype", {"target": "Cover_Type"}, {"family": "logistic", "positive": "2", "standardize": True}),
    "a9a": ("a9a", {"n_features": 123}, {"family": "logistic"}),
    "w8a": ("w8a", {"n_features": 300}, {"family": "logistic"}),
    "bike": ("bike_sharing_hour", {"target": "cnt", "exclude": ("instant", "dteday", "casual", "registered")},
             {"family": "linear", "standardize": True}),
    "fremtpl2": ("fremtpl2freq", {"target": "ClaimNb", "exposure": "Exposure", "exclude": ("IDpol",),
                                  "one_hot": ("Area", "VehBrand", "VehGas", "Region")},
                 {"family": "poisson", "standardize": True}),
}  # fmt: skip
"""By problem: the file name in lower case without suffixes, options to read it, and options of the fit."""


@dataclass(frozen=True, slots=True)
class CASGDOptions:
    """Options of the suite `papers-ca-sgd`.

    problems    see `given_problems`
    recipes     precision of CA-SGD
    s           iterations that share a message
    batch_size  rows of a batch
    epochs      passes over the rows of each problem; iterations are rounded up to a multiple of every s
    iterations  between two points of a curve, a multiple of every s; None for what `epochs` needs
    points      of a curve, the start included
    ranks       processes of one thread, or with a GPU each; 1 for one process on a GPU
    rate        of every rank's link, such as "1gbit"; None for loopback
    device      "cpu" or "cuda"
    out         folder of finished problems, for several ranks: a later run takes them from there
    """

    problems: Sequence[Given]
    recipes: Sequence[str] = ("fp32", "C", "D")
    s: Sequence[int] = (32, 128)
    batch_size: int = 8
    epochs: float = 3.0
    iterations: int | None = None
    points: int = 9
    ranks: int = 4
    rate: str | None = None
    device: str = "cpu"
    out: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(1, self, "batch_size", "iterations")
        check_at_least(3, self, "points")
        check_contenders(self.recipes, self.s, self.iterations or 0)
        if not self.epochs > 0:
            raise InvalidOption(Option("epochs"), f" must be above 0, got {self.epochs:g}")
        check_device(self.device, instead="run on ranks of the CPU")
        if not self.alone:
            n_ranks(self.ranks, self.rate)  # raises if there can be no such network
        elif self.out is not None:
            raise InvalidOption(Option("out"), " is for several ranks; give ", Option("ranks", 4), ", or leave it out")

    @property
    def alone(self) -> bool:
        """Whether it runs in one process, on a GPU."""
        return self.device != "cpu" and self.ranks == 1

    @property
    def contenders(self) -> list[Contender]:
        """SGD in float32, then CA-SGD."""
        return [Contender("sgd", "fp32"), *(Contender("ca_sgd", name, s) for name in self.recipes for s in self.s)]

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        a_problem = 2 + len(self.contenders) if self.alone else self.points
        return len(self.problems) * (1 + a_problem)

    def between_points(self, n_rows: int) -> int:
        """Iterations from one point of a curve to the next.

        >>> CASGDOptions([], s=(4,), batch_size=8, epochs=2, points=3).between_points(100)
        16
        """
        block = math.lcm(*self.s)
        needed = self.epochs * n_rows / (self.batch_size * (self.points - 1))
        return self.iterations or block * math.ceil(needed / block)

    def published(self) -> dict[str, Any]:
        """The options as JSON values; files are named without their folders."""
        values = asdict(replace(self, out=None))
        for given in values["problems"]:
            if given["source"] is not None:
                given["source"]["path"] = Path(given["source"]["path"]).name
        return values


@dataclass(frozen=True, slots=True)
class CASGDRow:
    """One contender on one problem.

    source             the file, or "synthetic"
    ranks_per_core     processes per core of this machine: above 1 they take turns, and only fewer messages give speed
    n_epochs           passes over the rows
    seconds            of an iteration, on the slowest rank
    speedup_over_fp32  the baseline's seconds over its own, point by point
    speedup_over_eager on a GPU, over SGD in eager PyTorch; None elsewhere
    messages           reductions over ranks, per iteration
    bytes_sent         by a rank, per iteration
    loss               half the mean deviance over all rows, penalty included, at the end
    loss_gap           loss over that of the baseline, minus 1
    largest_gap        the gap at the point of the curve where it is largest
    difference         ‖x − x'‖ / ‖x'‖ from the baseline's weights, at the first point; None on a GPU
    curve              the loss point by point
    """

    problem: str
    contender: str
    baseline: bool
    source: str
    family: str
    n_rows: int
    n_features: int
    solver: str
    recipe: str
    s: int
    batch_size: int
    ranks: int
    ranks_per_core: float
    rate: str | None
    device: str
    n_iterations: int
    n_epochs: float
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_eager: float | None
    messages: float
    bytes_sent: float
    loss: float | None
    loss_gap: float | None
    largest_gap: float | None
    difference: float | None
    curve: Sequence[Mapping[str, Any]]


def ca_sgd_rows(options: CASGDOptions, progress: Progress = no_progress) -> list[CASGDRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    if options.alone:
        from benchmarks.papers.ca_sgd_device import device_rows

        return device_rows(options, progress)
    done = {given.name: found for given in options.problems if (found := _done(given, options)) is not None}
    left = replace(options, problems=[given for given in options.problems if given.name not in done])
    if left.problems:
        arguments = rank_arguments(left, settings=_settings(options), out=None if left.out is None else str(left.out))
        results = on_ranks(RANK_FUNCTION, arguments, options.ranks, options.rate, progress, options.device)
        if results is None:
            return None
        done |= {given.name: ranks for given, *ranks in zip(left.problems, *results, strict=True)}
    return [row for given in options.problems for row in _rows(given, options, done[given.name])]


def _settings(options: CASGDOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in SETTINGS}


def _done(given: Given, options: CASGDOptions) -> list[dict[str, Any]] | None:
    """Results of each rank for a problem from an earlier run with these options, if any."""
    path = None if options.out is None else options.out / f"{given.name}.json"
    kept = json.loads(path.read_text()) if path is not None and path.exists() else {}
    asked = rank_arguments(replace(options, problems=[given]), settings=_settings(options))
    return kept["ranks"] if kept.get("asked") == json.loads(json.dumps(asked)) else None


def _rows(given: Given, options: CASGDOptions, results: Sequence[Mapping[str, Any]]) -> list[CASGDRow]:
    about = results[0]
    runs = {c.label: [result["runs"][c.label] for result in results] for c in options.contenders}
    rounds = {label: slowest(ranks) for label, ranks in runs.items()}
    base, iterations = runs[FP32][0]["losses"], options.between_points(about["n_rows"])

    def row(contender: Contender) -> CASGDRow:
        ranks, seconds = runs[contender.label], rounds[contender.label]
        sent = max(run["bytes_sent"] for run in ranks)
        return CASGDRow(
            problem=given.name,
            contender=contender.label,
            baseline=contender.label == FP32,
            source=source_of(given),
            family=about["family"],
            n_rows=about["n_rows"],
            n_features=about["n_features"],
            solver=contender.solver,
            recipe=contender.recipe,
            s=contender.s,
            batch_size=options.batch_size,
            ranks=len(results),
            ranks_per_core=len(results) / n_cores(),
            rate=options.rate,
            device=options.device,
            n_iterations=iterations * (options.points - 1),
            n_epochs=iterations * (options.points - 1) * options.batch_size / about["n_rows"],
            seconds=Spread.of(seconds[1:]),
            speedup_over_fp32=speedup(rounds[FP32][1:], seconds[1:]),
            speedup_over_eager=None,
            messages=ranks[0]["messages"],
            bytes_sent=sent,
            difference=check_iterates(contender, ranks),
            curve=curve(iterations, ranks[0]["losses"], seconds, sent),
            **gaps(ranks[0]["losses"], base),
        )

    return [row(contender) for contender in options.contenders]


def curve(
    iterations: int, losses: Sequence[float], seconds: Sequence[float], n_bytes: float
) -> list[dict[str, float | int | None]]:
    """Points to publish, from losses (p,) at the start and after each round, and seconds (p − 1,) per iteration.

    >>> curve(10, [1.0, 0.5], [0.1], 8.0)[1]
    {'iteration': 10, 'seconds': 1.0, 'bytes': 80.0, 'loss': 0.5}
    """
    return [
        {
            "iteration": i * iterations,
            "seconds": iterations * sum(seconds[:i]),
            "bytes": i * iterations * n_bytes,
            "loss": loss if math.isfinite(loss) else None,
        }
        for i, loss in enumerate(losses)
    ]


def gaps(losses: Sequence[float], base: Sequence[float]) -> dict[str, float | None]:
    """Loss at the end, its relative gap to the baseline's, and the largest gap on the way.

    >>> gaps([1.0, 0.6, 0.5], [1.0, 0.5, 0.5])
    {'loss': 0.5, 'loss_gap': 0.0, 'largest_gap': 0.2}
    """
    if not all(math.isfinite(loss) for loss in losses):
        return {"loss": None, "loss_gap": None, "largest_gap": None}
    found = [round(loss / theirs - 1, 9) for loss, theirs in zip(losses, base, strict=True)]
    return {"loss": losses[-1], "loss_gap": found[-1], "largest_gap": max(found, key=abs)}


def ca_sgd_on_rank(
    progress: Progress, *, settings: Mapping[str, Any], batch_size: int, out: str | None = None, **asked: Any
) -> list[dict[str, Any]]:
    """Run all contenders on each problem with the same batches, round by round in turn; losses at every point.

    out  folder in which rank 0 saves each problem's results as soon as it is finished, with the settings
    """
    options = CASGDOptions([], batch_size=batch_size, **settings)
    everything = races(progress, batch_size=batch_size, device=options.device, **asked)
    points, results = options.points, []
    for given, race in zip(asked["problems"], everything, strict=True):
        progress(f"{race.name}: the start")
        iterations = options.between_points(race.problem.n_rows)
        race.add_losses()
        for turn, rows in enumerate(rounds_of(race.problem.n_rows, points - 1, iterations * batch_size), start=1):
            progress(f"{race.name}: point {turn} of {points - 1}")
            checked = CHECKED * batch_size if turn == 1 and iterations > CHECKED else 0
            race.round(rows[:checked] if checked else rows)
            if turn == 1:
                race.compare_with_sgd()
            if checked:  # time the rest: kernels were compiled in the first
                race.round(rows[checked:])
                for run in race.runs.values():
                    run.seconds = run.seconds[1:]
            race.add_losses()
        results.append(race.result())
        if out is not None:
            ranks = gather_json(race.comm, results[-1])
            own = {**asked, "problems": [given], "batch_size": batch_size, "settings": settings}
            if race.comm.rank == 0:
                Path(out).mkdir(parents=True, exist_ok=True)
                with atomic_write(Path(out, f"{race.name}.json")) as file:
                    file.write(json.dumps({"asked": own, "ranks": ranks}))
    return results


def given_problems(names: Sequence[str], scale: float, folder: Path | None, most: int | None = None) -> list[Given]:
    """Problems by name; "all" is the paper's, from files if the folder has them, "real" those of `FILES` in the folder.

    scale, most  fraction of the rows of a synthetic problem, and their largest number

    >>> [given.name for given in given_problems(["all"], 0.1, None)]
    ['epsilon', 'susy', 'higgs', 'synth', 'poisson-synth']
    """
    if folder is not None and not folder.is_dir():
        raise BadTable(f"there is no folder {folder}; --data is for one with {_wanted()}")
    files = {} if folder is None else {name: file for name in (*PROBLEMS, *FILES) if (file := file_of(name, folder))}
    real = [name for name in FILES if name in files]
    chosen = [own for name in names for own in {"all": PROBLEMS, "real": real}.get(name, (name,))]
    check_names(chosen, (*PROBLEMS, *FILES), "problem")
    missing = [name for name in chosen if name in FILES and name not in files]
    if missing or (folder is not None and not files):
        what = f"no {FILES[missing[0]][0]}.*" if missing else f"none of {_wanted()}"
        raise BadTable(f"{folder or 'this run'} has {what}; give a folder that has it with --data")
    parts = {name: scale if most is None else min(scale, most / shape.n_rows) for name, shape in SHAPES.items()}
    return [_given(name, files.get(name), parts.get(name, scale)) for name in dict.fromkeys(chosen)]


def file_of(name: str, folder: Path) -> Path | None:
    """The file of a problem; a store is preferred to LIBSVM."""
    stems = (FILES[name][0],) if name in FILES else ORIGINALS.get(name, ())
    formats = ("store", "libsvm", "parquet") if name in FILES else ("store", "libsvm")
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.lower().split(".")[0] in stems]
    usable = [path for path in files if ".t." not in path.name and format_of(path) in formats]
    return min(usable, key=lambda path: format_of(path) != "store", default=None)


def source_of(given: Given) -> str:
    """Origin of the rows, for tables and documents: a file's name, or "synthetic"."""
    return SYNTHETIC if given.source is None else Path(given.source.path).name


def _given(name: str, path: Path | None, scale: float) -> Given:
    if path is None:
        return Given(name, scale)
    if name in FILES:
        _, read, fitted = FILES[name]
        return Given(name, source=Source(str(path), **read), **fitted)
    text = format_of(path) == "libsvm"
    source = Source(str(path), n_features=SHAPES[name].n_features if text else None, dense=text)
    return Given(name, source=source, family="logistic", standardize=name in SCALED)


def _wanted() -> str:
    originals = [f"{stems[0]}[.bz2|.xz|.safetensors]" for stems in ORIGINALS.values()]
    return ", ".join([*originals, *(file for file, _, _ in FILES.values())])


def about(rows: Sequence[CASGDRow]) -> str:
    first = rows[0]
    files = sorted({row.source for row in rows if row.source != SYNTHETIC})
    made = sorted({row.problem for row in rows if row.source == SYNTHETIC})
    where = f"{first.ranks} ranks of one thread" if first.device == "cpu" else f"{first.ranks} ranks on GPUs, over NCCL"
    where = "one GPU, one process" if first.ranks == 1 else where
    link = f" over links of {first.rate}" if first.rate else ""
    passes = sorted({round(row.n_epochs, 2) for row in rows})
    seen = f"{passes[0]:g}" if len(passes) == 1 else f"{passes[0]:g} to {passes[-1]:g}"
    said = [f"{where}{link}; batches of {first.batch_size}, {seen} epochs, the same batches for all."]
    if first.device == "cpu":
        said.append(f"{first.ranks_per_core:g} ranks per core.")
    if files:
        said.append(f"Rows of {', '.join(files)}.")
    if made:
        said.append(f"Synthetic rows of the published shapes: {', '.join(made)}.")
    return " ".join(said)


def _problem(rows: list[Row]) -> str:
    """The title of a problem's table."""
    first = rows[0]
    iterations, size, m = (number_in(first, key) or 0 for key in ("n_iterations", "batch_size", "n_rows"))
    epochs = number_in(first, "n_epochs") or iterations * size / max(1, m)
    seen = f"{epochs:.2g} epochs, {iterations:,.0f} iterations"
    return (
        f"{text_in(first, 'problem')}: {shape(first)}, {text_in(first, 'family')}; {text_in(first, 'source')}; {seen}"
    )


PRESENTATION = Presentation(
    lambda document: text_in(document, "title") or "CA-SGD: published and measured",
    [
        Text(noise),
        *PUBLISHED,
        RowTable(
            _problem,
            [
                text("contender", "contender"),
                Column("µs", "seconds", "µs"),
                Column("× fp32", "speedup_over_fp32"),
                Column("× eager", "speedup_over_eager"),
                Column("messages", "messages"),
                Column("loss", "loss", digits=5),
                Column("gap", "loss_gap", "%"),
                Column("largest gap", "largest_gap", "%"),
            ],
            "µs per iteration. × fp32: speed over SGD in float32 in the same round. gap: of the loss above that of SGD "
            "in float32, at the end and where it is largest on the way.",
            by="problem",
        ),
        Text(losses),
        LineChart(Axis("loss", "training loss"), by="problem"),
        speedups("float32", group="problem"),
    ],
    lambda document: text_in(document, "about"),
)
