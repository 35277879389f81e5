"""Run SGD and CA-SGD on one rank: load the rows, advance each contender's solver in turn, and measure it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from laconic.bench.ranks import barrier, digest
from laconic.bench.suite import Progress
from laconic.data import SHAPES, BadTable, Source, column_cuts, make
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import user_errors
from laconic.glm import Bernoulli, FitOptions, Problem, State, auto_eta0, recipe
from laconic.glm.families import FAMILIES
from laconic.glm.problem import load as load_table
from laconic.glm.problem import make_problem, problem_of
from laconic.glm.ranks import Wire
from laconic.glm.solvers.state import segment
from laconic.measure.solvers import Contender, Copies, SolverRun
from laconic.options import check_names

SEED = 0
FP32, BF16 = "sgd fp32", "sgd C"
"""The baselines: SGD with everything in float32, and with bfloat16 data and margins."""
FLOOR_RECIPE = "C"
CHECKED = 256
"""Most iterations before iterates are compared with SGD's: in many more, float32 rounding makes them diverge."""


@dataclass(frozen=True, slots=True)
class Given:
    """A synthetic problem or a file to take rows from, as JSON values.

    name         of the problem: one of `data.SHAPES`, or any name for a file
    scale        fraction of the rows of a synthetic problem
    source       the file, a `data.Source` or its fields; None for a synthetic problem
    family       of a file's target; None to infer it
    positive     the class that counts as 1, where a file's target has more than two
    standardize  scale a file's columns to mean 0 and variance 1
    n_features   columns of a synthetic problem, if not those of its shape
    """

    name: str
    scale: float = 1.0
    source: Any = None
    family: str | None = None
    positive: str | None = None
    standardize: bool = False
    n_features: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.source, Mapping):  # from `dataclasses.asdict`
            object.__setattr__(self, "source", Source(**self.source))
        if self.family is not None:
            check_names([self.family], tuple(FAMILIES), "family")
        if self.source is None:
            check_names([self.name], tuple(SHAPES), "problem")
            if not 0 < self.scale <= 1:
                raise InvalidOption(
                    Option("scale"), f" is the part of the rows to keep, above 0 and at most 1; got {self.scale:g}"
                )
        elif self.positive is not None and self.family not in (None, "logistic"):
            raise InvalidOption(Option("positive"), " is for ", Option("family", "logistic"), f", not {self.family}")


def load(given: Given, comm: Communicator, device: str | None = None) -> Problem:
    """This rank's columns of the rows in float32.

    >>> problem = load(Given("susy", scale=1e-5), Communicator())
    >>> problem.n_rows, problem.n_features, problem.family.name
    (50, 18, 'bernoulli')
    """
    if given.source is not None:
        return _from_file(given, given.source, comm, device)
    n = given.n_features or SHAPES[given.name].n_features
    cuts = column_cuts(n, comm.size)
    made = make(given.name, given.scale, n_features=n, columns=(cuts[comm.rank], cuts[comm.rank + 1]))
    options, family = FitOptions(recipe="fp32", device=device, standardize=False), FAMILIES[made.family].of()
    more: dict[str, Any] = {"first": cuts[comm.rank], "n_features": n}
    return make_problem(options, made.table.X, family, made.table.y.float(), None, comm=comm, **more)


def _from_file(given: Given, source: Source, comm: Communicator, device: str | None) -> Problem:
    family = given.family if given.positive is None else "multinomial"
    options = FitOptions(family=family, standardize=given.standardize, recipe="fp32", device=device)
    found = problem_of(load_table(source, comm, options), options, comm)
    if given.positive is None:
        return found
    names = [str(label) for label in found.classes or ()]
    if given.positive not in names:
        raise BadTable(f"{source.path}: no class is {given.positive!r}; there are {', '.join(names[:8])}")
    return replace(found, family=Bernoulli(), y=(found.y == names.index(given.positive)).float())


def check_contenders(recipes: Sequence[str], s: Sequence[int], n_iterations: int = 0) -> None:
    """Raise an error if there is nothing to run, a recipe is unknown, or an s does not divide the iterations."""
    if not s or not recipes:
        raise InvalidOption("there must be at least one problem, one s and one recipe")
    for block in s:
        if block < 1 or n_iterations % block:
            raise InvalidOption(
                Option("iterations"), f" must be a multiple of every s, got {n_iterations} and s = {block}"
            )
    for name in recipes:
        recipe(name)


