"""The suite `papers`: the experiments of the CA-SGD and the NUQSGD paper, run again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.goals import goals_of_rows
from benchmarks.papers import ca_sgd, ca_sgd_claims, nuqsgd_claims
from benchmarks.papers.nuqsgd import suite as nuqsgd
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from laconic.bench.ranks import RATE, n_ranks
from laconic.bench.suite import Progress, Suite, row_fields
from laconic.errors import InvalidOption, Option
from laconic.exchange.launch import inside_torchrun
from laconic.options import check_names, option

CA_SGD, NUQSGD = "ca-sgd", "nuqsgd"
COMMON = ("suite", "data", "device", "ranks", "batch_size", "iterations", "points")
ONLY_CA_SGD = ("problem", "scale", "s", "recipes", "rate")
TITLES = {
    CA_SGD: "Mixed-precision CA-SGD for generalised linear models",
    NUQSGD: "NUQSGD: nonuniform quantisation of gradients",
}


@dataclass(frozen=True, slots=True)
class PapersOptions:
    """What to run: options of both papers, and those that only one has. What is not given depends on the device."""

    suite: str | None = option(None, "ca-sgd or nuqsgd: which paper.", metavar="NAME")
    data: Path | None = option(  # noqa: RUF009
        None,
        "ca-sgd: folder with epsilon_normalized, SUSY or HIGGS (LIBSVM, also .bz2 and .xz, or stores); synthetic "
        "rows for the others. nuqsgd: folder of --dataset.",
        metavar="DIR",
    )
    device: str = option("cpu", "cpu or cuda; ranks on GPUs talk over NCCL.", metavar="NAME")
    ranks: int | None = option(
        None, "Processes. ca-sgd: 4 if not given, 1 on a GPU. nuqsgd: real ranks instead of simulated workers."
    )
    batch_size: int | None = option(
        None, "ca-sgd: rows of a batch, 8 (32 on a GPU). nuqsgd: a worker's images, 32 (128 on a GPU)."
    )
    iterations: int | None = option(
        None, "ca-sgd: between two points of a curve, a multiple of every s; 256 (8192 on a GPU). nuqsgd: in all."
    )
    points: int | None = option(None, "Points of a curve; 9, nuqsgd 5 (11 on a GPU).")
    problem: Sequence[str] | None = option(
        None, f"ca-sgd: {', '.join(ca_sgd.PROBLEMS)}, or all (default).", metavar="NAME,..."
    )
    scale: float | None = option(None, "ca-sgd: part of the rows of the synthetic problems; 0.05, and 1 on a GPU.")
    s: Sequence[int] | None = option(None, "ca-sgd: iterations per message; 32,128, on a GPU 16,32.", metavar="N,...")
    recipes: Sequence[str] | None = option(None, "ca-sgd: fp32,C,D.", flag="--recipe", metavar="NAME,...")
    rate: str | None = option(None, RATE, metavar="RATE")
    dataset: str | None = option(
        None, "nuqsgd: cifar10, fashion-mnist, imagenet, or synthetic (default).", metavar="NAME"
    )
    model: str | None = option(
        None,
        "nuqsgd: resnet-8 (default), -14, -20, -32, -44, -56, -110 (default on a GPU); large: -18, -34, -50.",
        metavar="NAME",
    )
    methods: Sequence[str] | None = option(
        None, "nuqsgd: nuqsgd,qsgd,qsgdinf,ef-sign; fp32 is always there.", metavar="NAME,..."
    )
    workers: int | None = option(None, "nuqsgd: workers simulated on one device; 4.")
    bits: int | None = option(None, "nuqsgd: width of a symbol; 4.")
    bucket_size: int | None = option(None, "nuqsgd: values that share one norm; 8192.")
    epochs: float | None = option(None, "nuqsgd: passes over the training images, without --iterations; 1.")
    images: int | None = option(None, "nuqsgd: only so many images.")
    learning_rate: float | None = option(None, "nuqsgd: base learning rate; 0.1.")
    seed: int | None = option(None, "nuqsgd: of weights, batches and roundings; 0.", least=0)
    exchange: str | None = option(None, "nuqsgd with --ranks: all_gather, scatter_reduce, auto.", metavar="NAME")

    def __post_init__(self) -> None:
        if self.suite is None:
            raise InvalidOption("give ", Option("suite", CA_SGD), " or ", Option("suite", NUQSGD))
        check_names([self.suite], (CA_SGD, NUQSGD), "suite")
        of_nuqsgd = [one.name for one in fields(self) if one.name not in (*COMMON, *ONLY_CA_SGD)]
        for suite, names in ((CA_SGD, ONLY_CA_SGD), (NUQSGD, of_nuqsgd)):
            for name in names if suite != self.suite else ():
                if getattr(self, name) is not None:
                    raise InvalidOption(Option(name), " is for ", Option("suite", suite))
        self.chosen  # noqa: B018 (raises if the paper's own options do not fit)

    @property
    def chosen(self) -> ca_sgd.CASGDOptions | NUQSGDOptions:
        """The options of the paper that was asked for."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}
        del given["suite"]
        return _ca_sgd_options(given) if self.suite == CA_SGD else _nuqsgd_options(given)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return self.chosen.n_parts

    def published(self) -> dict[str, Any]:
        """The paper's options as JSON values."""
        return self.chosen.published()


