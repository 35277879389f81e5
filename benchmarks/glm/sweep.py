"""The suite `glm-sweep`: time of many penalties at once over that of one, and many classes of sparse rows.

probe  dense features as in a linear probe of a network: bfloat16, 10 classes, from one penalty to 16
text   sparse rows as in bags of words, 105 classes: multinomial and one-vs-rest models of laconic and scikit-learn
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier

from laconic.bench.protocol import Spread
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.exchange import Communicator
from laconic.glm import DenseColumns, FitOptions, Multinomial, Problem, path
from laconic.glm.estimators import CASGDClassifier
from laconic.options import check_counts, check_names, option
from laconic.report import BarChart, Column, Presentation, RowTable, text
from laconic.report.values import number_in, text_in

PROBLEMS = ("probe", "text")
ALPHA = 1e-4
SPREAD_OF_ALPHAS = (-7.0, -2.0)
"""Range of penalties, as powers of ten."""
CHUNK = 50_000
TEXT_ROWS, TEXT_COLUMNS, TEXT_CLASSES, WORDS, OWN_WORDS, OWN_SHARE = 6_412, 55_197, 105, 110, 60, 0.12
"""Rows, columns, classes, words per row; number of words specific to a class, and their share."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What to run."""

    problem: Sequence[str] = option(PROBLEMS, f"{', '.join(PROBLEMS)}; both.", metavar="NAME,...")
    device: str = option("cpu", "Where the probe is fitted: cpu or cuda.")
    n_rows: int = option(1_280_000, "Rows of the probe.", flag="--rows")
    n_features: int = option(1024, "Columns of the probe.", flag="--columns")
    n_alphas: int = option(16, "Penalties at once.", flag="--alphas")
    epochs: int = option(2, "Of a fit that is not asked to converge.")
    repeats: int = option(3, "Timed rounds.")

    def __post_init__(self) -> None:
        check_names(list(self.problem), PROBLEMS, "problem")
        check_counts(self)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.problem) * (1 + self.repeats) + ("probe" in self.problem)

    def published(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {**asdict(self), "problem": list(self.problem)}


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One contender.

    seconds    of the whole fit
    over       seconds over those of `base`, round by round
    objective  reached at the penalty 1e-4; None for the probe
    score      accuracy on the training rows; None for the probe
    ran        name of the solver
    """

    problem: str
    n_rows: int
    n_features: int
    n_classes: int
    contender: str
    base: str
    seconds: Spread
    over: Spread
    objective: float | None
    score: float | None
    ran: str


Judged = tuple[str, float | None, float | None]
"""(solver, objective, accuracy)."""


def sweep_rows(options: SweepOptions, progress: Progress = no_progress) -> list[SweepRow]:
    """Run the contenders of each problem in turn, `repeats` times; fits to convergence once."""
    made = {"probe": _probe, "text": _text}
    return [row for name in options.problem for row in made[name](options, progress)]


def _timed(
    shape: dict[str, Any], contenders: Mapping[str, Callable[[], Judged]], repeats: int, progress: Progress
) -> list[SweepRow]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    judged: dict[str, Judged] = {}
    for turn in range(repeats):
        progress(f"{shape['problem']}: round {turn + 1} of {repeats}")
        for name, run in contenders.items():
            began = time.perf_counter()
            judged[name] = run()
            seconds[name].append(time.perf_counter() - began)
    base = next(iter(contenders))
    rows = []
    for name, taken in seconds.items():
        over = Spread.of([t / b for t, b in zip(taken, seconds[base], strict=True)])
        ran, objective, score = judged[name]
        rows.append(SweepRow(**shape, contender=name, base=base, seconds=Spread.of(taken), over=over,
                             objective=objective, score=score, ran=ran))  # fmt: skip
    return rows


def probe(m: int, n: int, n_classes: int, device: str, seed: int = 0) -> Problem:
    """X_ij ~ N(0, 1 / n) in bfloat16; the class is that of the largest of some noisy margins."""
    generator = torch.Generator(device).manual_seed(seed)
    X = torch.empty(m, n, dtype=torch.bfloat16, device=device)
    y, coef = torch.empty(m, device=device), 2 * torch.randn(n, n_classes, generator=generator, device=device)
    for first in range(0, m, CHUNK):
        part = torch.randn(min(CHUNK, m - first), n, generator=generator, device=device) / n**0.5
        X[first : first + CHUNK] = part.bfloat16()
        z = part @ coef
        y[first : first + CHUNK] = (z + torch.randn(z.shape, generator=generator, device=device)).argmax(1).float()
    return Problem(DenseColumns(X), Multinomial(n_classes), y)


def _probe(options: SweepOptions, progress: Progress) -> list[SweepRow]:
    progress("probe: the rows")
    problem = probe(options.n_rows, options.n_features, 10, options.device)
    few = probe(1200, options.n_features, 10, options.device)
    how = FitOptions(max_iter=options.epochs, tol=None, solver="ca_sgd" if options.device == "cuda" else "sgd")
    until = FitOptions(max_iter=100)
    alphas = np.logspace(*SPREAD_OF_ALPHAS, options.n_alphas).tolist()
    many, short = f"{options.n_alphas} alphas", f"{options.epochs} epochs"

    def fit(given: Problem, own: FitOptions, some: Sequence[float]) -> Judged:
        found = path(own, given, Communicator(), alphas=some)
        float(found[0].solution.state.coef.sum())  # waits for a GPU
        return found[0].solution.ran, None, None

    shape = {"n_rows": options.n_rows, "n_features": options.n_features, "n_classes": 10}
    rows = []
    for what, own, repeats in ((short, how, options.repeats), ("until converged", until, 1)):
        for some in (alphas[:1], alphas):
            fit(few, own, some)  # compiles
        contenders = {"one alpha": partial(fit, problem, own, alphas[:1]), many: partial(fit, problem, own, alphas)}
        named = {"problem": f"probe, {options.device}, {what}", **shape}
        rows += _timed(named, contenders, repeats, progress)
    return rows


def text_like(m: int, n: int, n_classes: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows of unit norm like tf-idf vectors: words drawn by Zipf's law, those specific to the class more often."""
    from scipy.sparse import csr_matrix, diags

    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(m) % n_classes)
    lengths = np.maximum(5, rng.poisson(WORDS * rng.lognormal(-0.3, 0.7, m)))
    rows, shares = np.repeat(np.arange(m), lengths), 1.0 / np.arange(1, n + 1) ** 0.9
    words = np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(len(rows))).clip(max=n - 1)
    own = rng.random(len(rows)) < OWN_SHARE
    words[own] = rng.integers(0, n, (n_classes, OWN_WORDS))[y[rows[own]], rng.integers(0, OWN_WORDS, own.sum())]
    X = csr_matrix((np.ones(len(rows)), (rows, words)), (m, n))
    X.sum_duplicates()
    rarity = np.log((1 + m) / (1 + np.bincount(X.indices, minlength=n))) + 1
    X.data = (1 + np.log(X.data)) * rarity[X.indices]
    sizes = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel())
    return csr_matrix(diags(1 / sizes) @ X), y


