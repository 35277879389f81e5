"""Newton's step by conjugate gradients: products with the Hessian alone, in passes over the rows."""

import math
from typing import cast

import numpy as np
import torch

from laconic.glm.ranks import gather_array
from laconic.glm.rows import DenseRows, SampledRows
from laconic.glm.solvers.objective import Bent, Objective, Pass, Point, Requests

CG_STEPS, CG_DELAY, CG_SURE, CG_REST, CG_FINE, SURE, FAR = 250, 4, 2, 0.2, 0.1, 5.0, 10.0
"""Conjugate gradients end when the last 4 steps have added at most this share of the decrement found; the last 2 where
that is 10 times larger than the target, and the preconditioner is the better one. Where it is smaller than the target,
not before it is known to be smaller than 5 times the target; after 2 steps, where it is known to be smaller than the
target itself. Where it is larger, also when what is missing is known to be this share of the target: the step leaves no
more."""
FLAT, UNPENALISED = 1e-8, 1e-12
"""The least penalty that a Gram matrix preconditions with, as a share of its diagonal; and what an eigenvalue is taken
for that no penalty bounds."""


def preconditioner(F: Objective, point: Point, free: torch.Tensor | float) -> Requests[tuple[Bent, float]]:
    """What is nearly H⁻¹, M⁻¹, and the least that an eigenvalue of M⁻¹H can be by the penalty alone, intercepts
    aside. M is the diagonal of H, or of a dense X with few columns, S ⊗ G + λ:

    S  (C, C) mean of ∂²φ/∂z² over the rows, and
    G  mean of a aᵀ: H would be S ⊗ G + λ if all rows were bent alike. With λ^-½ G λ^-½ = Q μ Qᵀ and S = U σ Uᵀ,
       M⁻¹ = (U ⊗ λ^-½ Q) (σ ⊗ μ + 1)⁻¹ (U ⊗ λ^-½ Q)ᵀ

    free  1 for weights that may move, 0 for others
    """
    if not F.spectral:
        scale, spare = 1 / (yield from diagonal(F, point)), torch.empty_like(point.slope)
        least = min(map(float, gather_array(_least(F.l2 * scale), F.wire.comm)))
        return lambda r: torch.mul(scale, r, out=spare), least  # arrays that are large are slow to come by
    second = _second(F)
    penalty = torch.maximum(F.l2, FLAT * second.diagonal())
    penalty = torch.where(penalty > 0, penalty, 1.0)
    if F.spectrum is None:
        values, Q = torch.linalg.eigh(penalty.rsqrt()[:, None] * second * penalty.rsqrt())
        F.spectrum = values.clamp(min=0), penalty.rsqrt()[:, None] * Q
    S = F.l2.new_zeros(F.family.n_outputs, 1, F.family.n_outputs, 1)
    for first in range(0, len(F.y), F.step):
        rows = slice(first, first + F.step)
        bent = cast(torch.Tensor, F.family.expand(point.z[rows], F.y[rows], curved=True)[2])
        F.add_hessian(S, DenseRows(bent[:, :0]), bent, rows)  # of the intercepts alone
    (of_rows, Q), (of_outputs, U) = F.spectrum, torch.linalg.eigh(S[:, 0, :, 0] / F.m)
    values = of_rows[:, None] * of_outputs.clamp(min=0) + 1
    least = float(_least(F.l2 / penalty)) / float(values.max())
    return lambda r: (Q @ ((Q.T @ r.T @ U) / values) @ U.T).T * free, least


def _second(F: Objective) -> torch.Tensor:
    if F.second is None:
        gram = F.l2.new_zeros(1, F.n + 1, 1, F.n + 1)

        def work(rows: slice, Y: SampledRows) -> torch.Tensor:
            own = torch.zeros_like(gram)
            Y.add_gram(F.w[rows, None], own)
            return own

        for own in F.columns.map_blocks(work, F.problem.rows, F.dtype, F.step):
            gram += own
        if not F.fit_intercept:
            gram[:, -1], gram[..., -1] = 0, 0
        F.second = gram.view(F.n + 1, -1) / F.m
    return F.second


