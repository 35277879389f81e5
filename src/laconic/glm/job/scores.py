"""How good a model is on some rows, from sums over them: the rows may come in blocks."""

from dataclasses import dataclass, field

import torch

from laconic.glm.families import Family
from laconic.glm.model import CLASSIFIERS


@dataclass(slots=True)
class Scores:
    """Sums over rows, each a Python float or a vector in float64.

    name, family  as a user and as a solver knows it
    centre        about where targets of a linear model lie: sums of squares are of what differs from it

    >>> from laconic.glm import Gaussian
    >>> scores = Scores("linear", Gaussian())
    >>> y = torch.tensor([1.0, 2.0, 3.0])
    >>> scores.add(y[:, None] + 0.5, y)
    >>> scores.summary()
    {'r2': 0.625, 'mse': 0.25}
    """

    name: str
    family: Family
    weight: float = 0.0
    loss: float = 0.0
    correct: float = 0.0
    deviance: float = 0.0
    null: dict[str, float] = field(default_factory=dict)
    centre: float | None = None

    def add(
        self,
        z: torch.Tensor,
        y: torch.Tensor,
        w: torch.Tensor | None = None,
        offset: torch.Tensor | None = None,
    ) -> None:
        """Rows with these margins (offset included), targets, weights and offsets."""
        z, y = z.double(), y.double()
        w = torch.ones_like(y) if w is None else w.double()
        self.weight += float(w.sum())
        self.loss += float((w * self.family.loss(z, y)).sum())
        if self.name in CLASSIFIERS:
            found = z.argmax(1) if z.shape[1] > 1 else (z[:, 0] > 0).long()
            self.correct += float((w * (found == y)).sum())
            return
        self.deviance += float((w * self.family.deviance(z, y)).sum())
        o = torch.zeros_like(y) if offset is None else offset.double().reshape(len(y))
        if self.centre is None and len(y):
            self.centre = float((y - o).mean())
        parts = _poisson_null(y, w, o) if self.name == "poisson" else _gaussian_null(y - (self.centre or 0.0), w, o)
        for key, value in parts.items():
            self.null[key] = self.null.get(key, 0.0) + value

    def summary(self) -> dict[str, float]:
        """The figures, by name. `r2` and `d2` are the share that is gone of the deviance which a constant leaves."""
        total = self.weight or 1.0
        if self.name in CLASSIFIERS:
            return {"accuracy": self.correct / total, "log_loss": self.loss / total}
        deviance = self.deviance / total
        null = (_poisson_deviance if self.name == "poisson" else _gaussian_deviance)(self.null) / total
        share = 1 - deviance / null if null > 0 else 0.0
        return {"r2": share, "mse": deviance} if self.name == "linear" else {"d2": share, "deviance": deviance}


def _gaussian_null(y: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> dict[str, float]:
    t = y - o
    return {"w": float(w.sum()), "t": float((w * t).sum()), "tt": float((w * t * t).sum())}


def _gaussian_deviance(sums: dict[str, float]) -> float:
    return max(0.0, sums["tt"] - sums["t"] ** 2 / sums["w"]) if sums.get("w") else 0.0


def _poisson_null(y: torch.Tensor, w: torch.Tensor, o: torch.Tensor) -> dict[str, float]:
    sums = {"y": w * y, "e": w * o.exp(), "yo": w * y * o, "self": w * (torch.xlogy(y, y) - y)}
    return {key: float(value.sum()) for key, value in sums.items()}


def _poisson_deviance(sums: dict[str, float]) -> float:
    """At the best constant rate, Σ w y / Σ w e^offset."""
    if not sums.get("y"):
        return 0.0
    rate = torch.tensor(sums["y"] / sums["e"], dtype=torch.float64)
    return 2 * (sums["self"] - sums["yo"] - sums["y"] * float(rate.log()) + sums["e"] * float(rate))
