"""The suite `papers`: reproductions of the experiments of the CA-SGD and the NUQSGD paper."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.papers import ca_sgd, ca_sgd_claims, nuqsgd_claims
from benchmarks.papers.nuqsgd import suite as nuqsgd
from laconic.bench.ranks import RATE, n_ranks
from laconic.bench.suite import Progress, Suite, row_fields
from laconic.errors import InvalidOption, Option
from laconic.exchange.launch import inside_torchrun
from laconic.options import check_names, option

CA_SGD, NUQSGD = "ca-sgd", "nuqsgd"
COMMON = ("suite", "data", "device", "batch_size", "epochs", "out")
ONLY_CA_SGD = ("problem", "scale", "rows", "s", "recipes", "ranks", "rate", "iterations", "points")
TITLES = {
    CA_SGD: "Mixed-precision CA-SGD for generalised linear models",
    NUQSGD: "NUQSGD: nonuniform quantisation of gradients",
}


@dataclass(frozen=True, slots=True)
class PapersOptions:
    """Options of both papers, and of only one. Defaults depend on the device."""

    suite: str | None = option(None, "ca-sgd or nuqsgd: which paper.", metavar="NAME")
    data: Path | None = option(  # noqa: RUF009
        None,
        "ca-sgd: folder with epsilon_normalized, SUSY or HIGGS (LIBSVM, also .bz2 and .xz, or stores; synthetic rows "
        "for the others), or other rows. nuqsgd: folder with CIFAR-10 or Fashion-MNIST.",
        metavar="DIR",
    )
    device: str = option("cpu", "cpu or cuda; ranks on GPUs talk over NCCL.", metavar="NAME")
    batch_size: int | None = option(
        None, "ca-sgd: rows of a batch, 8 (32 on a GPU). nuqsgd: a worker's images, 32 (128 on a GPU)."
    )
    epochs: float | None = option(None, "Passes over the data; ca-sgd 3, nuqsgd 1 (160 on a GPU).")
    ranks: int | None = option(None, "ca-sgd: processes; 4, on a GPU 1.")
    iterations: int | None = option(
        None, "ca-sgd: between two points of a curve, a multiple of every s; by default what --epochs needs."
    )
    points: int | None = option(None, "ca-sgd: points of a curve; 9.")
    problem: Sequence[str] | None = option(
        None,
        f"ca-sgd: {', '.join((*ca_sgd.PROBLEMS, *ca_sgd.FILES))}; all of the paper's (default), or real, for all that "
        "--data has.",
        metavar="NAME,...",
    )
    scale: float | None = option(None, "ca-sgd: part of the rows of the synthetic problems; 0.05, and 1 on a GPU.")
    rows: int | None = option(None, "ca-sgd: at most so many rows of each synthetic problem.")
    s: Sequence[int] | None = option(None, "ca-sgd: iterations per message; 32,128, on a GPU 16,32.", metavar="N,...")
    recipes: Sequence[str] | None = option(None, "ca-sgd: fp32,C,D.", flag="--recipe", metavar="NAME,...")
    rate: str | None = option(None, RATE, metavar="RATE")
    model: str | None = option(
        None, f"nuqsgd: {', '.join(nuqsgd.MODELS)}; resnet-8, on a GPU resnet-110.", metavar="NAME"
    )
    methods: Sequence[str] | None = option(
        None, "nuqsgd: members of the suite training, such as nuqsgd-4/8192; fp32 is always there.", metavar="NAME,..."
    )
    workers: int | None = option(None, "nuqsgd: workers simulated on one device; 4.")
    images: int | None = option(None, "nuqsgd: only so many images.")
    seeds: int | None = option(None, "nuqsgd: of weights, batches and roundings; 3, for the less telling methods 1.")
    lr: float | None = option(None, "nuqsgd: the highest learning rate; 0.1.")
    warmup: float | None = option(None, "nuqsgd: epochs over which it rises; a hundredth of all.")
    precision: str | None = option(None, "nuqsgd: of products: fp32, tf32 (on a GPU) or bf16.", metavar="NAME")
    out: Path | None = option(  # noqa: RUF009
        None, "Folder of runs, which go on where they stopped; ca-sgd: of problems that are done.", metavar="DIR"
    )
    processes: int | None = option(None, "nuqsgd: runs side by side; 1.")
    seconds: float | None = option(None, "nuqsgd: stop after so many seconds; 0 only gathers what is there.")
    earlier: Path | None = option(None, "nuqsgd: a result whose runs are not run again.", metavar="FILE")  # noqa: RUF009

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
    def chosen(self) -> ca_sgd.CASGDOptions | nuqsgd.NUQSGDOptions:
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
    defaults = {"batch_size": 32, "s": (16, 32)} if alone else {"s": (32, 128)}
    scale, folder = given.pop("scale", 1.0 if alone else 0.05), given.pop("data", None)
    problems = ca_sgd.given_problems(given.pop("problem", ["all"]), scale, folder, given.pop("rows", None))
    ranks = 1 if alone else n_ranks(given.pop("ranks", None), given.get("rate"))
    return ca_sgd.CASGDOptions(problems, **{**defaults, **given, "ranks": ranks})


def _nuqsgd_options(given: dict[str, Any]) -> nuqsgd.NUQSGDOptions:
    """Options for NUQSGD: defaults are small on a CPU, and the paper's on a GPU."""
    given |= {name: str(given[name]) for name in ("data", "out", "earlier") if name in given}
    if given.get("epochs", 1) != int(given.get("epochs", 1)):
        raise InvalidOption(Option("epochs"), f" must be a whole number for nuqsgd; got {given['epochs']:g}")
    small = {"model": "resnet-8", "batch_size": 32, "epochs": 1, "seeds": 1} if given["device"] == "cpu" else {}
    whole = {name: int(given[name]) for name in ("epochs",) if name in given}
    return nuqsgd.NUQSGDOptions(**{**small, **given, **whole})


def papers_rows(options: PapersOptions, progress: Progress) -> dict[str, Any] | None:
    """Run the paper's experiment; a title, a sentence about the run, the paper's figures beside ours, and rows.

    None on the ranks of torchrun other than the first.
    """
    chosen, said, rows = options.chosen, dict[str, Any](), list[Any]()
    if isinstance(chosen, nuqsgd.NUQSGDOptions):
        rows += nuqsgd.nuqsgd_rows(chosen, progress)
        said |= {"about": nuqsgd.about(rows), "n_missing": options.n_parts - sum(len(row.seeds) for row in rows)}
    else:
        found = ca_sgd.ca_sgd_rows(chosen, progress)
        if found is None:
            return None
        rows += found
        said["about"] = ca_sgd.about(rows)
    judge = nuqsgd_claims if options.suite == NUQSGD else ca_sgd_claims
    compared = [row_fields(claim) for claim in judge.claims({"rows": [row_fields(row) for row in rows]})]
    about = {"suite": f"papers-{options.suite}", "title": TITLES[str(options.suite)]}
    return {**about, **said, "published": compared, "rows": rows}


SUITE = Suite(
    "papers",
    PapersOptions,
    papers_rows,
    """Run the two papers' experiments again, and print their figures beside ours.

    ca-sgd: loss and speed of SGD and CA-SGD in each precision. nuqsgd: residual networks whose gradients are quantised
    by each method: variance, loss, accuracy, bits. Small enough for a laptop by default; docs/papers.md lists what
    differs.
    """,
)
