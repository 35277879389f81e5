"""Which memory a matrix is kept in, and so where a fit computes."""

import torch

from laconic.errors import BackendUnavailable
from laconic.glm.columns import Columns, DenseColumns, PinnedColumns

SHARE = 0.7
"""Of the GPU's free memory that a matrix may take; a larger one stays in the host's memory, page-locked."""


def placed(columns: Columns, device: str | None) -> Columns:
    """The columns where `device` says: None for where they are.

    >>> placed(DenseColumns(torch.ones(2, 2)), "cpu").device
    device(type='cpu')
    """
    if device is None or torch.device(device) == columns.device:
        return columns
    wanted = torch.device(device)
    if not isinstance(columns, DenseColumns):
        raise ValueError(f"device={device!r}: a sparse X stays on the CPU; pass X.toarray(), or leave device out")
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable(f"device={device!r}, but there is no CUDA GPU here; leave device out")
    if wanted.type == "cuda" and columns.X.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(wanted)
        if columns.X.numel() * columns.X.element_size() > SHARE * free:
            return PinnedColumns(columns.X, wanted)
    return DenseColumns(columns.X.to(wanted))
