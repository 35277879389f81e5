"""The suite `glm-device`: iterations of SGD and CA-SGD on one GPU, beside eager and graphed PyTorch, and JAX."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.glm.device_rivals import EagerSGD, GraphedSGD, JaxSGD, Rival, has_jax
from laconic.bench.glm.runs import SEED, check_contenders, first_rows, objective
from laconic.bench.glm.suite import an_iteration, problems
from laconic.bench.protocol import Spread, WrongResult
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.data import SHAPES
from laconic.data.synthetic import ProblemShape
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm import DenseColumns, FitOptions, Problem, auto_eta0, begin, recipe
from laconic.glm.families import FAMILIES
from laconic.glm.ranks import Wire
from laconic.glm.solvers.state import segment
from laconic.measure.solvers import Contender, Copies, SolverRun
from laconic.options import check_counts, check_names, option
from laconic.report import Column, Presentation, RowTable, Text, speedups, text
from laconic.report.values import Row, number_in, rows_in, text_in

EAGER, EAGER_BF16 = "eager fp32 SGD", "eager bf16 SGD"
GRAPHED, GRAPHED_BF16, JAX = "graphed fp32 SGD", "graphed bf16 SGD", "jax fp32 SGD"
CHECKED = 512
"""Iterations after which every contender is compared with SGD in float64."""
LARGEST_DIFFERENCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Allowed relative difference of the weights from those of SGD in float64, by the format of the data."""
WIDE = "wide"
DEVICE_SHAPES = {**SHAPES, WIDE: ProblemShape(100_000, 32_768, "logistic", 2.0, 0.0)}
"""`data.SHAPES`, and a problem with rows of 64 KB."""
CHUNK_VALUES = 2**26


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What to run."""

    device: str = option("cuda", "The GPU: cuda, cuda:1, ...")
    problem: Sequence[str] = option(("all",), f"{', '.join(DEVICE_SHAPES)}, or all; all.", metavar="NAME,...")
    scale: float = option(1.0, "Part of the rows.")
    s: Sequence[int] = option((8, 16, 32), "Iterations of a block of ca_sgd; 8,16,32.", metavar="N,...")
    batch_size: int = option(32, "Rows of a batch.")
    iterations: int = option(8192, "Iterations of a round; eager contenders take a thirty-second of them.")
    repeats: int = option(11, "Timed rounds.")
    recipes: Sequence[str] = option(
        ("fp32", "C", "D"), "Precision of ours; fp32,C,D.", flag="--recipe", metavar="NAME,..."
    )
    skip_epoch: bool = option(False, "Do not run a whole epoch of ours and of graphed SGD to compare their losses.")

    def __post_init__(self) -> None:
        check_names(self.problems, tuple(DEVICE_SHAPES), "problem")
        check_contenders(self.recipes, self.s)
        check_counts(self)
        if not 0 < self.scale <= 1:
            raise InvalidOption(
                Option("scale"), f" is the part of the rows to keep, above 0 and at most 1; got {self.scale:g}"
            )
        if not self.device.startswith("cuda"):
            raise InvalidOption(Option("device"), f" must be a CUDA GPU, such as cuda; got {self.device!r}")
        if not torch.cuda.is_available():
            raise InvalidOption("there is no CUDA GPU here; `laconic bench glm` runs on ranks of the CPU")

    @property
    def problems(self) -> list[str]:
        """Their names."""
        return list(DEVICE_SHAPES if list(self.problem) == ["all"] else dict.fromkeys(self.problem))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        ours = len(self.recipes) * (len(self.s) + 1)
        return len(self.problems) * (1 + ours + 4 + has_jax())

    def published(self) -> dict[str, Any]:
        """The options as JSON values."""
        values = asdict(self)
        del values["problem"], values["skip_epoch"]
        return {"problems": self.problems, **values, "epoch": not self.skip_epoch}


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One contender on one problem.

    seconds       of one iteration, including the host's work: gathering rows, targets and step sizes
    over_eager    seconds of eager SGD in float32 over its own, medians; likewise for the other rivals
    difference    ‖x − x'‖ / ‖x'‖ from SGD in float64 after `CHECKED` iterations
    loss          half the mean deviance, penalty included, after one epoch; None where it was not run
    loss_gap      loss over that of graphed SGD in float32 on the same batches, minus 1
    ran           name of the kernels
    """

    problem: str
    family: str
    n_rows: int
    n_features: int
    batch_size: int
    contender: str
    solver: str
    recipe: str
    s: int
    ran: str
    n_iterations: int
    seconds: Spread
    over_eager: float
    over_eager_bf16: float
    over_graphed: float
    over_graphed_bf16: float
    over_jax: float | None
    difference: float
    loss: float | None
    loss_gap: float | None

    @property
    def is_ours(self) -> bool:
        """Whether the contender is one of this package's solvers."""
        return self.solver in ("sgd", "ca_sgd")


