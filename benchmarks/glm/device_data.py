"""Problems of published shapes, made on the GPU itself: the law of `data.make`, in seconds instead of minutes."""

import torch

from laconic.data import SHAPES
from laconic.data.synthetic import Shape
from laconic.glm import DenseColumns, Problem
from laconic.glm.families import family_named

WIDE = "wide"
DEVICE_SHAPES = {**SHAPES, WIDE: Shape(100_000, 32_768, "logistic", 2.0, 0.0)}
"""Those of `data.SHAPES`, and one with rows of 64 KB."""
CHUNK_VALUES = 2**26


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
    return Problem(DenseColumns(X), family_named(shape.family), _targets(shape, z, generator))


def _targets(shape: Shape, z: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if shape.family == "linear":
        return z + shape.noise * torch.randn(len(z), generator=generator, device=z.device)
    if shape.family == "poisson":
        return torch.poisson(z.exp(), generator=generator)
    return (torch.rand(len(z), generator=generator, device=z.device) < torch.sigmoid(z)).float()