def diagonal(F: Objective, point: Point) -> Requests[torch.Tensor]:
    """Of the Hessian, (C, n + 1), in one pass; where it is 0, 1. For a further penalty of a path in none: that of
    the one before, times what the mean of φ'' has changed by, which will do to precondition."""
    mean = point.slope.new_zeros(len(point.slope))

    def bend(rows: slice, Y: SampledRows | None, u: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        bent = F.weigh(F.family.hessian_diagonal(point.z[rows], F.y[rows]), rows)
        return bent, bent.sum(0)

    if F.earlier is None:
        total = yield Pass(F, torch.zeros_like(point.slope), bend, mean.add_, squared=True)
        F.squares = (total.clone(), mean)
    else:
        for first in range(0, len(F.y), F.step):
            mean += bend(slice(first, first + F.step), None, None)[1]
        mean.copy_(mean.new_tensor(F.wire.sum_over_teams(*mean.tolist())))
        total, before = F.earlier
        total = total * torch.where(before > 0, mean / before, 1.0)[:, None]
    total += F.l2
    return torch.where(total > 0, total, 1.0)


def newton_step(
    F: Objective, point: Point, enough: float, *, judged: bool = False
) -> Requests[tuple[torch.Tensor, float]]:
    """−H⁻¹g, nearly, and the decrement ½ gᵀH⁻¹g: by preconditioned conjugate gradients, which take none where the
    decrement is known to be enough.

    Each step adds a term to the decrement, all positive, so that what is found is never too large; that the last
    few terms are small estimates what is missing (Strakoš & Tichý, ETNA 13, 2002). It may mislead where the
    residual r is small along flat directions, in which F can still fall far. Before little is called `enough`, a
    bound on what is missing has to agree, intercepts aside: that of Gauss and Radau, from the least eigenvalue
    there can be (Meurant & Tichý, Numer. Algorithms 62, 2013), or ½ Σ r²/λ, as H is at least the penalty's. Without
    a penalty that eigenvalue is taken for 1e-12. Where all steps were taken in vain, the bound is the decrement.

    enough  decrement of a point that is near the minimum
    judged  whether that is all that is asked: a larger decrement need not be known
    """
    bent = {  # u → ∂²φ/∂z² u of each block of rows, by its first
        first: F.family.bend(point.z[first : first + F.step], F.y[first : first + F.step])
        for first in range(0, len(F.y), F.step)
    }

    def bend(rows: slice, Y: SampledRows, u: torch.Tensor) -> tuple[torch.Tensor, None]:
        return F.weigh(bent[rows.start](u), rows), None

    free = ((point.theta != 0) | (point.slope != 0)).to(F.dtype) if F.l1 is not None else 1.0
    (precondition, least), r = (yield from preconditioner(F, point, free)), -point.slope
    p, out = precondition(r).clone(), torch.empty_like(r)
    x, terms, rs = torch.zeros_like(r), list[float](), F.dot(r, p)
    penalised, least, inverse = least > 0, least or UNPENALISED, torch.where(F.l2 > 0, 1 / F.l2, 0.0)
    bound, missing = 1 / least, math.inf
    if penalised:
        at_most = min(bound * rs, F.dot(r, r * inverse)) + abs(float(r[:, -1] @ p[:, -1])) / CG_FINE
        if at_most / 2 <= enough:
            return x, at_most / 2
    while rs > 0 and len(terms) < CG_STEPS and not (judged and sum(terms) / 2 > enough):
        Hp = yield Pass(F, p, bend, rough=True, out=out)
        Hp.addcmul_(F.l2, p)
        if F.l1 is not None:
            Hp *= free
        curvature = F.dot(p, Hp)
        if not curvature > 0:
            break
        length = rs / curvature
        x.add_(p, alpha=length)
        r.sub_(Hp, alpha=length)
        terms.append(rs * length)
        s = precondition(r)
        before, rs = rs, F.dot(r, s)
        share = rs / before
        bound = (bound - length) / (least * (bound - length) + share) if length < bound < math.inf else math.inf
        missing = bound * rs if rs else 0.0
        if penalised and sum(terms) / 2 <= enough:
            flat = F.dot(r, torch.mul(r, inverse, out=out)) + abs(float(r[:, -1] @ s[:, -1]))
            missing = min(missing, flat)
        if _is_enough(F, point, terms, missing, enough if judged else SURE * enough, enough):
            break
        if len(terms) >= CG_SURE and (sum(terms) + missing) / 2 <= enough:
            break  # whatever is missing, that is all
        p.mul_(share).add_(s)
    else:
        if len(terms) == CG_STEPS and sum(terms) / 2 <= enough:
            terms.append(min(missing, rs / max(least, FLAT)))
    return x, sum(terms) / 2


def _is_enough(F: Objective, point: Point, terms: list[float], missing: float, sure: float, enough: float) -> bool:
    """Whether conjugate gradients may end; twice the decrement may lack `missing`, or inf where none can say."""
    found = sum(terms)
    claims = found / 2 <= enough
    far = F.spectral and found / 2 > FAR * F.target * (F.null - point.value)
    delay = CG_DELAY // 2 if far else CG_DELAY
    if not claims and missing / 2 <= CG_FINE * enough:
        return True
    if claims and missing == math.inf:
        delay = max(delay, len(terms) // 2)
    settled = len(terms) > delay and sum(terms[-delay:]) <= CG_REST * found
    return settled and (not claims or missing == math.inf or (found + missing) / 2 <= sure)


def _least(shares: torch.Tensor) -> np.ndarray:
    """Of the penalised weights, the last being intercepts; 1 where there are none."""
    return np.array(float(shares[..., :-1].min()) if shares[..., :-1].numel() else 1.0)