def contenders(recipes: Sequence[str], s: Sequence[int], teams: Sequence[int] = ()) -> list[Contender]:
    """The baselines, CA-SGD with every recipe and s, teams of ranks with the middle s, and runs without messages.

    >>> [c.label for c in contenders(["C"], [8])]
    ['sgd fp32', 'sgd C', 'ca_sgd C s=8', 'sgd fp32, no messages', 'ca_sgd C s=8, no messages']
    """
    ours = [Contender("ca_sgd", name, block) for name in recipes for block in s]
    floor = FLOOR_RECIPE if FLOOR_RECIPE in recipes else recipes[0]
    ours += [Contender("ca_sgd", floor, s[len(s) // 2], teams=n) for n in teams]
    floors = [Contender("ca_sgd", floor, block, silent=True) for block in s]
    return [Contender("sgd", "fp32"), Contender("sgd", "C"), *ours, Contender("sgd", "fp32", silent=True), *floors]


@dataclass(slots=True)
class GLMRun(SolverRun):
    """A contender's solver, and its measurements.

    seconds, cpu_seconds  of an iteration, round by round
    losses                `objective` at each measurement
    total                 the sum of losses that the solver itself reports
    checked               `distance` from SGD in float32, after the first round
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    total: float = 0.0
    checked: tuple[float, float] = (0.0, 0.0)

    def run(self, rows: np.ndarray) -> None:
        """Run and time batches of these rows."""
        n, teams = len(rows) // self.options.batch_size, self.options.teams
        if teams > 1:  # each team runs its share on rows of its own
            rows = rows[: len(rows) // teams] % self.problem.n_rows
        self.state.batch = 0
        began, cpu = time.perf_counter(), time.process_time()
        self.total += self.advance(segment(self.problem, self.options, self.state, rows, n // teams))
        self.seconds.append((time.perf_counter() - began) / n)
        self.cpu_seconds.append((time.process_time() - cpu) / n)
        self.state.iteration += n // teams

    def result(self) -> dict[str, Any]:
        """Results as JSON values; the digest is of intercept and losses, which depend on every sum over ranks."""
        n, wire = self.state.iteration * self.options.teams, self.wire
        total = torch.tensor(wire.sum_over_teams(self.total), dtype=torch.float64)
        return {
            "digest": digest([self.state.intercept.double(), total]),
            "checked": self.checked,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "wire_seconds": wire.accounting.wire_seconds / n,
            "messages": wire.messages / n,
            "bytes_sent": wire.accounting.bytes_sent / n,
            "n_iterations": n,
            "losses": self.losses,
        }


@dataclass(slots=True)
class Race:
    """All contenders on one problem, run in turn on this rank."""

    name: str
    problem: Problem
    comm: Communicator
    runs: dict[str, GLMRun]

    @classmethod
    def of(
        cls, given: Given, comm: Communicator, everyone: Sequence[Contender], batch_size: int, device: str | None
    ) -> Self:
        """A race at its start, with an automatic step size; teams of ranks have rows of their own."""
        with user_errors(comm):
            problem = load(given, comm, device)
        eta0 = auto_eta0(problem, everyone[0].options(1.0, batch_size, SEED), comm)
        teams = {one.teams: comm.split(one.teams) for one in everyone}
        copies = {n: Copies(problem if n == 1 else load(given, team, device)) for n, team in teams.items()}
        made = {
            one.label: GLMRun.of(one, copies[one.teams], batch_size, teams[one.teams], eta0, SEED) for one in everyone
        }
        return cls(given.name, problem, comm, made)

    def round(self, rows: np.ndarray) -> None:
        """Run every contender in turn on the same rows."""
        for run in self.runs.values():
            barrier(self.comm)
            run.run(rows)

    def compare_with_sgd(self) -> None:
        """Record the distance of each iterate from that of SGD in float32."""
        for run in self.runs.values():
            if run.options.teams == 1:
                run.checked = distance(run.state, self.runs[FP32].state, self.comm.rank)

    def add_losses(self) -> None:
        """Measure every contender's loss over the rows in their original precision, whatever it stores."""
        for run in self.runs.values():
            run.losses.append(objective(run.rows, run.options, run.state, self.comm.split(run.options.teams)))

    def end(self) -> None:
        """Release the solvers: NCCL would wait for their CUDA graphs when the channel is closed."""
        for run in self.runs.values():
            del run.advance

    def result(self) -> dict[str, Any]:
        about = {"family": self.problem.family.name, "n_rows": self.problem.n_rows}
        runs = {label: run.result() for label, run in self.runs.items()}
        return {**about, "n_features": self.problem.n_features, "runs": runs}


def rounds_of(n_rows: int, n_rounds: int, size: int) -> np.ndarray:
    """Row indices (n_rounds, size), the same for every contender."""
    return first_rows(FitOptions(seed=SEED), n_rows, n_rounds * size).reshape(n_rounds, size)


def first_rows(options: FitOptions, n_rows: int, n: int) -> np.ndarray:
    """The first n row indices in the order of successive epochs.

    >>> first_rows(FitOptions(sampling="cyclic"), 3, 7).tolist()
    [0, 1, 2, 0, 1, 2, 0]
    """
    return np.concatenate([options.order(n_rows, epoch) for epoch in range(-(-n // n_rows))])[:n]


def distance(state: State, other: State, rank: int) -> tuple[float, float]:
    """‖x − x'‖² and ‖x'‖² over this rank's columns, the intercept counted on rank 0."""
    ours, theirs = ([s.coef.double().reshape(-1)] + [s.intercept.double()] * (rank == 0) for s in (state, other))
    a, b = torch.cat(ours), torch.cat(theirs)
    return float((a - b).square().sum()), float(b.square().sum())


def objective(problem: Problem, options: FitOptions, state: State, comm: Communicator) -> float:
    """(1/m) Σ w · deviance / 2 + penalty, over all rows in their original precision: 0 is a perfect fit."""
    wire = Wire(comm)
    z = wire.all_reduce(problem.columns.margins(state.coef.double())) + state.intercept.double()
    if problem.offset is not None:
        z = z + problem.offset_as(torch.float64)
    penalty = wire.all_reduce(z.new_tensor([options.penalty(state.coef)]))
    half = problem.family.deviance(z, problem.y.double()) / 2
    total, n_rows = wire.sum_over_teams(float((problem.weights_as(torch.float64) * half).sum()), len(half))
    return total / n_rows + float(penalty)


def glm_on_rank(
    progress: Progress, *, batch_size: int, iterations: int, repeats: int, **asked: Any
) -> list[dict[str, Any]]:
    """Run all contenders on each problem, round by round in turn; the first round is checked and not timed.

    If the first round was cut short, the second is not timed either: a GPU recaptures its kernels for longer rounds.
    """
    results, first = [], -1 if iterations > CHECKED else 0
    for race in races(progress, batch_size=batch_size, **asked):
        rounds = rounds_of(race.problem.n_rows, 1 + repeats - first, iterations * batch_size)
        for turn, rows in enumerate(rounds, first):
            if turn > 0 or turn == first:
                progress(f"{race.name}: round {turn} of {repeats}" if turn > 0 else f"{race.name}: warm-up and checks")
            race.round(rows[: CHECKED * batch_size] if turn == first else rows)
            if turn == first:
                race.compare_with_sgd()
            if turn == 0:
                for run in race.runs.values():
                    run.seconds, run.cpu_seconds = [], []
        race.add_losses()
        results.append(race.result())
    return results


def races(
    progress: Progress,
    *,
    problems: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]],
    batch_size: int,
    device: str | None = None,
) -> Iterator[Race]:
    """Yield one `Race` per problem, with all contenders at their start."""
    comm, everyone = Communicator.open(n_channels=1), [Contender(**values) for values in contenders]
    try:
        for given in (Given(**values) for values in problems):
            progress(f"{given.name}: reading")
            race = Race.of(given, comm, everyone, batch_size, device)
            try:
                yield race
            finally:
                race.end()
    finally:
        comm.close()
