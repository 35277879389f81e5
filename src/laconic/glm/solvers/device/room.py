"""What a block of k rows leaves on the device between its kernels."""

from dataclasses import dataclass

import torch

from laconic.glm.problem import Problem
from laconic.glm.solvers.device.lane import matrix
from laconic.kernels.gpu.glm import GramPlan, MarginPlan, gram_room


@dataclass(frozen=True, slots=True)
class Room:
    """Buffers of blocks of k rows, C outputs.

    product  how a Gram matrix is made
    margins  how margins are made, and where they are left
    grams    (K + B, K) float32, two of them: one is filled while the other is read
    p        (C, k) float32, coefficients of the rows
    later    (n_pairs,) int64, where a Gram matrix holds products of rows of different batches: what the wire carries
    """

    product: GramPlan
    margins: MarginPlan
    grams: tuple[torch.Tensor, torch.Tensor]
    p: torch.Tensor
    later: torch.Tensor

    @classmethod
    def of(cls, k: int, batch_size: int, problem: Problem, *, talks: bool) -> "Room":
        """Room for k rows of a problem's columns."""
        X, n_outputs, device = matrix(problem), problem.n_outputs, problem.columns.device
        n = X.shape[1]
        grams = [gram_room(k, batch_size, n_outputs, device) for _ in range(2)]
        later = _later(k, batch_size, grams[0].stride(0), device) if talks else grams[0].new_empty(0, dtype=torch.int64)
        return cls(
            GramPlan.of(k, batch_size, n, X.dtype, device),
            MarginPlan.of(k, n, n_outputs, device),
            (grams[0], grams[1]),
            torch.zeros(n_outputs, k, device=device),
            later,
        )


def _later(k: int, batch_size: int, stride: int, device: torch.device) -> torch.Tensor:
    row = torch.arange(k, device=device)
    wanted = (row // batch_size)[:, None] < (row // batch_size)[None, :]
    return (row[:, None] * stride + row[None, :])[wanted]
