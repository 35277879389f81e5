"""A fit's hyperparameters: names, defaults and limits, stated once for command line, estimators and solvers."""

import math
from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import Any

import numpy as np
import torch

from laconic.codec import make_codec
from laconic.data.files import Source
from laconic.errors import InvalidOption, Option
from laconic.glm.families import FAMILIES
from laconic.glm.precision import AUTO, Precision, is_auto, recipe, tolerance_of
from laconic.kernels import Stream
from laconic.options import check_int, option

SOLVERS = ("sgd", "ca_sgd", "newton")
GRADIENTS = ("mean", "sum")
ORDERS = ("shuffle", "cyclic", "replacement")
SCHEDULES = ("constant", "invscaling", "cosine", "adaptive")
DIRECT, SEVERAL, MOST_PRODUCTS = 768, 128, 2**35
"""Weights, the intercept included, up to which Newton's method forms and factorises the Hessian: of one output, and of
several, where products with it are otherwise the cheaper way; and products for it that several may cost where there is
no other way."""
FAMILY_NAMES = ", ".join(FAMILIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Hyperparameters of a fit, as users name them; raises `InvalidOption` for a value that makes no sense.

    `help_of` describes each one. `laconic fit` and the estimators take their defaults from here. What is "auto"
    is resolved on the data, in `glm.resolve`; the solvers read the same options with nothing "auto" left. With device
    None a fit computes where X lies, for a file on the CPU.

    The penalty is alpha ((1 − l1_ratio) ‖x‖² / 2 + l1_ratio ‖x‖₁), without the intercept. The square acts in every
    iteration. The absolute value acts once per outer iteration of CA-SGD, with the step sizes of that iteration summed:
    with s > 1 and l1_ratio > 0 the iterates depend on s.

    The command line has neither early stopping, whose split by classes is scikit-learn's, nor what only changes SGD's
    way (`sampling`, `gradient`, `average`, `power_t`, `n_iter_no_change`, `polish`).

    >>> FitOptions(alpha=0.1).alpha, FitOptions.help_of("alpha")
    (0.1, 'Strength of the penalty.')
    """

    family: str | None = option(None, f"{FAMILY_NAMES}; by default logistic where y has two values.")
    tweedie_power: float = option(1.5, "Of the mean, that the variance of a tweedie target goes with; from 1 to 2.")
    theta: float = option(1.0, "Of negative_binomial counts, whose variance is mean + mean² / theta.")
    alpha: float = option(1e-4, "Strength of the penalty.")
    l1_ratio: float = option(0.0, "Share of the penalty that is on absolute values.")
    fit_intercept: bool = option(True, "Whether there is an intercept.", flag="--intercept/--no-intercept")
    standardize: bool | str = option(
        AUTO,
        "Fit to columns of mean 0 and variance 1 (sparse: not centred); by default where sizes differ tenfold, "
        "or a mean is ten times its column's deviation.",
        flag="--standardize/--no-standardize",
    )
    max_iter: int = option(100, "Epochs, at most.")
    tol: float | None = option(
        1e-4, "Stop when no more than this share of what was gained is left to gain; negative: run all epochs."
    )
    n_iter_no_change: int = option(5, "Epochs without progress before the fit stops, or its step shrinks.", flag=None)
    early_stopping: bool = option(False, "Judge progress by rows that are held back.", flag=None)
    validation_fraction: float = option(0.1, "Share of the rows that early stopping holds back.", flag=None)
    solver: str = option(
        AUTO, "newton, sgd, ca_sgd, or auto: newton where columns are few or on a GPU, else sgd; ca_sgd on ranks."
    )
    polish: bool | str = option(
        AUTO, "Let Newton's steps end a fit by SGD; auto: where the solver is auto, too.", flag=None
    )
    s: int | str = option(AUTO, "Iterations that share a message, or auto.", metavar="N")
    batch_size: int = option(32, "Rows of a batch.")
    sampling: str = option("shuffle", "Rows of each epoch: shuffle, cyclic or replacement.", flag=None)
    shuffle: bool = option(True, "False takes rows as they come, as cyclic sampling does.", flag=None)
    gradient: str = option("mean", "Of a batch: mean or sum.", flag=None)
    learning_rate: str = option("adaptive", "constant, invscaling, cosine or adaptive.")
    eta0: float | str = option(AUTO, "First step size, or auto.", metavar="NUMBER")
    power_t: float = option(0.25, "Power of invscaling: steps are eta0 / (t + 1)^power_t.", flag=None)
    momentum: float = option(0.0, "From 0 to less than 1.")
    average: bool | int = option(False, "Average the iterates: all, or those after so many rows.", flag=None)
    recipe: str | Precision = option(  # noqa: RUF009
        AUTO, "Precision: fp32, fp64, C, D, auto, or auto:1e-3 for the cheapest that errs by no more."
    )
    device: str | None = option(None, "Where to compute: cpu, cuda, or auto for a GPU if there is one.")
    teams: int = option(1, "Teams of ranks; each spreads the columns of its own share of the rows.")
    average_every: int | str = option(
        AUTO, "Blocks of s after which teams average their weights, or auto.", metavar="N"
    )
    average_codec: str = option("fp32", "How weights' changes go between teams: fp32, nuqsgd-4, ...", metavar="NAME")
    seed: int = option(0, "Of the order of the rows.", least=0)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        for name in ("max_iter", "batch_size", "n_iter_no_change", "teams"):
            check_int(name, getattr(self, name), 1)
        for name in _LIMITS:
            if (name, getattr(self, name)) not in (("tol", None), ("eta0", AUTO)):
                check_number(name, getattr(self, name), hint=', or "auto"' if name == "eta0" else "")
        if self.s != AUTO:
            check_int("s", self.s, 1, hint=', or "auto"')
        if self.average_every != AUTO:
            check_int("average_every", self.average_every, 1, hint=', or "auto"')
        if self.average_codec != "fp32":
            try:
                make_codec(self.average_codec)
            except (ValueError, TypeError, AttributeError) as error:
                raise InvalidOption(Option("average_codec", self.average_codec), f": {error}") from error
        if not isinstance(self.average, bool):
            check_int("average", self.average, 0, hint=", True or False")
        if not self.shuffle and self.sampling == "replacement":
            why = " takes rows as they come; it cannot be combined with "
            raise InvalidOption(Option("shuffle", False), why, Option("sampling", "replacement"))
        if self.family is not None:
            FAMILIES[self.family].of(options=self.of_family)
        if not isinstance(self.recipe, (str, Precision)):
            raise InvalidOption(Option("recipe"), f" must be a name or a Precision, got {self.recipe!r}")
        if isinstance(self.recipe, str) and self.recipe != AUTO:
            tolerance_of(self.recipe) if is_auto(self.recipe) else recipe(self.recipe)
        kind = self.device.split(":")[0] if isinstance(self.device, str) else self.device
        if kind not in (None, "cpu", "cuda", AUTO):
            known = "; choose cpu, cuda, a GPU by its number such as cuda:1, or auto"
            raise InvalidOption("unknown ", Option("device", self.device), known)

    @classmethod
    def help_of(cls, name: str) -> str:
        """What an option does, in a sentence."""
        return next(str(one.metadata["help"]) for one in fields(cls) if one.name == name)

    def to_json(self) -> dict[str, Any]:
        """What was fitted with, once nothing is "auto": JSON values by the names of the command line's options."""
        return {
            "recipe": self.precision.short_name(),
            "solver": self.solver,
            "s": self.s,
            "batch_size": self.batch_size,
            "alpha": self.alpha,
            "l1_ratio": self.l1_ratio,
            "eta0": self.eta0,
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "intercept": self.fit_intercept,
            "standardize": self.standardize,
            "max_iter": self.max_iter,
            "tol": self.tol,
            "seed": self.seed,
            **self.of_family,
            "teams": self.teams,
        } | ({} if self.teams == 1 else {name: getattr(self, name) for name in ("average_every", "average_codec")})

    @property
    def of_family(self) -> dict[str, float]:
        """Numbers that a family takes, by name."""
        return {"tweedie_power": self.tweedie_power, "theta": self.theta}

    @property
    def precision(self) -> Precision:
        """The nine knobs of the recipe."""
        return recipe(self.recipe)

    @property
    def step(self) -> int:
        """Iterations between two messages: s of CA-SGD, 1 of SGD."""
        return int(self.s) if self.solver == "ca_sgd" else 1

    @property
    def average_after(self) -> int | None:
        """Iterations after which averaging of the iterates begins; None for never."""
        rows = 0 if self.average is True else int(self.average)
        return -(-rows // self.batch_size) if self.average else None

    @property
    def penalises_given(self) -> bool:
        """Whether the penalty of scaled columns is still of columns as given: Newton's steps, and scaling by "auto"."""
        return self.standardize == AUTO and (self.polish is True or self.solver == "newton")

    @property
    def l2(self) -> float:
        """λ of (λ/2) ‖x‖²."""
        return self.alpha * (1 - self.l1_ratio)

    @property
    def l1(self) -> float:
        """Factor of ‖x‖₁."""
        return self.alpha * self.l1_ratio

    def penalty(self, x: torch.Tensor) -> float:
        """The penalty of (a rank's part of) the weights."""
        x = x.double()
        return float(self.l2 / 2 * x.square().sum() + self.l1 * x.abs().sum())

    def n_batches(self, n_rows: int) -> int:
        """Batches of an epoch; the last one may be short.

        >>> FitOptions(batch_size=2).n_batches(5)
        3
        """
        return -(-n_rows // self.batch_size)

    def order(self, n_rows: int, epoch: int) -> np.ndarray:
        """The order of the rows (int32) in an epoch: a function of seed and epoch alone, made anew after a restart.

        Batches are consecutive rows of it. "shuffle" is a permutation each epoch, "replacement" independent draws, and
        "cyclic" takes the rows as they come.
        """
        if self.sampling == "cyclic" or not self.shuffle:
            return np.arange(n_rows, dtype=np.int32)
        from laconic.kernels.cpu import shuffle  # Numba is loaded where it is first needed

        stream = Stream(self.seed, step=epoch, tensor="rows")
        return shuffle.permutation(n_rows, stream) if self.sampling == "shuffle" else shuffle.draws(n_rows, stream)

    def rates(self, t: np.ndarray, n_rows: int) -> np.ndarray:
        """η (float64) at the iterations t = 0, 1, … of a fit to so many rows; eta0, if it is neither of

            invscaling   eta0 / (t + 1)^power_t
            cosine       eta0 (1 + cos(π t / n)) / 2, from eta0 down to nothing over the n iterations of max_iter epochs

        "adaptive" multiplies this by a factor that shrinks when the loss no longer falls, which is the solver's to do.

        >>> FitOptions(eta0=1.0, learning_rate="invscaling", power_t=0.5).rates(np.array([0, 3]), 100)
        array([1. , 0.5])
        """
        eta0 = np.float64(self.eta0)
        if self.learning_rate == "invscaling":
            return np.asarray(eta0 / (t + 1.0) ** self.power_t)
        if self.learning_rate == "cosine":
            done = np.minimum(t / (self.max_iter * self.n_batches(n_rows)), 1.0)
            return np.asarray(eta0 * 0.5 * (1 + np.cos(np.pi * done)))
        return np.full(len(t), eta0)


_CHOICES: dict[str, Collection[Any]] = {
    "family": (None, *FAMILIES),
    "solver": (AUTO, *SOLVERS),
    "sampling": ORDERS,
    "gradient": GRADIENTS,
    "learning_rate": SCHEDULES,
    **dict.fromkeys(("fit_intercept", "early_stopping", "shuffle"), (True, False)),
    **dict.fromkeys(("standardize", "polish"), (AUTO, True, False)),
}
_LIMITS: dict[str, tuple[float, float, str]] = {
    "alpha": (0, math.inf, "[]"),
    "l1_ratio": (0, 1, "[]"),
    "momentum": (0, 1, "[)"),
    "power_t": (-math.inf, math.inf, "[]"),
    "validation_fraction": (0, 1, "()"),
    "tol": (-math.inf, math.inf, "[]"),
    "eta0": (0, math.inf, "(]"),
}
"""From, to, and whether these are allowed themselves: [ yes, ( no. Infinity never is."""


def check_number(name: str, value: Any, called: str = "", *, hint: str = "") -> None:
    """Raise `InvalidOption` unless the value is a number within the limits of this hyperparameter.

    called  the option that it was given as; by default the hyperparameter itself
    """
    low, high, ends = _LIMITS[name]
    good = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not good or not low <= value <= high or (ends[0] == "(" and value == low) or (ends[1] == ")" and value == high):
        first, last = " (excluded)" * (ends[0] == "("), " (excluded)" * (ends[1] == ")")
        allowed = f" must be a number from {low:g}{first} to {high:g}{last}{hint}; got {value!r}"
        raise InvalidOption(Option(called or name), allowed)


def shrink(x: torch.Tensor, by: "float | torch.Tensor") -> torch.Tensor:
    """The proximal step of absolute values: towards zero by l1 · step, and not past it."""
    return torch.sign(x) * (x.abs() - by).clamp(min=0)


def unknown(name: str, value: Any, choices: Collection[Any]) -> InvalidOption:
    """The error for a value that is none of the choices."""
    known = ", ".join(str(choice) for choice in choices if choice is not None)
    return InvalidOption("unknown ", Option(name, value), f"; choose one of {known}")


_STEPS = ("s", "batch_size", "sampling", "shuffle", "gradient", "learning_rate", "eta0", "power_t", "momentum")
OF_SGD = (*_STEPS, "average", "early_stopping", "n_iter_no_change")
"""Options that only SGD heeds: who sets one of them wants SGD."""
DEFAULTS = FitOptions()
"""What users get by default, at the command line and in Python."""


@dataclass(frozen=True, slots=True)
class FileFit:
    """A fit to a file: what `laconic fit` takes besides the file and its hyperparameters. All are JSON values."""

    data: Source
    output: str = option(MISSING, "Where the model goes (safetensors).", flag="--output -o", metavar="FILE")
    options: FitOptions = field(default_factory=FitOptions)
    ranks: int | None = option(None, "Local processes to share the columns among.", most=1024)
    share_gpu: bool = option(False, "Let ranks share GPUs, where there are fewer GPUs than ranks.", flag="--share-gpu")
    test: str | None = option(None, "Rows to judge the model by.", metavar="FILE")
    alphas: Sequence[float] = option((), "Take the best of these penalties, by rows held out.", metavar="NUMBER,...")
    cv: int | None = option(
        None, "Folds of rows that --alphas holds out in turn; 5 if not given.", least=2, metavar="N"
    )
    checkpoint: str | None = option(None, "Save the fit's state here, to go on from with --resume.", metavar="FOLDER")
    checkpoint_every: float = option(
        300.0, "Seconds after which --checkpoint saves within an epoch, too.", metavar="SECONDS"
    )
    resume: bool = option(False, "Go on from the checkpoint, if there is one.")
    summary: bool = option(False, "Print the coefficients with standard errors.", flag="--summary")
    robust: bool = option(False, "Robust standard errors in --summary.", flag="--robust")

    def __post_init__(self) -> None:
        for alpha in self.alphas:
            check_number("alpha", alpha, "alphas")


JOB = tuple(one.name for one in fields(FileFit) if one.metadata)
"""The fields that are options of the command line."""
