"""What moves between ranks besides sums: arrays, and rows that become columns."""

import io
from collections.abc import Sequence

import numpy as np
import torch

from laconic.exchange import Communicator
from laconic.glm.columns import Columns, DenseColumns, SparseColumns


def gather_array(array: np.ndarray, comm: Communicator) -> list[np.ndarray]:
    """An array of numbers or text of each rank, on every rank."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    message = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    received = comm.all_to_all([message] * comm.size, None, phase=0).wait()
    return [np.load(io.BytesIO(m.numpy().tobytes()), allow_pickle=False) for m in received]


def repartition(blocks: Sequence[Columns], row_counts: Sequence[int], comm: Communicator) -> Columns:
    """One all-to-all: every rank gives rows and gets columns. Ranks without rows or without columns take part.

    blocks      this rank's rows, cut by columns: the r-th block is for rank r; all dense or all sparse
    row_counts  rows of each rank

    1. block r goes to rank r, as bytes;
    2. the blocks that arrive have this rank's columns; below each other, in the order of ranks, they hold all rows.

    >>> A = torch.arange(6.0).view(2, 3)
    >>> repartition([DenseColumns(A)], [2], Communicator()).take(np.array([1]), torch.float32).Y
    tensor([[3., 4., 5.]])
    """
    messages = [_bytes(block) for block in blocks]
    received = comm.all_to_all(messages, None, phase=0).wait()
    own = blocks[comm.rank]
    if isinstance(own, SparseColumns):
        return _stack_sparse(received, row_counts, own.matrix[0].dtype, own.n)
    if isinstance(own, DenseColumns):
        dtype = own.X.dtype
        parts = [message.view(dtype).view(m, own.n) for message, m in zip(received, row_counts, strict=True)]
        return DenseColumns(torch.cat(parts))
    raise TypeError(f"cannot send {type(own).__name__} to other ranks")


def _bytes(block: Columns) -> torch.Tensor:
    """Dense: the values. Sparse: entries in each row (int64), columns (int32), values."""
    if isinstance(block, SparseColumns):
        values, columns, begins = block.matrix
        return torch.cat([_flat(begins.diff()), _flat(columns), _flat(values)])
    if isinstance(block, DenseColumns):
        return _flat(block.X)
    raise TypeError(f"cannot send {type(block).__name__} to other ranks")


def _flat(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(-1).contiguous().view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)


def _stack_sparse(
    messages: Sequence[torch.Tensor], row_counts: Sequence[int], dtype: torch.dtype, n: int
) -> SparseColumns:
    lengths, columns, values = [], [], []
    for message, m in zip(messages, row_counts, strict=True):
        counts = message[: 8 * m].clone().view(torch.int64)
        end = 8 * m + 4 * int(counts.sum())
        lengths.append(counts)
        columns.append(message[8 * m : end].clone().view(torch.int32))
        values.append(message[end:].clone().view(dtype))
    begins = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(lengths).cumsum(0)])
    return SparseColumns(torch.cat(values), torch.cat(columns), begins, n)
