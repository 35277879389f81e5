"""The bound of one term: how one knob's disturbance of margins and residuals reaches the new weights.

To first order the residuals' disturbance δr obeys δr = D δz + ρ and δz = ζ − K δr. Here ζ and ρ are what rounding adds
to margins and residuals, D = w φ'', and K_ji = c_i (Π_{i<t<j} ρ_t G_ji + 1) for batches i < j, where the 1 is the
intercept's. Hence

    δr = (I + D K)⁻¹ (D ζ + ρ) = M (D ζ + ρ),     δz = (I − K M D) ζ − K M ρ,

and the weights and the intercept move by −(Yᵀ d, 1ᵀ c) δr, whose squared norm is δrᵀ W δr with W = d dᵀ ∘ G + c cᵀ.
"""

import math
from dataclasses import dataclass

import torch

from laconic.glm.analysis.disturbances import DISTURBANCES, Disturbance, Recurrence, largest, rank_margins
from laconic.glm.analysis.iteration import Trajectory
from laconic.kernels.formats import Format

DOUBLE = 1e-13
"""What the float64 arithmetic of a measurement may add, relative to the size of the weights."""
LARGEST = 4096
"""k C beyond which an analysis would take too long."""
CARRIED = 256
"""Columns up to which changes of the weights are followed as matrices."""
SQUARED = 1024
"""k C up to which spectral norms are computed closely."""


@dataclass(frozen=True, slots=True, eq=False)
class Quadratic:
    """A quadratic form, to be bounded over a box: max of √(ζᵀ S ζ) over |ζ| ≤ β, (k C,)."""

    S: torch.Tensor
    size: torch.Tensor
    top: float

    @classmethod
    def of(cls, S: torch.Tensor) -> "Quadratic":
        """With the norms that do not depend on the box."""
        return cls(S, S.abs(), _spectral(S))

    def worst(self, beta: torch.Tensor) -> float:
        """The least of three bounds on the square: βᵀ |S| β, ‖S‖ ‖β‖², and ‖T⁻¹ S T⁻¹‖ ‖T β‖².

        The last holds for every diagonal T; with T² = diag(√S_kk / β_k) it is exact where S has rank one.
        """
        beta = beta.reshape(-1)
        if not bool(torch.isfinite(beta).all()):
            return float("inf")
        square = min(float(beta @ self.size @ beta), self.top * float(beta @ beta))
        own = self.S.diagonal().clamp(min=0).sqrt()
        used = (beta > 0) & (own > 1e-9 * own.max())
        rest = torch.where(used, 0.0, beta)
        if bool(used.any()):
            t = (beta[used] / own[used]).sqrt()
            scaled = _spectral(t[:, None] * self.S[used][:, used] * t) * float((beta * own)[used].sum())
            apart = math.sqrt(max(0.0, float(rest @ self.size @ rest)))  # what hardly counts, by itself
            square = min(square, (math.sqrt(scaled) + apart) ** 2)
        return math.sqrt(max(0.0, square))


@dataclass(frozen=True, slots=True, eq=False)
class Propagation:
    """How disturbances travel along one trajectory.

    on_margins    (k C, k C) |I − K M D|: bounds on ζ to bounds on δz
    on_residuals  (k C, k C) |K M|: bounds on ρ to bounds on δz
    carry         (s, n', n') what a change of the weights by batch j becomes by the end, the intercept last:
                  Π_{t>j} (ρ I − c Y_tᵀ D_t Y_t); None where these would be large
    growth        (s,) the most by which a batch enlarges a change of the weights, ‖ρ I − c Y_jᵀ D_j Y_j‖
    row_norms     (k, 1) ‖Y_k‖, the intercept's 1 included
    margin        the squared change of the weights as a form in ζ
    residual      the same in ρ
    """

    path: Trajectory
    on_margins: torch.Tensor
    on_residuals: torch.Tensor
    carry: torch.Tensor | None
    growth: torch.Tensor
    row_norms: torch.Tensor
    margin: Quadratic
    residual: Quadratic


def propagate(path: Trajectory) -> Propagation:
    """The maps of a trajectory; raises ValueError if they would be too large."""
    k, n_outputs = path.z.shape
    if k * n_outputs > LARGEST:
        raise ValueError(
            f"s × batch size × outputs is {k * n_outputs}, and an analysis takes at most {LARGEST}: "
            "lower s or the batch size"
        )
    K, D = _coupling(path), path.hessian
    identity = torch.eye(k * n_outputs, dtype=K.dtype)
    start = identity + _times_blocks(D, _times_rows(K, identity, n_outputs))
    M = torch.linalg.solve_triangular(start, identity, upper=False, unitriangular=True)
    KM = _times_rows(K, M, n_outputs)
    d = path.decay(path.sample.n_batches)
    W = d[:, None] * path.products * d
    if path.sample.fitted:
        W = W + path.c[:, None] * path.c
    S = M.T @ _times_rows(W, M, n_outputs)
    on_margins = identity - _times_blocks(D, KM.T.contiguous()).T  # D is symmetric
    forms = Quadratic.of(_times_blocks(D, _times_blocks(D, S).T.contiguous())), Quadratic.of(S)
    norms = (path.gram.diagonal() + float(path.sample.fitted)).clamp(min=0).sqrt()[:, None]
    return Propagation(path, on_margins.abs(), KM.abs(), _carry(path), _growth(path), norms, *forms)