def _ca_sgd_options(given: dict[str, Any]) -> ca_sgd.CASGDOptions:
    alone = given["device"] != "cpu" and given.get("ranks", 1) == 1 and not inside_torchrun()
    if alone and "rate" in given:
        raise InvalidOption(Option("rate"), " is for several ranks; give ", Option("ranks", 4), ", or leave it out")
    defaults = {"batch_size": 32, "iterations": 8192, "s": (16, 32)} if alone else {"s": (32, 128)}
    scale, folder = given.pop("scale", 1.0 if alone else 0.05), given.pop("data", None)
    problems = ca_sgd.given_problems(given.pop("problem", ["all"]), scale, folder)
    ranks = 1 if alone else n_ranks(given.pop("ranks", None), given.get("rate"))
    return ca_sgd.CASGDOptions(problems, **{**defaults, **given, "ranks": ranks})


def _nuqsgd_options(given: dict[str, Any]) -> NUQSGDOptions:
    """What is not given is small on a CPU, and the paper's on a GPU."""
    if "ranks" in given or inside_torchrun():
        if "workers" in given:
            raise InvalidOption(
                Option("workers"), " is for simulated ones; with ", Option("ranks"), " each rank is a worker"
            )
        given["ranks"] = n_ranks(given.get("ranks"), None)
    elif "exchange" in given:
        raise InvalidOption(Option("exchange"), " is for real processes; give ", Option("ranks", ...))
    if "data" in given:
        given["data"] = str(given["data"])
    small = {"model": "resnet-8", "batch_size": 32, "points": 5} if given["device"] == "cpu" else {}
    return NUQSGDOptions(**{**small, **given})


def papers_rows(options: PapersOptions, progress: Progress) -> Sequence[Any] | None:
    """Run the paper's experiment; None on the ranks of torchrun other than the first."""
    chosen = options.chosen
    if isinstance(chosen, NUQSGDOptions):
        return nuqsgd.nuqsgd_rows(chosen, progress)
    return ca_sgd.ca_sgd_rows(chosen, progress)


def _more(options: PapersOptions, rows: Sequence[Any]) -> dict[str, Any]:
    """Title, a sentence about the run, the paper's figures beside ours, and goals."""
    paper = str(options.suite)
    about = (ca_sgd if paper == CA_SGD else nuqsgd).about(rows)
    claims = (ca_sgd_claims if paper == CA_SGD else nuqsgd_claims).claims({"rows": [row_fields(row) for row in rows]})
    said = {"title": TITLES[paper], "about": about, "published": [asdict(claim) for claim in claims]}
    return goals_of_rows(f"papers-{paper}", rows, **said)


SUITE = Suite(
    "papers",
    PapersOptions,
    papers_rows,
    """Run the two papers' experiments again, and print their figures beside ours.

    ca-sgd: loss and speed of SGD and CA-SGD in each precision. nuqsgd: residual networks whose gradients are quantised
    by each method: variance, loss, accuracy, bits. Small enough for a laptop by default; docs/papers.md lists what
    differs.
    """,
    more=_more,
    document=lambda options: f"papers-{options.suite}",
)
