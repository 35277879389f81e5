"""Curvature of the links: how far a residual can move when its margin does.

For a family's φ'(z) and a change of the margins by at most h in every output, each link bounds

    change     |φ'(z + t) − φ'(z)|
    remainder  |φ'(z + t) − φ'(z) − φ''(z) t|

by quantities at z alone, so that no constant has to hold for all margins: that of counts would be infinite.
"""

from abc import ABC, abstractmethod

import torch

from laconic.glm.families import Family


class Link(ABC):
    """z, h are (k, C), float64."""

    @abstractmethod
    def hessian(self, z: torch.Tensor) -> torch.Tensor:
        """φ''(z), (k, C, C)."""

    @abstractmethod
    def change(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z)| over |t| ≤ h, (k, C)."""

    @abstractmethod
    def remainder(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """A bound on |φ'(z + t) − φ'(z) − φ''(z) t| over |t| ≤ h, (k, C)."""


class Linear(Link):
    """φ' = z − y: nothing but the change itself."""

    def hessian(self, z: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(z)[:, :, None]

    def change(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return h

    def remainder(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(h)


class Logistic(Link):
    """φ' = σ(z) − y. σ' ≤ 1/4, |σ''| ≤ 1/(6√3), and |σ''| ≤ σ', so that σ'(z + t) ≤ σ'(z) e^|t|."""

    def hessian(self, z: torch.Tensor) -> torch.Tensor:
        return _slope(z)[:, :, None]

    def change(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return torch.minimum(_slope(z) * torch.expm1(h), h / 4).clamp(max=1.0)

    def remainder(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        near = _slope(z) * _exp_tail(h)
        return torch.minimum(near, h.square() / (12 * 3**0.5)).clamp(max=1.0 + h / 4)


class Counts(Link):
    """φ' = e^z − y: the change is e^z (e^t − 1)."""

    def hessian(self, z: torch.Tensor) -> torch.Tensor:
        return z.exp()[:, :, None]

    def change(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return z.exp() * torch.expm1(h)

    def remainder(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return z.exp() * _exp_tail(h)


class Softmax(Link):
    """φ' = π(z) − e_y. Along t, π_c' = π_c (t_c − t̄) and π_c'' = π_c ((t_c − t̄)² − Var t), with |t_c − t̄| ≤ 2 h and
    Var t ≤ h² for the largest h of the row; π_c itself grows by at most e^(2h)."""

    def hessian(self, z: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(z, 1)
        return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]

    def change(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        top = h.amax(1, keepdim=True)
        return (_grown(z, top) * 2 * top).clamp(max=1.0)

    def remainder(self, z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        top = h.amax(1, keepdim=True)
        return torch.minimum(_grown(z, top) * 2 * top.square(), 1.0 + top)


def _slope(z: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _grown(z: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(z, 1) * torch.exp(2 * h)).clamp(max=1.0)


def _exp_tail(h: torch.Tensor) -> torch.Tensor:
    """e^h − 1 − h, not less than it: for small h by its series, h²/2 (1 + h/3 + …) ≤ h²/2 e^h."""
    return torch.where(h < 1e-3, h.square() / 2 * h.clamp(max=1.0).exp(), torch.expm1(h) - h)


LINKS: dict[str, Link] = {"gaussian": Linear(), "bernoulli": Logistic(), "poisson": Counts(), "multinomial": Softmax()}


def link_of(family: Family) -> Link:
    """The link of a family; `ValueError` for one whose curvature nobody has bounded."""
    if family.name not in LINKS:
        raise ValueError(f"no bounds are known for the family {family.name!r}; known are {', '.join(LINKS)}")
    return LINKS[family.name]
