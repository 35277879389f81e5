"""One outer iteration on any number of ranks in one process, rounded as the solver rounds it."""

from itertools import pairwise

import numpy as np
import torch

from laconic.glm.analysis.sample import Sample
from laconic.glm.precision import Precision
from laconic.kernels.formats import Format
from laconic.kernels.recurrence import Block, Intercept, triangle_size
from laconic.kernels.reference.recurrence import recurrence


def outer_iteration(sample: Sample, precision: Precision) -> torch.Tensor:
    """The weights after the s batches and, as last column, the intercept: (C, n + idle + 1), float64.

    1. every rank: v_p = Y_p x_p rounded to `margin`, G_p = Y_p Y_pᵀ; 2. their sums, carried in `gram_wire`;
    3. the recurrence; 4. x_p ← A x_p + Y_pᵀ p, rounded to `weights`. The same kernels as `glm.solvers.ca_sgd`.
    """
    p = precision
    dtype, everything = p.carrier, np.arange(len(sample.Y))
    rows = [part.take(everything, dtype) for part in sample.parts(p.format("data").storage)]
    xs = [sample.x[:, a:b].to(dtype) for a, b in pairwise(sample.column_cuts)]
    margin, wire = p.format("margin"), p.format("gram_wire")
    v = margin.round(_carried([margin.round(Y.margins(x)) for Y, x in zip(rows, xs, strict=True)], wire))
    triangles = [torch.empty(triangle_size(sample.cuts), dtype=dtype) for _ in rows]
    for Y, triangle in zip(rows, triangles, strict=True):
        Y.gram(sample.cuts, p, triangle)
    own = Intercept(sample.intercept.to(dtype, copy=True), torch.zeros_like(sample.intercept, dtype=dtype), v[:0, 0])
    own.fitted = sample.fitted
    moved = recurrence(
        _block(sample, v, _carried(triangles, wire)), sample.family, own, p.format("recurrence"), p.format("residual")
    )
    shrink = float(moved.A[0, 0])
    xs = [shrink * x + Y.combine(moved.p[0], p) for Y, x in zip(rows, xs, strict=True)]
    new = p.format("weights").round(torch.cat([*xs, shrink * sample.idle.to(dtype)], 1))
    return torch.cat([new, own.value[:, None]], 1).double()


def _carried(parts: list[torch.Tensor], wire: Format) -> torch.Tensor:
    """A sum over ranks in the wire's format; one rank has nothing to send."""
    if len(parts) == 1:
        return parts[0]
    total = wire.round(parts[0])
    for part in parts[1:]:
        total = wire.round(total + wire.round(part))
    return total


def _block(sample: Sample, v: torch.Tensor, triangle: torch.Tensor) -> Block:
    return Block(
        cuts=sample.cuts,
        margins=v,
        momenta=v[:, :0],
        triangle=triangle,
        y=sample.y.to(v.dtype),
        w=sample.w.to(v.dtype),
        offset=sample.offset.to(v.dtype),
        rates=sample.rates,
        scales=sample.scales,
        mix=np.empty(0),
        l2=sample.l2,
        momentum=0.0,
    )
