"""The suite `glm-optimum`: our default estimators on typical data, beside those of scikit-learn and glum.

Each contender fits the same objective (mean loss + alpha/2 ‖x‖², or alpha ‖x‖₁, intercept not penalised) to the raw
columns and to standardised ones, with its own defaults. The optimum is the least objective that any of them, or ours
with a smaller tolerance, has reached.

Streamed rows are written to a Parquet file: ours is fitted from it and from a store of it, rivals in memory, each in
a process of its own.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import d2_tweedie_score

from benchmarks.glm.libsvm_speed import resident
from benchmarks.goals import Outcome, outcome
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.data import Source, convert, read
from laconic.errors import InvalidOption
from laconic.exchange.launch import Host, start_ranks
from laconic.glm.estimators import CASGDClassifier, CASGDRegressor
from laconic.options import check_counts, option
from laconic.report import BarChart, Column, Presentation, RowTable, text
from laconic.report.values import Row, rows_in

ALPHA, SHARE = 1e-4, 0.01
DRAWN_ROWS = 20_000
LONG = 3.0
STREAMED_COLUMNS, STREAMED_BLOCK = 100, 2**16
STREAMED_FUNCTION, STREAMED_SECONDS = "benchmarks.glm.optimum:fit_streamed", 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A data set: X (m, n) float64, dense or CSR, y (m,), and the loss; or a file for X, and y's name.

    alpha, l1_ratio  of the penalty: 0 for squares, 1 for absolute values
    """

    name: str
    X: Any
    y: Any
    loss: str
    alpha: float = ALPHA
    l1_ratio: float = 0.0

    def scaled(self) -> "Rows | None":
        """The data set with columns of mean 0 and variance 1; None for sparse rows."""
        if not isinstance(self.X, np.ndarray):
            return None
        deviation = self.X.std(0)
        return replace(self, X=(self.X - self.X.mean(0)) / np.where(deviation > 0, deviation, 1))

    def lasso(self, share: float = SHARE) -> "Rows":
        """With absolute values as penalty: `share` of the least alpha that leaves no weight."""
        several = self.loss == "log_loss" and self.y.max() > 1
        y = np.eye(self.y.max() + 1)[self.y] if several else self.y[:, None].astype(float)
        return replace(self, alpha=share * float(np.abs(self.X.T @ (y - y.mean(0))).max()) / len(y), l1_ratio=1.0)

    def objective(self, coef: np.ndarray, intercept: np.ndarray) -> float:
        """The objective that all contenders minimise; infinite where it is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.asarray(self.X @ np.atleast_2d(coef).T + np.ravel(intercept))
            penalty = np.abs(coef).sum() if self.l1_ratio else np.square(coef).sum() / 2
            value = self._losses(z).mean() + self.alpha * penalty
        return float(value) if np.isfinite(value) else float("inf")

    def _losses(self, z: np.ndarray) -> np.ndarray:
        if z.shape[1] > 1:
            top = z.max(1, keepdims=True)
            return np.asarray(np.log(np.exp(z - top).sum(1)) + top[:, 0] - z[np.arange(len(z)), self.y])
        own = z[:, 0]
        if self.loss == "log_loss":
            return np.asarray(np.logaddexp(0, own) - self.y * own)
        return np.asarray(np.exp(own) - self.y * own if self.loss == "poisson" else np.square(own - self.y) / 2)

    def null(self) -> float:
        """The objective of the best constant."""
        mean = self.y.mean()
        if self.loss == "log_loss":
            share = np.bincount(self.y) / len(self.y)
            return float(-(share * np.log(share)).sum())
        return float(mean - mean * np.log(mean) if self.loss == "poisson" else np.var(self.y) / 2)


@dataclass(frozen=True, slots=True)
class OptimumRow:
    """One contender on one data set.

    columns    "raw" or "scaled"
    gap        (objective − optimum) / (objective of the best constant − optimum)
    score      accuracy, R², or D² of counts
    seconds    median of `repeats` fits, of one where it takes longer than `LONG`; on one thread or on all of them,
               whichever is faster
    threads    of the faster
    converged  whether the contender gave no ConvergenceWarning
    peak_bytes  peak memory of its process, where it has one of its own
    zeros      weights that are exactly 0
    """

    data: str
    columns: str
    n_rows: int
    n_features: int
    contender: str
    objective: float
    gap: float
    score: float
    seconds: float
    threads: int
    converged: bool
    peak_bytes: int | None = None
    zeros: int | None = None


@dataclass(frozen=True, slots=True)
class OptimumOptions:
    """What to run."""

    data: Path | None = option(None, "Folder of a9a.xz, covtype.parquet, ...: fit those as well.")  # noqa: RUF009
    repeats: int = option(3, "Fits of each, of which the median counts.")
    threads: int = option(2, "Most threads of a fit; each contender also runs on one, and its faster time counts.")
    large: bool = option(False, "Also a million drawn rows of 50 columns.")
    lasso: bool = option(False, f"Absolute values as penalty, with {SHARE} of the least alpha that leaves no weight.")
    streamed: int | None = option(None, f"Also so many drawn rows of {STREAMED_COLUMNS} columns, from a file.")

    def __post_init__(self) -> None:
        check_counts(self)
        if self.data is not None and not self.data.is_dir():
            raise InvalidOption(f"{self.data} is no folder")

    def published(self) -> dict[str, Any]:
        """The options as JSON values, without the folder's path."""
        own = {"repeats": self.repeats, "threads": self.threads, "large": self.large, "files": self.data is not None}
        return own | {name: value for name in ("streamed", "lasso") if (value := getattr(self, name))}

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return sum(1 for _ in _sets(self)) + (0 if self.streamed is None else len(STREAMED) + 1)