def _text(options: SweepOptions, progress: Progress) -> list[SweepRow]:
    progress("text: the rows")
    X, y = text_like(TEXT_ROWS, TEXT_COLUMNS, TEXT_CLASSES)

    def contender(model: Any) -> Callable[[], Judged]:
        def run() -> Judged:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X, y)
            known = getattr(model, "ran_", type(model).__name__)
            multinomial = getattr(model, "multi_class", None) == "multinomial" or isinstance(model, LogisticRegression)
            return known, _objective(X, y, model) if multinomial else None, float(model.score(X, y))

        return run

    for kind in ("multinomial", "ovr"):
        CASGDClassifier(max_iter=2, multi_class=kind).fit(X[:300], y[:300])  # compiles
    contenders = {
        "LogisticRegression(lbfgs)": contender(LogisticRegression(C=1 / (ALPHA * len(y)))),
        "SGDClassifier, one-vs-rest": contender(SGDClassifier("log_loss", alpha=ALPHA, random_state=0)),
        "laconic, multinomial": contender(CASGDClassifier(alpha=ALPHA)),
        "laconic, one-vs-rest": contender(CASGDClassifier(alpha=ALPHA, multi_class="ovr")),
    }
    shape = {"problem": "text", "n_rows": len(y), "n_features": X.shape[1], "n_classes": TEXT_CLASSES}
    return _timed(shape, contenders, options.repeats, progress)


def _objective(X: Any, y: np.ndarray, model: Any) -> float:
    z = np.asarray(X @ model.coef_.T) + model.intercept_
    losses = np.logaddexp.reduce(z, 1) - z[np.arange(len(y)), y]
    return float(losses.mean() + ALPHA / 2 * np.square(model.coef_).sum())


def _titles(rows: Sequence[Any]) -> str:
    m, n, classes = (f"{number_in(rows[0], key) or 0:,.0f}" for key in ("n_rows", "n_features", "n_classes"))
    return f"{text_in(rows[0], 'problem')}: {m} × {n}, {classes} classes"


def _columns() -> Iterator[Any]:
    yield text("contender", "contender")
    yield Column("s", "seconds")
    yield Column("÷ the first", "over")
    yield Column("objective", "objective", digits=6)
    yield Column("accuracy", "score", digits=4)
    yield text("ran", "ran")


PRESENTATION = Presentation(
    "Many penalties, many classes",
    [
        RowTable(_titles, list(_columns()), "s: all of the fit. Accuracy is that of the rows fitted to.", by="problem"),
        BarChart("Seconds of a fit", "seconds", "s", group="problem"),
    ],
)
SUITE = Suite(
    "glm-sweep",
    SweepOptions,
    sweep_rows,
    """Many penalties at once ÷ one of them, and many classes of sparse rows beside scikit-learn.

    Contenders take turns; the first of each problem is what the others are compared with.
    """,
)
