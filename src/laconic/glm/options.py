"""A fit's hyperparameters: names, defaults and limits, stated once for the command line and the estimators."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from laconic.checks import check_int
from laconic.errors import InvalidOption, Option
from laconic.glm.families import FAMILIES, family_named
from laconic.glm.precision import Precision, recipe
from laconic.glm.settings import GRADIENTS, ORDERS, SCHEDULES, SOLVERS

AUTO = "auto"
FAMILY_NAMES = ", ".join(FAMILIES)


def _option(default: Any, help_: str) -> Any:
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Hyperparameters of a fit, as users name them; raises `InvalidOption` for a value that makes no sense.

    `help_of` describes each one. `laconic fit` and the estimators take their defaults from here. What is "auto"
    is resolved on the data, in `glm.resolve`. With device None a fit computes where X lies, for a file on the CPU.

    The command line has neither early stopping, whose split by classes is scikit-learn's, nor what only changes SGD's
    way (`sampling`, `gradient`, `average`, `power_t`, `n_iter_no_change`). The estimators do not standardize, which a
    pipeline with a `StandardScaler` does.

    >>> FitOptions(alpha=0.1).alpha, FitOptions.help_of("alpha")
    (0.1, 'Strength of the penalty.')
    """

    family: str | None = _option(None, f"{FAMILY_NAMES}; by default logistic where y has two values.")
    tweedie_power: float = _option(1.5, "Of the mean, that the variance of a tweedie target goes with; from 1 to 2.")
    alpha: float = _option(1e-4, "Strength of the penalty.")
    l1_ratio: float = _option(0.0, "Share of the penalty that is on absolute values.")
    fit_intercept: bool = _option(True, "Whether there is an intercept.")
    standardize: bool = _option(False, "Fit to columns of mean 0 and variance 1 (a sparse X is not centred).")
    max_iter: int = _option(100, "Epochs, at most.")
    tol: float | None = _option(1e-4, "Stop when epochs no longer lower the loss by more; negative: run all epochs.")
    n_iter_no_change: int = _option(5, "Epochs without progress before the fit stops, or its step shrinks.")
    early_stopping: bool = _option(False, "Judge progress by rows that are held back.")
    validation_fraction: float = _option(0.1, "Share of the rows that early stopping holds back.")
    solver: str = _option(AUTO, "sgd, ca_sgd, or auto: sgd in one process, ca_sgd on ranks.")
    s: int | str = _option(AUTO, "Iterations that share a message, or auto.")
    batch_size: int = _option(32, "Rows of a batch.")
    sampling: str = _option("shuffle", "Rows of each epoch: shuffle, cyclic or replacement.")
    shuffle: bool = _option(True, "False takes rows as they come, as cyclic sampling does.")
    gradient: str = _option("mean", "Of a batch: mean or sum.")
    learning_rate: str = _option("adaptive", "constant, invscaling, cosine or adaptive.")
    eta0: float | str = _option(AUTO, "First step size, or auto.")
    power_t: float = _option(0.25, "Power of invscaling: steps are eta0 / (t + 1)^power_t.")
    momentum: float = _option(0.0, "From 0 to less than 1.")
    average: bool | int = _option(False, "Average the iterates: all, or those after so many rows.")
    recipe: str | Precision = _option(  # noqa: RUF009
        AUTO, "Precision: fp32, fp64, C, D, auto, or auto:1e-3 for the cheapest that errs by no more."
    )
    device: str | None = _option(None, "Where to compute: cpu, cuda, or auto for a GPU if there is one.")
    seed: int = _option(0, "Of the order of the rows.")

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in ("fit_intercept", "standardize", "early_stopping", "shuffle"):
            check_flag(name, getattr(self, name))
        for name in ("max_iter", "batch_size", "n_iter_no_change"):
            check_int(name, getattr(self, name), 1)
        for name, limits in _LIMITS.items():
            if not (name == "tol" and self.tol is None):
                _check_real(name, getattr(self, name), *limits)
        if self.eta0 != AUTO:
            _check_real("eta0", self.eta0, 0, math.inf, "(]", hint=', or "auto"')
        if self.s != AUTO:
            check_int("s", self.s, 1, hint=', or "auto"')
        if not isinstance(self.average, bool):
            check_int("average", self.average, 0, hint=", True or False")
        if not self.shuffle and self.sampling == "replacement":
            why = " takes rows as they come; it cannot be combined with "
            raise InvalidOption(Option("shuffle", False), why, Option("sampling", "replacement"))
        if self.family == "tweedie":
            family_named("tweedie", options=self.family_options)
        if not isinstance(self.recipe, (str, Precision)):
            raise InvalidOption(Option("recipe"), f" must be a name or a Precision, got {self.recipe!r}")
        if is_auto(self.recipe):
            tolerance_of(str(self.recipe))
        else:
            recipe(self.recipe)
        _check_device(self.device)

    @classmethod
    def help_of(cls, name: str) -> str:
        """What an option does, in a sentence."""
        return next(str(field.metadata["help"]) for field in fields(cls) if field.name == name)

    @property
    def family_options(self) -> Mapping[str, Any]:
        """What a family may need to know."""
        return {"tweedie_power": self.tweedie_power}


