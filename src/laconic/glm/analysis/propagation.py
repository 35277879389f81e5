"""How a disturbance of the margins or the residuals reaches the new weights.

To first order the residuals' disturbance δr obeys δr = D δz + ρ and δz = ζ − K δr. Here ζ and ρ are what rounding adds
to margins and residuals, D = w φ'', and K_ji = c_i (Π_{i<t<j} ρ_t G_ji + 1) for batches i < j, where the 1 is the
intercept's. Hence

    δr = (I + D K)⁻¹ (D ζ + ρ) = M (D ζ + ρ),     δz = (I − K M D) ζ − K M ρ,

and the weights and the intercept move by −(Yᵀ d, 1ᵀ c) δr, whose squared norm is δrᵀ W δr with W = d dᵀ ∘ G + c cᵀ.
"""

import math
from dataclasses import dataclass

import torch

from laconic.glm.analysis.trajectory import Trajectory

LARGEST = 6144
"""k C beyond which the matrices of an analysis no longer fit where one would run it."""


@dataclass(frozen=True, slots=True, eq=False)
class Quadratic:
    """A quadratic form, to be bounded over a box: max of √(ζᵀ S ζ) over |ζ| ≤ β, (k C,)."""

    S: torch.Tensor
    size: torch.Tensor
    top: float

    @classmethod
    def of(cls, S: torch.Tensor) -> "Quadratic":
        """With what does not depend on the box worked out."""
        return cls(S, S.abs(), _spectral(S))

    def worst(self, beta: torch.Tensor) -> float:
        """The least of three bounds: βᵀ |S| β, ‖S‖ ‖β‖², and k C ‖diag β S diag β‖."""
        beta = beta.reshape(-1)
        if not bool(torch.isfinite(beta).all()):
            return float("inf")
        square = min(float(beta @ self.size @ beta), self.top * float(beta @ beta))
        used = beta > 0
        if bool(used.any()):
            scaled = beta[used, None] * self.S[used][:, used] * beta[used]
            square = min(square, int(used.sum()) * _spectral(scaled))
        return math.sqrt(max(0.0, square))


@dataclass(frozen=True, slots=True, eq=False)
class Propagation:
    """Of one trajectory.

    on_margins    (k C, k C) |I − K M D|: bounds on ζ to bounds on δz
    on_residuals  (k C, k C) |K M|: bounds on ρ to bounds on δz
    growth        (s,) the most by which a batch enlarges a change of the weights, ‖ρ I − c Y_jᵀ D_j Y_j‖
    row_norms     (k, 1) ‖Y_k‖, the intercept's 1 included
    margin        the squared change of the weights as a form in ζ
    residual      the same in ρ
    """

    path: Trajectory
    on_margins: torch.Tensor
    on_residuals: torch.Tensor
    growth: torch.Tensor
    row_norms: torch.Tensor
    margin: Quadratic
    residual: Quadratic


def propagate(path: Trajectory) -> Propagation:
    """The maps of a trajectory; `ValueError` where they would be too large."""
    k, n_outputs = path.z.shape
    if k * n_outputs > LARGEST:
        raise ValueError(
            f"s × batch size × outputs is {k * n_outputs}, and an analysis takes at most {LARGEST}: "
            "lower s or the batch size"
        )
    K, D = _coupling(path), _diagonal(path.hessian)
    if n_outputs > 1:
        K = torch.kron(K, torch.eye(n_outputs, dtype=K.dtype))
    identity = torch.eye(k * n_outputs, dtype=K.dtype)
    M = torch.linalg.solve_triangular(identity + D @ K, identity, upper=False, unitriangular=True)
    KM = K @ M
    d = path.decay(path.sample.n_batches)
    W = d[:, None] * path.products * d
    if path.sample.fitted:
        W = W + path.c[:, None] * path.c
    if n_outputs > 1:
        W = torch.kron(W, torch.eye(n_outputs, dtype=K.dtype))
    S = M.T @ W @ M
    norms = (path.gram.diagonal() + float(path.sample.fitted)).clamp(min=0).sqrt()[:, None]
    forms = Quadratic.of(D.T @ S @ D), Quadratic.of(S)
    return Propagation(path, (identity - KM @ D).abs(), KM.abs(), _growth(path), norms, *forms)


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


def _diagonal(blocks: torch.Tensor) -> torch.Tensor:
    """Blocks (k, C, C) on the diagonal of a matrix (k C, k C)."""
    k, n_outputs, _ = blocks.shape
    result = blocks.new_zeros(k, n_outputs, k, n_outputs)
    index = torch.arange(k)
    result[index, :, index, :] = blocks
    return result.view(k * n_outputs, k * n_outputs)


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
    """Not less than ‖S‖₂, and near it: ‖S²‖_F^½."""
    scale = float(S.abs().max()) if S.numel() else 0.0
    if scale == 0 or scale != scale:
        return 0.0
    T = S / scale
    return scale * math.sqrt(float((T @ T).norm()))
