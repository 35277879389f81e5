"""The settings of a solver: the rows of each batch, the size of each step, and all else it is told."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from laconic.errors import InvalidOption, Option
from laconic.glm.precision import Precision
from laconic.glm.problem import Penalty
from laconic.kernels import Stream

SOLVERS = ("sgd", "ca_sgd")
GRADIENTS = ("mean", "sum")
ORDERS = ("shuffle", "cyclic", "replacement")
SHRINK = 0.2
"""What `Adaptive` multiplies η by when the loss no longer falls."""
SMALLEST_FACTOR = 1e-4
"""Where `Adaptive` gives up shrinking: the fit has converged."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Batches of consecutive rows of an epoch's order; the last one may be short.

    The order is a function of seed and epoch alone, so any epoch can be made anew after a restart.

    order       "shuffle" (a permutation each epoch), "cyclic" (as the rows come) or "replacement" (independent draws)
    batch_size  rows of a batch
    seed        of the random orders

    >>> Sampling("cyclic", batch_size=2).n_batches(5), Sampling("cyclic").epoch(4, 0)
    (3, array([0, 1, 2, 3], dtype=int32))
    """

    order: str = "shuffle"
    batch_size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"unknown order {self.order!r}; choose one of {', '.join(ORDERS)}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")

    def n_batches(self, n_rows: int) -> int:
        """Batches of an epoch."""
        return -(-n_rows // self.batch_size)

    def epoch(self, n_rows: int, epoch: int) -> np.ndarray:
        """The order of the rows (int32) in an epoch."""
        if self.order == "cyclic":
            return np.arange(n_rows, dtype=np.int32)
        from laconic.kernels.cpu import shuffle  # Numba is loaded where it is first needed

        stream = Stream(self.seed, step=epoch, tensor="rows")
        return shuffle.permutation(n_rows, stream) if self.order == "shuffle" else shuffle.draws(n_rows, stream)


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """η at iteration t = 0, 1, …, times a factor that only `Adaptive` changes.

    eta0  step size at the start
    """

    name: ClassVar[str]
    adapts: ClassVar[bool] = False
    eta0: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.eta0 < float("inf"):
            raise ValueError(f"eta0 must be positive and finite, got {self.eta0}")

    @abstractmethod
    def rates(self, t: np.ndarray) -> np.ndarray:
        """η (float64) at the iterations t."""


class Constant(Schedule):
    """η = eta0."""

    name = "constant"

    def rates(self, t: np.ndarray) -> np.ndarray:
        return np.full(len(t), self.eta0)


@dataclass(frozen=True, slots=True)
class InverseScaling(Schedule):
    """η = eta0 / (t + 1)^power_t.

    >>> InverseScaling(1.0, power_t=0.5).rates(np.array([0, 3]))
    array([1. , 0.5])
    """

    name = "invscaling"
    power_t: float = 0.25

    def rates(self, t: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.eta0 / (t + 1.0) ** self.power_t
        return result


@dataclass(frozen=True, slots=True)
class Cosine(Schedule):
    """η = eta0 (1 + cos(π t / n)) / 2, from eta0 down to nothing over n iterations.

    >>> Cosine(1.0, n_iterations=4).rates(np.array([0, 2, 4])).round(6)
    array([1. , 0.5, 0. ])
    """

    name = "cosine"
    n_iterations: int = 1

    def rates(self, t: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.eta0 * 0.5 * (1 + np.cos(np.pi * np.minimum(t / self.n_iterations, 1.0)))
        return result


class Adaptive(Schedule):
    """η = eta0 times a factor, shrunk fivefold at the end of an epoch when the loss has not fallen for a while."""

    name = "adaptive"
    adapts = True

    def rates(self, t: np.ndarray) -> np.ndarray:
        return np.full(len(t), self.eta0)


SCHEDULES = ("constant", "invscaling", "cosine", "adaptive")


def schedule(name: str, eta0: float, *, power_t: float = 0.25, n_iterations: int = 1) -> Schedule:
    """A schedule by name."""
    if name == "constant":
        return Constant(eta0)
    if name == "invscaling":
        return InverseScaling(eta0, power_t)
    if name == "cosine":
        return Cosine(eta0, n_iterations)
    if name == "adaptive":
        return Adaptive(eta0)
    raise ValueError(f"unknown learning_rate {name!r}; choose one of {', '.join(SCHEDULES)}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Hyperparameters of a fit, as the solvers take them.

    solver            "sgd", one AllReduce per iteration, or "ca_sgd", one every s iterations
    s                 iterations per block of CA-SGD; blocks end with the epoch, so the last may be shorter
    sampling          rows of each batch
    schedule          step sizes
    penalty           on the weights
    fit_intercept     whether there is one
    gradient          "mean" or "sum" over a batch
    momentum          μ of u ← μ u + gradient, x ← x − η u
    average           iterations after which averaging of the iterates begins; None for never
    precision         the nine knobs
    max_iter          epochs
    tol               an epoch counts as progress if it lowers the loss by more than this; None to run all epochs
    n_iter_no_change  epochs without progress before the fit stops, or `Adaptive` shrinks its step
    """

    solver: str = "ca_sgd"
    s: int = 16
    sampling: Sampling = field(default_factory=Sampling)
    schedule: Schedule = field(default_factory=Constant)
    penalty: Penalty = field(default_factory=Penalty)
    fit_intercept: bool = True
    gradient: str = "mean"
    momentum: float = 0.0
    average: int | None = None
    precision: Precision = field(default_factory=Precision)
    max_iter: int = 100
    tol: float | None = 1e-4
    n_iter_no_change: int = 5

    def __post_init__(self) -> None:
        for name, choices in (("solver", SOLVERS), ("gradient", GRADIENTS)):
            if getattr(self, name) not in choices:
                what = Option(name, getattr(self, name))
                raise InvalidOption("unknown ", what, f"; choose one of {', '.join(choices)}")
        for name in ("s", "max_iter", "n_iter_no_change"):
            if getattr(self, name) < 1:
                raise InvalidOption(Option(name), f" must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.momentum < 1:
            raise InvalidOption(Option("momentum"), f" must be at least 0 and less than 1, got {self.momentum}")
        if self.average is not None and self.average < 0:
            raise InvalidOption(Option("average"), f" must not be negative, got {self.average}")

    @property
    def step(self) -> int:
        """Iterations between two messages."""
        return self.s if self.solver == "ca_sgd" else 1