_CHOICES: dict[str, Sequence[Any]] = {
    "family": (None, *FAMILIES),
    "solver": (AUTO, *SOLVERS),
    "sampling": ORDERS,
    "gradient": GRADIENTS,
    "learning_rate": SCHEDULES,
}
_LIMITS: dict[str, tuple[float, float, str]] = {
    "alpha": (0, math.inf, "[]"),
    "l1_ratio": (0, 1, "[]"),
    "momentum": (0, 1, "[)"),
    "power_t": (-math.inf, math.inf, "[]"),
    "validation_fraction": (0, 1, "()"),
    "tol": (-math.inf, math.inf, "[]"),
}
"""From, to, and whether these are allowed themselves: [ yes, ( no. Infinity never is."""


def is_auto(recipe: "str | Precision") -> bool:
    """Whether a recipe is ours to choose: "auto", or "auto:" and a tolerance."""
    return isinstance(recipe, str) and (recipe == AUTO or recipe.startswith("auto:"))


def tolerance_of(recipe: str) -> float | None:
    """What "auto:1e-3" asks for; None for "auto" alone.

    >>> tolerance_of("auto:1e-3"), tolerance_of("auto")
    (0.001, None)
    """
    if recipe == AUTO:
        return None
    try:
        tolerance = float(recipe.removeprefix("auto:"))
    except ValueError:
        tolerance = 0.0
    if not 0 < tolerance < 1:
        what = ": after 'auto:' comes the largest error of an outer iteration as a share of its step, "
        raise InvalidOption(Option("recipe", recipe), what, "between 0 and 1, such as 'auto:1e-3'")
    return tolerance


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise `InvalidOption` unless the value is one of the choices."""
    if value not in choices:
        known = ", ".join(str(choice) for choice in choices if choice is not None)
        raise InvalidOption("unknown ", Option(name, value), f"; choose one of {known}")


def check_flag(name: str, value: Any) -> None:
    """Raise `InvalidOption` unless the value is True or False."""
    if value not in (True, False):
        raise InvalidOption(Option(name), f" must be True or False, got {value!r}")


def _check_real(name: str, value: Any, low: float, high: float, ends: str, hint: str = "") -> None:
    good = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    good = good and low <= value <= high and (ends[0] == "[" or value != low) and (ends[1] == "]" or value != high)
    if not good:
        first, last = ("" if ends[0] == "[" else " (excluded)"), ("" if ends[1] == "]" else " (excluded)")
        allowed = f" must be a number from {low:g}{first} to {high:g}{last}{hint}; got {value!r}"
        raise InvalidOption(Option(name), allowed)


def _check_device(device: Any) -> None:
    kind = device.split(":")[0] if isinstance(device, str) else device
    if kind not in (None, "cpu", "cuda", AUTO):
        known = "; choose cpu, cuda, a GPU by its number such as cuda:1, or auto"
        raise InvalidOption("unknown ", Option("device", device), known)


DEFAULTS = FitOptions()
"""What users get by default, at the command line and in Python."""
