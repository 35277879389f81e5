"""Which memory a problem is kept in, and so where a fit computes."""

from dataclasses import replace

import torch

from laconic.errors import BackendUnavailable, InvalidOption, Option
from laconic.glm.columns import Columns, DenseColumns, PinnedColumns
from laconic.glm.problem import Problem

SHARE = 0.7
"""Of the GPU's free memory that a matrix may take; a larger one stays in the host's memory, page-locked."""


def placed(problem: Problem, device: str | None) -> Problem:
    """The problem where `device` says: None for where its columns are.

    >>> from laconic.glm.families import Gaussian
    >>> placed(Problem(DenseColumns(torch.ones(2, 2)), Gaussian(), torch.ones(2)), "cpu").y.device
    device(type='cpu')
    """
    columns = problem.columns if device is None else _columns(problem.columns, device)

    def there(v: torch.Tensor | None) -> torch.Tensor | None:
        return None if v is None else v.to(columns.device)

    y, weights, offset = problem.y.to(columns.device), there(problem.weights), there(problem.offset)
    return replace(problem, columns=columns, y=y, weights=weights, offset=offset)


def _columns(columns: Columns, device: str) -> Columns:
    wanted = torch.device(device)
    if wanted == columns.device:
        return columns
    if not isinstance(columns, DenseColumns):
        asked = Option("device", device)
        raise InvalidOption(
            asked, ": a sparse X stays on the CPU; pass X.toarray(), or leave ", Option("device"), " out"
        )
    if wanted.type == "cuda" and not torch.cuda.is_available():
        asked = Option("device", device)
        raise BackendUnavailable(asked, ", but there is no CUDA GPU here; leave ", Option("device"), " out")
    if wanted.type == "cuda" and columns.X.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(wanted)
        if columns.X.numel() * columns.X.element_size() > SHARE * free:
            return PinnedColumns(columns.X, wanted)
    return DenseColumns(columns.X.to(wanted))