Fitted = tuple[np.ndarray, np.ndarray]


def ours(rows: Rows, **more: Any) -> Fitted:
    """Our default estimator."""
    kind = CASGDClassifier if rows.loss == "log_loss" else CASGDRegressor
    model = kind(rows.loss, alpha=rows.alpha, l1_ratio=rows.l1_ratio, random_state=0, **more).fit(rows.X, rows.y)
    return model.coef_, model.intercept_


def scikit_learn(rows: Rows) -> Fitted:
    """scikit-learn's estimator of the same objective, with its default solver and more iterations."""
    m, alpha = len(rows.y), rows.alpha
    if rows.l1_ratio:  # saga alone has absolute values and an intercept that is not penalised
        models = {
            "log_loss": LogisticRegression(C=1 / (alpha * m), l1_ratio=1.0, solver="saga", max_iter=1000),
            "squared_error": Lasso(alpha=alpha, max_iter=10_000),
        }
    else:
        models = {
            "log_loss": LogisticRegression(C=1 / (alpha * m), max_iter=200),
            "poisson": PoissonRegressor(alpha=alpha, max_iter=200),
            "squared_error": Ridge(alpha=alpha * m),
        }
    model = models[rows.loss].fit(rows.X, rows.y)
    return model.coef_, np.atleast_1d(model.intercept_)


def glum(rows: Rows) -> Fitted:
    """glum's estimator, for one output."""
    GeneralizedLinearRegressor = import_module("glum").GeneralizedLinearRegressor
    family = {"log_loss": "binomial", "poisson": "poisson", "squared_error": "normal"}[rows.loss]
    model = GeneralizedLinearRegressor(family=family, alpha=rows.alpha, l1_ratio=rows.l1_ratio)
    model.fit(rows.X, rows.y.astype(float))
    return model.coef_, np.atleast_1d(model.intercept_)


def contenders(rows: Rows) -> dict[str, Callable[[Rows], Fitted]]:
    """Contenders that are installed and have a model for these rows."""
    found: dict[str, Callable[[Rows], Fitted]] = {"laconic": ours}
    if not (rows.l1_ratio and rows.loss == "poisson"):
        found["scikit-learn"] = scikit_learn
    several = rows.loss == "log_loss" and rows.y.max() > 1
    return found if several or find_spec("glum") is None else found | {"glum": glum}


def race(options: OptimumOptions, progress: Progress = no_progress) -> list[OptimumRow]:
    """Run every contender on every data set, with raw and with scaled columns."""
    found: list[OptimumRow] = []
    if find_spec("glum") is None:
        sys.stderr.write("glum is not installed, and takes no part: pip install 'laconic[benchmarks]'\n")
    for fit in contenders(first := _bundled("breast cancer")).values():  # loads libraries, and is not timed
        fit(first)
    for make in _sets(options):
        rows = make()
        progress(rows.name)
        for columns, one in (("raw", rows), ("scaled", rows.scaled())):
            if one is not None:
                found += _compare(one.lasso() if options.lasso else one, columns, options)
    return found if options.streamed is None else found + _streamed(options, progress)