def _times_rows(A: torch.Tensor, X: torch.Tensor, n_outputs: int) -> torch.Tensor:
    """(A ⊗ I) X for A (k, k) and X (k C, ·): the same for every output."""
    return (A @ X.reshape(len(A), -1)).view(len(A) * n_outputs, -1)


def _times_blocks(D: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """diag(D) X for blocks D (k, C, C) and X (k C, ·)."""
    k, n_outputs, _ = D.shape
    return (D @ X.view(k, n_outputs, -1)).view(k * n_outputs, -1)


def _carry(path: Trajectory) -> torch.Tensor | None:
    sample, n = path.sample, path.sample.Y.shape[1]
    if path.z.shape[1] > 1 or n > CARRIED:
        return None
    Y = torch.cat([sample.Y, sample.Y.new_ones(len(sample.Y), int(sample.fitted))], 1)
    phi, result = torch.eye(Y.shape[1], dtype=Y.dtype), []
    for j in reversed(range(sample.n_batches)):
        result.append(phi)
        J, shrink = sample.batch(j), torch.ones(Y.shape[1], dtype=Y.dtype)
        shrink[:n] = path.rho[j]
        steep = path.c[J] * path.hessian[J, 0, 0]
        phi = phi * shrink - (phi @ Y[J].T) * steep @ Y[J]
    return torch.stack(result[::-1])


def _growth(path: Trajectory) -> torch.Tensor:
    """Y_jᵀ D_j Y_j has eigenvalues from 0 to μ, those of √D Y Yᵀ √D; so ρ I − c Y_jᵀ D_j Y_j (the intercept's ρ is 1)
    lies between ρ − c μ and 1."""
    steepest = torch.linalg.matrix_norm(path.hessian, ord=torch.inf).sqrt()
    result = []
    for j in range(path.sample.n_batches):
        J, rho = path.sample.batch(j), float(path.rho[j])
        own = path.gram[J, J] + float(path.sample.fitted)
        mu = float(torch.linalg.eigvalsh(steepest[J, None] * own * steepest[J]).max())
        result.append(max(1.0, abs(rho), float(path.c[J][0]) * mu - rho))
    return torch.tensor(result, dtype=torch.float64)


def _coupling(path: Trajectory) -> torch.Tensor:
    """K, (k, k)."""
    K = torch.zeros_like(path.gram)
    for j in range(path.sample.n_batches):
        J, kappa = path.sample.batch(j), path.decay(j)
        first = len(kappa)
        K[J, :first] = path.gram[J, :first] * kappa
        if path.sample.fitted:
            K[J, :first] += path.c[:first]
    return K


def _spectral(S: torch.Tensor) -> float:
    """Not less than ‖S‖₂, and near it: ‖S⁴‖_F^¼, or ‖S‖_F where powers would take long."""
    scale = float(S.abs().max()) if S.numel() else 0.0
    if scale == 0 or scale != scale:
        return 0.0
    T = S / scale
    if len(S) > SQUARED:
        return scale * float(T.norm())
    T = T @ T
    size = float(T.norm())
    return scale * math.sqrt(size * math.sqrt(float((T / size @ (T / size)).norm())))


def bound(maps: Propagation, knob: Disturbance) -> float:
    """A bound on ‖δx'‖ / ‖x' − x‖: step through the batches with bounds in place of numbers.

    For batch j: e = |I − K M D| ζ + |K M| (ρ + q) + ‖Y_k‖ a, over the batches before, bounds how far its margins have
    moved; from it follow what the knob adds, ζ_j and ρ_j, and what the family's curvature adds, q_j. What a knob
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
        if not bool(torch.isfinite(moved[J]).all()) or not math.isfinite(state):
            return float("inf")
    own = state + knob.update(moved)
    if maps.carry is not None:
        own = min(own, knob.arrived(maps.carry))
    slack = DOUBLE * (path.size + path.movement)
    return (maps.margin.worst(zeta) + maps.residual.worst(rho + q) + own + slack) / path.movement


def term_bound(maps: Propagation, knob: str, fmt: Format) -> float:
    """The smallest of the known bounds of a knob in a format."""
    return min(bound(maps, kind(maps.path, fmt)) for kind in DISTURBANCES[knob])


def why_infinite(path: Trajectory, knob: str, fmt: Format) -> str:
    """Why a term has no bound, for the user."""
    sample, margins, p = path.sample, rank_margins(path), path.coefficients(path.sample.n_batches)
    rounded = {
        "data": (sample.Y,),
        "margin": (margins, path.v),
        "gram_operand": (sample.Y,),
        "gram_accumulate": (path.gram,),
        "gram_wire": (margins, path.gram),
        "recurrence": (path.gram, Recurrence(path, fmt).linear, p),
        "residual": (path.z, path.slope, sample.w, path.r),
        "update": (sample.Y, p),
        "weights": (path.weights[-1],),
    }
    top = max(float(part.abs().max()) for part in rounded[knob] if part.numel())
    if top > largest(fmt):
        return f"numbers up to {top:.3g} leave the range of {fmt.name}, which ends at {largest(fmt):.3g}"
    return "disturbed margins could leave the range where the link's curvature is bounded"
