"""The bound of one term: one knob's disturbance, carried through the recurrence to the new weights."""

from math import isfinite

import torch

from laconic.glm.analysis.disturbance import Disturbance
from laconic.glm.analysis.knobs import DISTURBANCES
from laconic.glm.analysis.propagation import Propagation
from laconic.glm.analysis.rounding import largest
from laconic.glm.analysis.trajectory import Trajectory
from laconic.kernels.formats import Format

DOUBLE = 1e-13
"""What the float64 arithmetic of a measurement may add, relative to the size of the weights."""


def bound(maps: Propagation, knob: Disturbance) -> float:
    """A bound on ‖δx'‖ / ‖x' − x‖: step through the batches with bounds in place of numbers.

    For batch j: e = |I − K M D| ζ + |K M| (ρ + q) + ‖Y_k‖ a, over the batches before, bounds how far its margins have
    moved; with it the knob says what it adds, ζ_j and ρ_j, and the family what its curvature adds, q_j. What a knob
    leaves in the weights themselves, a, grows from batch to batch by no more than ‖I − η H_j‖. Each line depends on
    earlier batches alone, so the bounds hold by induction, whatever their size.
    """
    path, sample = maps.path, maps.path.sample
    zeta, rho, q = torch.zeros_like(path.v), torch.zeros_like(path.v), torch.zeros_like(path.v)
    moved, n_outputs = torch.zeros_like(path.v), path.v.shape[1]
    size, state = path.hessian.abs(), 0.0
    for j in range(sample.n_batches):
        J, first = sample.batch(j), int(sample.cuts[j]) * n_outputs
        here = slice(J.start * n_outputs, J.stop * n_outputs)
        e = maps.on_margins[here, :first] @ zeta.view(-1)[:first]
        e = (e + maps.on_residuals[here, :first] @ (rho + q).view(-1)[:first]).view(-1, n_outputs)
        e = e + state * maps.row_norms[J]
        zeta[J] = knob.margin(j, e, moved[: J.start])
        e = e + zeta[J]
        rho[J] = knob.residual(j, e)
        q[J] = sample.w[J, None] * sample.family.derivative_remainder(path.z[J], sample.y[J], e)
        moved[J] = (size[J] @ e[:, :, None])[:, :, 0] + rho[J] + q[J]
        state = float(maps.growth[j]) * state + knob.inject(j, moved[: J.stop])
        if not bool(torch.isfinite(moved[J]).all()) or not isfinite(state):
            return float("inf")
    own = state + knob.update(moved)
    if maps.carry is not None:
        own = min(own, knob.arrived(maps.carry))
    slack = DOUBLE * (path.size + path.movement)
    return (maps.margin.worst(zeta) + maps.residual.worst(rho + q) + own + slack) / path.movement


def term_bound(maps: Propagation, knob: str, fmt: Format) -> float:
    """The least bound there is of a knob in a format."""
    return min(bound(maps, kind(maps.path, fmt)) for kind in DISTURBANCES[knob])


def why_infinite(path: Trajectory, knob: str, fmt: Format) -> str:
    """What to tell of a term without a bound."""
    top = max(float(part.abs().max()) for part in DISTURBANCES[knob][0](path, fmt).rounded() if part.numel())
    if top > largest(fmt):
        return f"numbers up to {top:.3g} leave the range of {fmt.name}, which ends at {largest(fmt):.3g}"
    return "disturbed margins could leave the range where the link's curvature is bounded"