class Ours:
    """A solver of this package as a contender."""

    def __init__(self, solver: SolverRun, label: str) -> None:
        if solver.ran is None:
            raise WrongResult(f"{label}: the fused kernels do not know this fit")
        self.solver, self.label, self.ran = solver, label, solver.ran
        self.orders: dict[tuple[int, int], np.ndarray] = {}

    def run(self, rows: torch.Tensor) -> None:
        """As `Rival.run`; rows are copied to the host once, since a fit keeps its order of rows there."""
        of, own = self.solver, (rows.data_ptr(), len(rows))
        if own not in self.orders:
            self.orders[own] = rows.int().cpu().numpy()
        n = len(rows) // of.options.batch_size
        of.state.batch = 0
        of.advance(segment(of.problem, of.options, of.state, self.orders[own], n))
        of.state.iteration += n

    def point(self) -> tuple[torch.Tensor, float]:
        """As `Rival.point`."""
        return self.solver.state.coef[0], float(self.solver.state.intercept)


def ours(contender: Contender, copies: Copies, batch_size: int, eta: float) -> Ours:
    """A contender of ours in one process, at its start."""
    return Ours(SolverRun.of(contender, copies, batch_size, Communicator(), eta, SEED), contender.label)


def loss_of(rival: Rival, problem: Problem) -> float:
    """The objective over all rows at the rival's current point."""
    settings = Contender("sgd", "fp32").options(1.0, 1, SEED)
    state = begin(problem, settings)
    x, intercept = rival.point()
    state.weights.x.copy_(x[None])
    state.weights.intercept.value.fill_(intercept)
    return objective(problem, settings, state, Communicator())


def device_rows(options: DeviceOptions, progress: Progress = no_progress) -> Iterator[DeviceRow]:
    """Run the suite and check every result, problem by problem."""
    for name in options.problems:
        yield from _Bench(name, options, progress).rows()


@dataclass(frozen=True, slots=True)
class _Measured:
    """Measurements of one contender by itself; fields as in `DeviceRow`."""

    contender: Contender
    label: str
    ran: str
    n_iterations: int
    seconds: Spread
    difference: float
    loss: float | None


