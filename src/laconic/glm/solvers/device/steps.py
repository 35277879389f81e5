"""Step sizes of a segment, and what of them does not depend on any data."""

import numpy as np
import torch


class Steps:
    """For blocks of s batches, on the device.

    each  (n_batches, 3) float32: c = η g, ρ = 1 − η λ, and d = c Π ρ over the later batches of the block
    ends  (n_blocks, 2) float32: Π ρ and Σ η of each block
    """

    def __init__(self, n_batches: int, s: int, device: torch.device) -> None:
        self.s = s
        self.each = torch.zeros(n_batches, 3, device=device)
        self.ends = torch.zeros(-(-n_batches // s), 2, device=device)

    def load(self, rates: np.ndarray, scales: np.ndarray, l2: float) -> None:
        """η and g of the segment's batches, as many as there is room for or fewer."""
        n, n_blocks = len(rates), -(-len(rates) // self.s)
        eta = np.zeros((n_blocks, self.s))
        eta.flat[:n] = rates
        keep = 1.0 - eta * l2
        later = np.ones_like(keep)
        later[:, :-1] = np.cumprod(keep[:, :0:-1], 1)[:, ::-1]
        c = rates * scales
        each = np.stack([c, keep.flat[:n], c * later.flat[:n]], 1)
        ends = np.stack([keep.prod(1), eta.sum(1)], 1)
        self.each[:n].copy_(torch.from_numpy(each.astype(np.float32)))
        self.ends[:n_blocks].copy_(torch.from_numpy(ends.astype(np.float32)))
