"""The state of a fit: all that must be kept to continue it bit for bit."""

from dataclasses import dataclass, field, fields

import torch

from laconic.kernels.glm import Intercept, Weights


@dataclass(slots=True)
class State:
    """Weights of this rank's columns, and counters that are the same on every rank.

    weights          x, momentum, average (C, n_p), and the intercept
    iteration        iterations done
    epoch, batch     the next batch to take
    epoch_loss       Σ w φ of this epoch so far, and
    epoch_weight     Σ w of the same rows
    factor           of the step size, as `Adaptive` has shrunk it
    best_loss        of any epoch
    stalls           epochs since the loss last fell by more than the tolerance
    seconds          spent so far
    bytes_sent       by this rank so far (a checkpoint keeps rank 0's), and
    messages         it took part in
    """

    weights: Weights
    iteration: int = 0
    epoch: int = 0
    batch: int = 0
    epoch_loss: float = 0.0
    epoch_weight: float = 0.0
    factor: float = 1.0
    best_loss: float = float("inf")
    stalls: int = 0
    seconds: float = 0.0
    bytes_sent: int = 0
    messages: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def zeros(
        cls,
        n_outputs: int,
        n: int,
        dtype: torch.dtype,
        *,
        momentum: bool,
        average: bool,
        fitted: bool,
        device: torch.device,
    ) -> "State":
        """The beginning of a fit."""

        def vector(used: bool) -> torch.Tensor:
            return torch.zeros(n_outputs if used else 0, n, dtype=dtype, device=device)

        a, b, c = (torch.zeros(n_outputs, dtype=dtype, device=device) for _ in range(3))
        return cls(Weights(vector(True), vector(momentum), vector(average), Intercept(a, b, c, fitted)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is an array, by name."""
        w = self.weights
        named = {"x": w.x, "momentum": w.momentum, "average": w.average}
        own = {f"intercept.{name}": getattr(w.intercept, name) for name in ("value", "momentum", "average")}
        return named | own

    def numbers(self) -> dict[str, object]:
        """Everything else, as JSON values."""
        kept = [f.name for f in fields(self) if f.name != "weights"]
        return {name: getattr(self, name) for name in kept} | {"fitted": self.weights.intercept.fitted}

    @classmethod
    def restore(cls, tensors: dict[str, torch.Tensor], numbers: dict[str, object]) -> "State":
        """The inverse of `tensors` and `numbers`."""
        own = [tensors[f"intercept.{name}"].clone() for name in ("value", "momentum", "average")]
        x, momentum, average = (tensors[name].clone() for name in ("x", "momentum", "average"))
        rest = dict(numbers)
        intercept = Intercept(own[0], own[1], own[2], bool(rest.pop("fitted")))
        return cls(Weights(x, momentum, average, intercept), **rest)  # type: ignore[arg-type]

    @property
    def coef(self) -> torch.Tensor:
        """(C, n_p): the average where iterates are averaged, otherwise the last iterate."""
        return self.weights.average if len(self.weights.average) else self.weights.x

    @property
    def intercept(self) -> torch.Tensor:
        """(C,), chosen as `coef` is."""
        own = self.weights.intercept
        return own.average if len(self.weights.average) else own.value