class _Bench:
    """All contenders on one problem."""

    def __init__(self, name: str, options: DeviceOptions, progress: Progress) -> None:
        self.name, self.options, self.progress = name, options, progress
        progress(f"{name}: the rows")
        device = torch.device(options.device)
        self.problem = device_problem(name, options.scale, device, SEED)
        self.copies = Copies(self.problem)
        settings = Contender("sgd", "fp32").options(1.0, options.batch_size, SEED)
        self.eta = auto_eta0(self.problem, settings, Communicator())
        self.start = float(begin(self.problem, settings).intercept)
        self.n_epoch = self.problem.n_rows // options.batch_size
        rows = first_rows(FitOptions(seed=SEED), self.problem.n_rows, self.n_epoch * options.batch_size)
        self.order = torch.from_numpy(rows).long().to(device)
        self.exact = self._exact()

    def rows(self) -> list[DeviceRow]:
        """Rows of every contender, checked and timed; the baselines first."""
        found = [self._measure(*made) for made in self._everyone()]
        times = {one.label: one.seconds.median for one in found}
        base = next((one.loss for one in found if one.label == GRAPHED), None)
        return [self._row(one, times, base) for one in found]

    def _everyone(self) -> Iterator[tuple[str, Callable[[], Rival], Contender]]:
        o = self.options
        for kind in (EagerSGD, GraphedSGD):
            for dtype, short in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
                yield f"{kind.__name__} {short}", partial(self._torch, kind, dtype), Contender("torch", short)
        if has_jax():
            yield "JaxSGD", lambda: JaxSGD(self._X(torch.float32), *self._given), Contender("jax", "fp32")
        for name in o.recipes:
            for contender in [Contender("ca_sgd", name, s) for s in o.s] + [Contender("sgd", name)]:
                if self._is_known(contender):
                    yield contender.label, partial(self._ours, contender), contender

    @property
    def _given(self) -> tuple[torch.Tensor, str, int, float, float]:
        return self.problem.y, self.problem.family.name, self.options.batch_size, self.eta, self.start

    def _torch(self, kind: type[EagerSGD], dtype: torch.dtype) -> EagerSGD:
        return kind(self._X(dtype), *self._given)

    def _is_known(self, contender: Contender) -> bool:
        """Whether fused kernels support a contender: not SGD on more columns than one multiprocessor can hold."""
        from laconic.glm.solvers.device.iterations import Iterations

        settings = contender.options(self.eta, self.options.batch_size, SEED)
        return contender.solver == "ca_sgd" or Iterations.suits(self.problem, settings, Wire(Communicator()))

    def _ours(self, contender: Contender) -> Ours:
        return ours(contender, self.copies, self.options.batch_size, self.eta)

    def _X(self, dtype: torch.dtype) -> torch.Tensor:
        stored = self.copies.stored_as(recipe("fp32" if dtype == torch.float32 else "C"))
        return stored.columns.X  # type: ignore[attr-defined,no-any-return]

    def _measure(self, label: str, make: Callable[[], Rival], contender: Contender) -> _Measured:
        self.progress(f"{self.name}: {label}")
        difference = self._check(make(), contender)
        rival, n = make(), self.options.iterations
        if rival.label.startswith("eager"):
            n = max(1, n // 32)
        n = min(self.n_epoch, n)
        seconds = self._time(rival, n)
        run_epoch = not self.options.skip_epoch and self._runs_epoch(rival.label, contender)
        loss = self._epoch_loss(make()) if run_epoch else None
        return _Measured(contender, rival.label, getattr(rival, "ran", rival.label), n, seconds, difference, loss)

    def _row(self, one: _Measured, times: Mapping[str, float], base: float | None) -> DeviceRow:
        own = one.seconds.median
        return DeviceRow(
            problem=self.name,
            family=self.problem.family.name,
            n_rows=self.problem.columns.m,
            n_features=self.problem.columns.n,
            batch_size=self.options.batch_size,
            contender=one.label,
            solver=one.contender.solver,
            recipe=one.contender.recipe,
            s=one.contender.s,
            ran=one.ran,
            n_iterations=one.n_iterations,
            seconds=one.seconds,
            over_eager=times[EAGER] / own,
            over_eager_bf16=times[EAGER_BF16] / own,
            over_graphed=times[GRAPHED] / own,
            over_graphed_bf16=times[GRAPHED_BF16] / own,
            over_jax=times[JAX] / own if JAX in times else None,
            difference=one.difference,
            loss=one.loss,
            loss_gap=one.loss / base - 1 if one.loss is not None and base is not None else None,
        )

    def _runs_epoch(self, label: str, contender: Contender) -> bool:
        return label == GRAPHED or contender.solver in ("ca_sgd", "sgd")

    def _time(self, rival: Rival, n: int) -> Spread:
        rows = self.order[: n * self.options.batch_size]
        samples = []
        for _ in range(2 + self.options.repeats):
            torch.cuda.synchronize()
            began = time.perf_counter()
            rival.run(rows)
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - began) / n)
        return Spread.of(samples[2:])

    def _epoch_loss(self, rival: Rival) -> float:
        rival.run(self.order)
        return loss_of(rival, self.problem)

    def _exact(self) -> torch.Tensor:
        """Weights and intercept of SGD in float64 after `CHECKED` iterations."""
        b, eta, alpha = self.options.batch_size, self.eta, Contender("sgd", "fp32").options(1.0, 1).l2
        X, y = self._X(torch.float32), self.problem.y.double()
        x = torch.zeros(X.shape[1], dtype=torch.float64, device=X.device)
        c = torch.full((), self.start, dtype=torch.float64, device=X.device)
        for rows in self.order[: min(CHECKED, self.n_epoch) * b].view(-1, b):
            Y = X.index_select(0, rows).double()
            r = self.problem.family.derivative((Y @ x + c)[:, None], y[rows])[:, 0]
            x = (1 - eta * alpha) * x - eta / len(rows) * (Y.T @ r)
            c = c - eta * r.mean()
        return torch.cat([x, c[None]])

    def _check(self, rival: Rival, contender: Contender) -> float:
        rival.run(self.order[: min(CHECKED, self.n_epoch) * self.options.batch_size])
        x, intercept = rival.point()
        found = torch.cat([x.double(), torch.tensor([intercept], dtype=torch.float64, device=x.device)])
        difference = float((found - self.exact).norm() / self.exact.norm())
        most = LARGEST_DIFFERENCE["fp32" if contender.recipe == "fp32" else "bf16"]
        if not difference <= most:
            raise WrongResult(f"{self.name}, {rival.label}: the weights are off by {difference:.3g} from float64's")
        return difference


