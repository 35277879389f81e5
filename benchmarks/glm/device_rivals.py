"""Rivals of the suite `glm-device`: SGD as one would write it in PyTorch and in JAX, on one GPU."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.utils.dlpack

from laconic.measure.solvers import ALPHA

GRAPHED = 64
"""Iterations of a CUDA graph."""
Link = Callable[[torch.Tensor], torch.Tensor]
MEANS: dict[str, Link] = {"gaussian": lambda z: z, "bernoulli": torch.sigmoid, "poisson": torch.exp}


class Rival(Protocol):
    """Interface of a solver that takes steps of SGD.

    label  name in tables
    """

    label: str

    def run(self, rows: torch.Tensor) -> None:
        """Take one step for each batch of rows (k,) int64."""

    def point(self) -> tuple[torch.Tensor, float]:
        """Coefficients (n,) and intercept."""


class EagerSGD:
    """SGD in eager PyTorch, X in its given dtype; arithmetic in float32."""

    def __init__(
        self, X: torch.Tensor, y: torch.Tensor, family: str, batch_size: int, eta: float, start: float
    ) -> None:
        self.X, self.y, self.mean, self.b, self.eta = X, y, MEANS[family], batch_size, eta
        self.x = torch.zeros(X.shape[1], device=X.device)
        self.intercept = torch.full((), start, device=X.device)
        self.label = f"eager {'fp32' if X.dtype == torch.float32 else 'bf16'} SGD"

    def step(self, rows: torch.Tensor) -> None:
        """x ← x − η (Yᵀ r / b + α x), b ← b − η mean(r)."""
        Y = self.X.index_select(0, rows).float()
        r = self.mean(Y @ self.x + self.intercept) - self.y.index_select(0, rows)
        self.x.mul_(1 - self.eta * ALPHA).addmv_(Y.T, r, alpha=-self.eta / self.b)
        self.intercept.sub_(r.mean(), alpha=self.eta)

    def run(self, rows: torch.Tensor) -> None:
        for batch in rows.view(-1, self.b):
            self.step(batch)

    def point(self) -> tuple[torch.Tensor, float]:
        return self.x, float(self.intercept)


class GraphedSGD(EagerSGD):
    """The same operations, 64 iterations captured in a CUDA graph."""

    def __init__(
        self, X: torch.Tensor, y: torch.Tensor, family: str, batch_size: int, eta: float, start: float
    ) -> None:
        super().__init__(X, y, family, batch_size, eta, start)
        self.label = self.label.replace("eager", "graphed")
        self.rows = torch.zeros(GRAPHED * batch_size, dtype=torch.int64, device=X.device)
        kept = self.x.clone(), self.intercept.clone()
        for _ in range(3):
            self.step(self.rows[:batch_size])
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().run(self.rows)
        self.x.copy_(kept[0])
        self.intercept.copy_(kept[1])

    def run(self, rows: torch.Tensor) -> None:
        whole = len(rows) - len(rows) % len(self.rows)
        for part in rows[:whole].view(-1, len(self.rows)):
            self.rows.copy_(part)
            self.graph.replay()
        super().run(rows[whole:])


def has_jax() -> bool:
    """Whether JAX is installed."""
    return importlib.util.find_spec("jax") is not None


class JaxSGD:
    """SGD in JAX: a scan over batches, compiled as a whole."""

    label = "jax fp32 SGD"

    def __init__(
        self, X: torch.Tensor, y: torch.Tensor, family: str, batch_size: int, eta: float, start: float
    ) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it reserves 3/4 of the GPU
        import jax
        import jax.numpy as jnp

        self.b, self.jax, self.jnp = batch_size, jax, jnp
        self.X, self.y = (jnp.from_dlpack(t.contiguous()) for t in (X, y))
        mean = {"gaussian": lambda z: z, "bernoulli": jax.nn.sigmoid, "poisson": jnp.exp}[family]

        def step(state: Any, rows: Any) -> Any:
            x, b, X, y = state
            Y = X[rows]
            r = mean(jnp.matmul(Y, x, precision="highest") + b) - y[rows]
            x = (1 - eta * ALPHA) * x - eta / batch_size * jnp.matmul(r, Y, precision="highest")
            return (x, b - eta * r.mean(), X, y), None

        self.scan = jax.jit(lambda x, b, X, y, rows: jax.lax.scan(step, (x, b, X, y), rows)[0][:2])
        self.x, self.intercept = jnp.zeros(X.shape[1]), jnp.float32(start)

    def run(self, rows: torch.Tensor) -> None:
        batches = self.jnp.from_dlpack(rows.int().view(-1, self.b))
        self.x, self.intercept = self.scan(self.x, self.intercept, self.X, self.y, batches)
        self.x.block_until_ready()

    def point(self) -> tuple[torch.Tensor, float]:
        return torch.utils.dlpack.from_dlpack(self.x), float(self.intercept)