def _compare(rows: Rows, columns: str, options: OptimumOptions) -> list[OptimumRow]:
    results = {name: _timed(fit, rows, options.repeats, options.threads) for name, fit in contenders(rows).items()}
    best = ours(rows, tol=1e-12)
    optimum = min(rows.objective(*point) for point in (best, *(point for point, _ in results.values())))
    null = rows.null()
    made = []
    for name, (point, told) in results.items():
        value = rows.objective(*point)
        gap, score = (value - optimum) / (null - optimum), _score(rows, point)
        shape = (len(rows.y), int(rows.X.shape[1]))
        zeros = int((point[0] == 0).sum()) if rows.l1_ratio else None
        made.append(OptimumRow(rows.name, columns, *shape, name, value, gap, score, **told, zeros=zeros))
    return made


def _streamed(options: OptimumOptions, progress: Progress) -> list[OptimumRow]:
    """Run every contender in a process of its own; objectives are of the store's rows, in float64."""
    n_rows = options.streamed or 0
    with tempfile.TemporaryDirectory(prefix="laconic-") as folder:
        progress("writing rows")
        _write_rows(Path(folder, "rows.parquet"), n_rows)
        convert(Path(folder, "rows.parquet"), Path(folder, "rows.safetensors"), dtype="fp32", target="y")
        fits = {}
        for name in STREAMED if find_spec("glum") else STREAMED[:-1]:
            progress(name)
            asked = {"contender": name, "folder": folder, "threads": options.threads}
            fits[name] = start_ranks(STREAMED_FUNCTION, asked, [Host()], timeout_seconds=STREAMED_SECONDS)[0]
        table = read(Path(folder, "rows.safetensors"))
        points = [(np.array(one["coef"]), np.array(one["intercept"])) for one in fits.values()]
        share = float(table.y.double().mean())
        null = -share * np.log(share) - (1 - share) * np.log(1 - share)
        judged = [_judged(table, point) for point in points]
    optimum, made = min(value for value, _ in judged), []
    for (name, one), (value, score) in zip(fits.items(), judged, strict=True):
        gap, shape = float((value - optimum) / (null - optimum)), (n_rows, STREAMED_COLUMNS)
        told = {key: one[key] for key in ("seconds", "threads", "converged", "peak_bytes")}
        made.append(OptimumRow(f"{n_rows:,} drawn", "raw", *shape, name, value, gap, score, **told))
    return made


def _write_rows(path: Path, n_rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, n = np.random.default_rng(0), STREAMED_COLUMNS
    coef, names = rng.standard_normal(n) / n**0.5, [f"x{j}" for j in range(n)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])
    with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:  # 4 bytes per value
        for first in range(0, n_rows, STREAMED_BLOCK):
            X = rng.standard_normal((min(STREAMED_BLOCK, n_rows - first), n), dtype=np.float32)
            y = (X @ coef + rng.logistic(size=len(X)) > 0).astype(np.int8)
            writer.write_table(pa.table([*X.T, y], schema=schema))


def _judged(table: Any, point: Fitted) -> tuple[float, float]:
    """Objective and accuracy, computed a block of rows at a time."""
    m, total, right = len(table.y), 0.0, 0.0
    for first in range(0, m, STREAMED_BLOCK):
        part = slice(first, first + STREAMED_BLOCK)
        rows = Rows("", table.X[part].double().numpy(), table.y[part].numpy().astype(int), "log_loss")
        share = len(rows.y) / m
        total, right = total + share * rows.objective(*point), right + share * _score(rows, point)
    return total, right


STREAMED = ("laconic", "laconic from Parquet", "scikit-learn", "glum")


def fit_streamed(progress: Progress, *, contender: str, folder: str, threads: int) -> dict[str, Any]:
    """One contender's fit, as JSON values; loading libraries at the first fit is not timed."""
    store, parquet = (str(Path(folder, f"rows.{kind}")) for kind in ("safetensors", "parquet"))

    def from_parquet(rows: Rows) -> Fitted:  # each time to a store of its own
        return ours(Rows("", Source(parquet, cache=tempfile.mkdtemp(dir=folder)), "y", "log_loss"))

    rivals: dict[str, Callable[[Rows], Fitted]] = {"scikit-learn": scikit_learn, "glum": glum}
    rivals.get(contender, ours)(_first())
    if contender in rivals:
        table = read(store)
        rows = Rows("", table.X.numpy().copy(), table.y.numpy().astype(int), "log_loss")
    else:
        rows = Rows("", Source(store), None, "log_loss")
    fit = rivals.get(contender, ours if contender == "laconic" else from_parquet)
    (coef, intercept), told = _timed(fit, rows, 1, threads)
    own = {"coef": np.ravel(coef).tolist(), "intercept": np.ravel(intercept).tolist()}
    return {**own, **told, "peak_bytes": resident("VmHWM")}


