"""A dense block of columns in memory of the host, for a GPU that it may not fit into."""

import numpy as np
import torch

from laconic.glm.columns.dense import DenseColumns, DenseRows


class PinnedColumns(DenseColumns):
    """X (m, n) in page-locked memory, from which a GPU reads rows by itself; all arithmetic is done on that GPU.

    X that is not page-locked is copied into such memory, once.
    """

    def __init__(self, X: torch.Tensor, device: "torch.device | str" = "cuda") -> None:
        if X.device.type != "cpu":
            raise ValueError(f"X is on {X.device} already: use DenseColumns")
        super().__init__(X if X.is_pinned() and X.is_contiguous() else X.contiguous().pin_memory())
        self._device = torch.device(device)

    @property
    def device(self) -> torch.device:
        return self._device

    def take(self, rows: np.ndarray, dtype: torch.dtype) -> DenseRows:
        from laconic.kernels.gpu.glm import gather_rows

        index = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int32)).to(self._device)
        Y = torch.empty(len(rows), self.n, dtype=self.X.dtype, device=self._device)
        gather_rows(self.X, index, Y)
        return DenseRows(Y.to(dtype), self.X.dtype)
