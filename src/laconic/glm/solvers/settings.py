"""The settings of a solver."""

from dataclasses import dataclass, field

from laconic.errors import InvalidOption, Option
from laconic.glm.precision import Precision
from laconic.glm.problem import Penalty
from laconic.glm.schedule import Constant, Sampling, Schedule

SOLVERS = ("sgd", "ca_sgd")
GRADIENTS = ("mean", "sum")


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