def _first() -> Rows:
    """A few rows in float32, as a large X has them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2**16, 64), dtype=np.float32)
    return Rows("", X, (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int), "log_loss")


def _timed(fit: Callable[[Rows], Fitted], rows: Rows, repeats: int, threads: int) -> tuple[Fitted, dict[str, Any]]:
    """The model, and fields of its row: seconds, threads and whether it reported convergence."""
    medians: dict[int, float] = {}
    for n in {1, threads}:
        torch.set_num_threads(n)
        seconds: list[float] = []
        with import_module("threadpoolctl").threadpool_limits(n):
            while len(seconds) < repeats and not (seconds and seconds[-1] > LONG):
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    began = time.perf_counter()
                    point = fit(rows)
                    seconds.append(time.perf_counter() - began)
        medians[n] = median(seconds)
    best = min(medians, key=lambda n: medians[n])
    said = any(issubclass(w.category, ConvergenceWarning) or "onverge" in str(w.message) for w in told)
    return point, {"seconds": medians[best], "threads": best, "converged": not said}


def _score(rows: Rows, point: Fitted) -> float:
    coef, intercept = np.atleast_2d(point[0]), np.ravel(point[1])
    z = np.asarray(rows.X @ coef.T + intercept)
    if rows.loss == "log_loss":
        label = z.argmax(1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(int)
        return float((label == rows.y).mean())
    if rows.loss == "squared_error":
        return float(1 - np.square(z[:, 0] - rows.y).mean() / np.var(rows.y))
    with np.errstate(over="ignore"):
        return float(d2_tweedie_score(rows.y, np.exp(np.clip(z[:, 0], -700, 700)), power=1))


def _sets(options: OptimumOptions) -> Iterator[Callable[[], Rows]]:
    """Functions that make the data sets."""
    yield from (partial(_bundled, name) for name in ("breast cancer", "wine", "digits"))
    yield from (_diabetes, _outlier, _long_tails, _claims, _wide)
    if options.large:
        yield _million
    if options.data is not None:
        yield from (lambda path=path: _file(path) for path in sorted(options.data.iterdir()) if path.name in FILES)


def _bundled(name: str) -> Rows:
    X, y = getattr(datasets, "load_" + name.replace(" ", "_"))(return_X_y=True)
    return Rows(name, X, y, "log_loss")


def _diabetes() -> Rows:
    X, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    return Rows("diabetes", X, y, "squared_error")


def _outlier() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((DRAWN_ROWS, 5))
    X[7, 4] = 1e6
    return Rows("one outlier", X, (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int), "log_loss")


def _long_tails() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((DRAWN_ROWS, 8))
    y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int)
    X[:, 4:] = np.exp(3 * X[:, 4:])
    return Rows("long tails", X, y, "log_loss")


def _claims() -> Rows:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((DRAWN_ROWS, 5))
    y = rng.poisson(np.exp(z @ [0.3, -0.2, 0.1, 0.1, 0.0] - 2)).astype(float)
    return Rows("claims", z * [5, 1, 20, 0.3, 3000] + [2015, 6, 45, 0.5, 1500], y, "poisson")


def _wide() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 500))
    z = 3 * X @ rng.standard_normal(500) / 500**0.5
    return Rows("2,000 x 500", X, (z + rng.logistic(size=len(X)) > 0).astype(int), "log_loss")


def _million() -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1_000_000, 50))
    z = X @ rng.standard_normal(50) / 50**0.5
    return Rows("1 M x 50", X, (z + rng.logistic(size=len(X)) > 0).astype(int), "log_loss")


FILES: dict[str, tuple[str, str | None, tuple[str, ...], str]] = {
    "a9a.xz": ("log_loss", None, (), ""),
    "w8a.xz": ("log_loss", None, (), ""),
    "higgs_sample.parquet": ("log_loss", "label", (), ""),
    "covtype.parquet": ("log_loss", "Cover_Type", (), "2"),
    "bike_sharing_hour.parquet": ("poisson", "cnt", ("casual", "registered"), ""),
    "freMTPL2freq.parquet": ("poisson", "ClaimNb", ("IDpol",), ""),
}
"""Known files: loss, target, columns to leave out, and the positive class. Text columns are left out."""


def _file(path: Path) -> Rows:
    loss, target, drop, positive = FILES[path.name]
    if target is not None:
        import pyarrow.parquet as pq

        numbers = ("int", "uint", "float", "double", "halffloat")
        drop += tuple(one.name for one in pq.read_schema(path) if not str(one.type).startswith(numbers))
    table = read(Source(str(path), target=target, exclude=drop), dtype="fp64" if target else None)
    X = table.X.numpy() if target else table.X.astype(float)
    if not target:  # saga takes no other
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    y = table.y.numpy()
    if loss == "log_loss":
        y = (y == int(positive)).astype(int) if positive else (y > 0).astype(int)
    return Rows(path.name.split(".")[0], X, y if loss == "log_loss" else y.astype(float), loss)


def under(rows: Sequence[Row]) -> str:
    """Which penalty the rows have, where it is L1, to be added to a title."""
    return "; L1" if any(row.get("zeros") is not None for row in rows) else ""


PRESENTATION = Presentation(
    "Default fits against the optimum",
    [
        RowTable(
            lambda rows: "Above the optimum, relative to what there is to gain" + under(rows),
            [
                text("data", "data"),
                text("columns", "columns"),
                Column("rows", "n_rows", ""),
                text("features", "n_features"),
                text("contender", "contender"),
                Column("objective", "objective", digits=6),
                Column("gap", "gap", digits=2),
                Column("weights 0", "zeros", "n"),
                Column("score", "score", digits=4),
                Column("s", "seconds"),
                text("threads", "threads"),
                Column("peak memory", "peak_bytes", "B"),
                text("claims convergence", lambda row: "yes" if row.get("converged") else "no"),
            ],
            f"Same objective for all: mean loss + {ALPHA}/2 ‖x‖²; with L1 mean loss + alpha ‖x‖₁, where alpha is "
            f"{SHARE} of the least that leaves no weight. s: of `fit`, median; on one thread or on all of them, "
            "whichever is faster.",
        ),
        BarChart("Seconds of a fit", "seconds", "s", group="data"),
    ],
)

NEAR, SMALL = 1e-3, 50_000 * 100
"""The gap that counts as the optimum, and the values of a small problem."""


def outcomes(document: Row) -> Iterator[Outcome]:
    """Convergence and gap of our fits, and their time over that of the fastest rival that comes as near."""
    rows = rows_in(document)
    l1, ours = under(rows), [row for row in rows if row["contender"] == "laconic"]
    claimed = [row["gap"] for row in ours if row["converged"]]
    far = sum(gap > NEAR for gap in claimed)
    yield outcome(f"fits that claim convergence farther than {NEAR:g} from the optimum{l1}", far, 0, 0)
    yield outcome(f"the largest gap of a fit that claims convergence{l1}", max(claimed, default=0.0), NEAR, 1e-5)
    peaks = [row["peak_bytes"] for row in rows if row["contender"] == "laconic from Parquet"]
    if any(peaks):
        yield outcome("peak memory of a fit that is streamed from Parquet, GB", max(peaks) / 1e9, 1.0, 0.5)
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for own in ours:
        same = [row for row in rows if (row["data"], row["columns"]) == (own["data"], own["columns"]) and row != own]
        rivals = [row["seconds"] for row in same if row["gap"] <= NEAR]
        if rivals:
            ratios[own["n_rows"] * own["n_features"] < SMALL].append(own["seconds"] / min(rivals))
    for small, name, marks in ((True, "small", (3.0, 1.0)), (False, "large", (1.0, 0.3))):
        if ratios[small]:
            kind = f"{name} problems{l1}: seconds ÷ the faster rival's within {NEAR:g}"
            yield outcome(f"{kind}, median", median(ratios[small]), *marks)
            yield outcome(f"{kind}, worst", max(ratios[small]), *marks)


SUITE = Suite(
    "glm-optimum",
    OptimumOptions,
    race,
    """How far default fits end from the optimum, and what they claim, beside scikit-learn and glum.

    Bundled and drawn data sets; --data DIR adds files.
    """,
)