def device_problem(name: str, scale: float, device: torch.device, seed: int = 0) -> Problem:
    """X_ij ~ N(0, 1 / n) in float32, y drawn from the family at margins of the shape's spread; see `data.make`.

    >>> device_problem("susy", 1e-5, torch.device("cpu")).columns.m
    50
    """
    shape, generator = DEVICE_SHAPES[name], torch.Generator(device).manual_seed(seed)
    m, n = max(1, round(scale * shape.n_rows)), shape.n_features
    coef = shape.spread * torch.randn(n, generator=generator, device=device)
    X = torch.empty(m, n, device=device)
    z = torch.empty(m, device=device)
    step = max(1, CHUNK_VALUES // n)
    for part in (slice(first, first + step) for first in range(0, m, step)):
        X[part].normal_(0, n**-0.5, generator=generator)
        z[part] = X[part] @ coef + shape.intercept
    return Problem(DenseColumns(X), FAMILIES[shape.family].of(), _targets(shape, z, generator))


def _targets(shape: ProblemShape, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if shape.family == "linear":
        return z + shape.noise * torch.randn(len(z), generator=generator, device=z.device)
    if shape.family == "poisson":
        return torch.poisson(z.exp(), generator=generator)
    return (torch.rand(len(z), generator=generator, device=z.device) < torch.sigmoid(z)).float()


def _device_losses(document: Row) -> list[str]:
    """Sentences on contenders of ours that are slower than SGD in a CUDA graph."""
    found = []
    for row in rows_in(document):
        fp32, bf16 = number_in(row, "over_graphed") or 1.0, number_in(row, "over_graphed_bf16") or 1.0
        if row.get("is_ours") is True and min(fp32, bf16) < 1:
            found.append(
                f"{text_in(row, 'problem')}: {text_in(row, 'contender')} is slower than SGD in a CUDA graph "
                f"({fp32:.2g} of its speed in float32, {bf16:.2g} with bfloat16 data)."
            )
    return ["Where we lose:" + ("" if found else " nowhere in this run."), *found]


PRESENTATION = Presentation(
    lambda document: f"Generalised linear models on a GPU: {problems(document)}",
    [
        RowTable(
            an_iteration,
            [
                text("contender", "contender"),
                Column("µs", "seconds", "µs"),
                Column("× eager", "over_eager"),
                Column("× graphed", "over_graphed"),
                Column("× graphed bf16", "over_graphed_bf16"),
                Column("× JAX", "over_jax"),
                Column("from fp64", "difference", digits=2),
                Column("loss gap", "loss_gap", "%"),
            ],
            "×: speed over that contender. from fp64: distance of the weights from SGD in float64 after 512 "
            "iterations, relative. loss gap: above that of graphed fp32 SGD after an epoch on the same batches.",
            by="problem",
        ),
        Text(_device_losses),
        speedups("graphed SGD in float32", "over_graphed", group="problem"),
        speedups("eager SGD in float32", "over_eager", group="problem"),
        speedups("JAX", "over_jax", group="problem"),
    ],
)
SUITE = Suite(
    "glm-device",
    DeviceOptions,
    device_rows,
    """Iterations of SGD and CA-SGD on one GPU, beside eager and graphed PyTorch, and JAX if it is installed.

    Every contender is compared with SGD in float64 before a time counts.
    """,
)
