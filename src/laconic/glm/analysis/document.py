"""An analysis as JSON values."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from laconic.glm.analysis.analyse import Analysis
from laconic.glm.analysis.choice import Choice
from laconic.glm.analysis.trajectory import Trajectory
from laconic.glm.precision import KNOBS, RECIPES, Precision


def plain(value: Any) -> Any:
    """The same without numbers that JSON lacks: None where there is no bound.

    >>> plain({"a": [1.5, float("inf")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def recipes(analysis: Analysis) -> list[dict[str, Any]]:
    """What the named recipes come to: measured whole, and as the sum of their terms."""
    return [
        {
            "recipe": name,
            "measured": analysis.total(RECIPES[name]),
            "predicted": analysis.predicted(RECIPES[name]),
        }
        for name in ("fp32", "C", "D")
    ]


def choice(chosen: Choice) -> dict[str, Any]:
    """A choice, with the knobs by name and its explanation."""
    found = asdict(chosen) | {"recipe": chosen.precision.short_name(), "explained": chosen.explain()}
    return found | {"precision": formats(chosen.precision)}


def formats(precision: Precision) -> dict[str, str]:
    """The nine knobs."""
    return {knob: precision.format(knob).name for knob in KNOBS}


def block(path: Trajectory) -> dict[str, float]:
    """The quantities that the bounds are made of, at one outer iteration."""
    sample = path.sample
    return {
        "movement": path.movement,
        "weights_norm": path.size,
        "start_norm": float(sample.x.norm()),
        "largest_row_norm": float(path.products.diagonal().max().clamp(min=0).sqrt()),
        "gram_norm": float(path.products.norm()),
        "largest_margin": float(path.z.abs().max()),
        "largest_residual": float(path.r.abs().max()),
        "lipschitz": float(path.hessian.abs().sum(2).max()),
        "eta": float(sample.rates[0]),
    }
