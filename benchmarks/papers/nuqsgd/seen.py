"""What was seen of a method's training, point by point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.papers.nuqsgd import probe
from benchmarks.papers.nuqsgd.methods import Method
from benchmarks.papers.nuqsgd.pictures import Pictures
from laconic.training.groups import Group

TRAIN_JUDGED, TEST_JUDGED = 5000, 10_000
"""Most images that a loss and an accuracy are taken over."""


@dataclass(slots=True)
class Seen:
    """One method.

    seconds   of every step
    curve     points as they are published
    at_full   of full precision: by method, what quantising its gradient does
    """

    method: Method
    seconds: list[float] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    at_full: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def look(
        self,
        net: nn.Module,
        groups: Sequence[Group],
        n_bytes: float,
        methods: Sequence[Method],
        pictures: Pictures,
        x: torch.Tensor,
        y: torch.Tensor,
    ) -> None:
        """Add a point: loss, accuracy, and the variance of the method on the gradient of one mini-batch."""
        loss, accuracy = judge(net, pictures)
        point: dict[str, Any] = {"iteration": len(self.seconds), "seconds": sum(self.seconds), "bytes": n_bytes}
        point |= {"loss": finite(loss), "accuracy": accuracy}
        parts = probe.gradient(net, groups, x, y)
        self._quantise(point, parts, methods)
        self.curve.append(point)

    def _quantise(self, point: dict[str, Any], parts: Sequence[torch.Tensor], methods: Sequence[Method]) -> None:
        """What the method itself does to a gradient; of full precision, what every other does."""
        if self.method.lossy:
            point["variance"] = finite(probe.normalised_variance(parts, self.method.quantizer))
            return
        for other in methods:
            if other.lossy:
                found = {"iteration": point["iteration"], **looked_at(parts, other)}
                self.at_full.setdefault(other.name, []).append(found)

    def found(self, net: nn.Module, n_bytes: float) -> dict[str, Any]:
        """As JSON values."""
        return {
            "n": sum(p.numel() for p in net.parameters()),
            "seconds": self.seconds,
            "bytes_sent": n_bytes / len(self.seconds),
            "curve": self.curve,
            "at_full": self.at_full,
        }


def looked_at(parts: Sequence[torch.Tensor], method: Method) -> dict[str, Any]:
    """What a method does to this gradient."""
    return {
        "variance": probe.normalised_variance(parts, method.quantizer),
        "bound": probe.bound(parts, method.quantizer),
        "entropy": probe.entropy(parts, method.quantizer),
        "bits": probe.bits_by_coder(parts, method.quantizer),
    }


def judge(net: nn.Module, pictures: Pictures) -> tuple[float, float]:
    """Mean loss on the first training images, and the share of test images whose class is found."""
    net.eval()
    with torch.no_grad():
        losses = [
            (nn.functional.cross_entropy(net(x), y, reduction="sum"), len(y))
            for x, y in pictures.judged("train", TRAIN_JUDGED)
        ]
        right = [((net(x).argmax(1) == y).sum(), len(y)) for x, y in pictures.judged("test", TEST_JUDGED)]
    net.train()
    loss, accuracy = (float(sum(a for a, _ in found)) / sum(n for _, n in found) for found in (losses, right))
    return loss, accuracy


def finite(value: float) -> float | None:
    """None for what JSON has no number for: a run that has diverged."""
    return value if math.isfinite(value) else None
