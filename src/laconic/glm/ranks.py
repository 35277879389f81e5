"""What moves between ranks: sums, arrays, columns, and rows that become columns.

`Wire` sums and counts. `Reduction` decides when, for the fused solver on a GPU: never on one rank (`Local`), in one
AllReduce per block (`Joint`), or the Gram matrix one block ahead (`Prefetched`).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from laconic.codec import Codec
from laconic.exchange import Accounting, Communicator, ScatterReduce
from laconic.glm.columns import Columns, DenseColumns, SparseColumns
from laconic.kernels import Stream
from laconic.kernels.formats import Format, format_named


@dataclass(slots=True)
class Wire:
    """Sums margins and Gram matrices over ranks: one AllReduce for both, or with a codec one for each.

    comm        the ranks
    format      of the sums: the name of a number format, or a `Codec` for the Gram matrix
    seed        of the codec's random numbers
    accounting  bytes and seconds so far, and
    messages    AllReduces so far
    """

    comm: Communicator
    format: "str | Codec" = "fp32"
    seed: int = 0
    accounting: Accounting = field(default_factory=Accounting)
    messages: int = 0

    def sum(self, margins: torch.Tensor, triangle: torch.Tensor, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both summed over all ranks; every rank gets the same bits."""
        if self.comm.size == 1:
            return margins, triangle
        if isinstance(self.format, Codec):
            return self.all_reduce(margins), self._coded(triangle, self.format, iteration)
        n = margins.numel()
        both = self.all_reduce(torch.cat([margins.reshape(-1), triangle]), format_named(self.format).storage)
        return both[:n].view(margins.shape), both[n:]

    def all_reduce(self, v: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """`v` summed over all ranks in `dtype`, by default its own; one message."""
        if self.comm.size == 1:
            return v
        wire = v.to(dtype or v.dtype, copy=True).contiguous()
        with self.accounting.timed("wire"):
            self.comm.all_reduce(wire)()
        self._count(wire.numel(), 2 * (self.comm.size - 1) * wire.numel() * wire.element_size() // self.comm.size)
        return wire.to(v.dtype)

    def sum_over_teams(self, *values: float) -> tuple[float, ...]:
        """Numbers summed over the teams of ranks, the same bits on every rank; one message if there are several."""
        peers = self.comm.peers
        if peers.size == 1:
            return values
        found = gather_array(np.array(values, dtype=np.float64), peers)
        self._count(len(values), 8 * len(values) * (peers.size - 1))
        return tuple(np.sum(found, 0).tolist())

    def mean_over_teams(self, v: torch.Tensor) -> torch.Tensor:
        """The mean of v (n,) float32 over the teams of ranks: gathered, and added in one order on every rank."""
        peers = self.comm.peers
        message, n_bytes = v.view(torch.uint8), v.numel() * v.element_size()
        with self.accounting.timed("wire"):
            rows = peers.all_to_all([message] * peers.size, [n_bytes] * peers.size).wait()
        self._count(v.numel(), n_bytes * (peers.size - 1))
        first, *others = [row.view(v.dtype) for row in rows]
        return sum(others, first) / peers.size

    def _coded(self, v: torch.Tensor, codec: Codec, iteration: int) -> torch.Tensor:
        if not v.numel():
            return v
        stream = Stream(self.seed, step=iteration, tensor=self.comm.peers.rank)
        result = ScatterReduce().average(v.float(), codec, stream, comm=self.comm)
        self.accounting += replace(result.accounting, n_exchanges=0, n_values=0)
        self._count(v.numel(), 0)
        return (result.value * self.comm.size).to(v.dtype)

    def _count(self, n_values: int, n_bytes: int) -> None:
        self.messages += 1
        self.accounting += Accounting(n_exchanges=1, n_values=n_values, bytes_sent=n_bytes, bytes_received=n_bytes)


class Reduction(Protocol):
    """Reduction strategies: local, one AllReduce, prefetched. When a block's sums over ranks are made."""

    def after_gram(self, G: torch.Tensor) -> None:
        """Called when the block's Gram matrix (k, k) has been queued, well before it is needed."""

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        """The margins of all ranks from parts (n_parts, C, k) of this rank's; from now on G holds sums as well."""


@dataclass(frozen=True, slots=True)
class Local:
    """No reduction: one process."""

    def after_gram(self, G: torch.Tensor) -> None:
        pass

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        return parts


@dataclass(frozen=True, slots=True)
class Joint:
    """One AllReduce per block for margins and Gram matrix: Gloo, where the host must wait for every message anyway.

    pairs   (n_pairs,) places in G of products of rows of different batches
    margin  precision of the margins
    """

    wire: Wire
    pairs: torch.Tensor
    margin: Format

    def after_gram(self, G: torch.Tensor) -> None:
        pass

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        v, triangle = self.wire.sum(self.margin.round(parts.sum(0)), G.view(-1)[self.pairs], iteration)
        G.view(-1)[self.pairs] = triangle
        return v[None]


@dataclass(frozen=True, slots=True)
class Prefetched:
    """Two AllReduces per block, that of the Gram matrix while the block before is worked on: NCCL.

    The fields are those of `Joint`.
    """

    wire: Wire
    pairs: torch.Tensor
    margin: Format

    def after_gram(self, G: torch.Tensor) -> None:
        G.view(-1)[self.pairs] = self.wire.all_reduce(G.view(-1)[self.pairs], self._dtype)

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        return self.wire.all_reduce(self.margin.round(parts.sum(0)), self._dtype)[None]

    @property
    def _dtype(self) -> torch.dtype:
        return format_named(str(self.wire.format)).storage


def reduction_for(wire: Wire, pairs: torch.Tensor, margin: Format) -> Reduction:
    """The strategy for these ranks and their backend."""
    if wire.comm.size == 1:
        return Local()
    return (Joint if wire.comm.is_gloo(pairs.device) else Prefetched)(wire, pairs, margin)


def gather_columns(x: torch.Tensor, first: int, n: int, comm: Communicator) -> torch.Tensor:
    """(C, n) from each rank's (C, n_p), which begins at column `first`; in x's own type, the same bits on every rank.

    Sums of one number and zeros are exact, so this is one AllReduce of vectors padded with zeros.
    """
    if comm.size == 1:
        return x.cpu().clone()
    whole = torch.zeros(x.shape[0], n, dtype=torch.float64)
    whole[:, first : first + x.shape[1]] = x.cpu()
    comm.all_reduce(whole)()
    return whole.to(x.dtype)


def gather_array(array: np.ndarray, comm: Communicator) -> list[np.ndarray]:
    """An array of numbers or text of each rank, on every rank."""
    if comm.size == 1:
        return [array]
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    message = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    received = comm.all_to_all([message] * comm.size).wait()
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
    received = comm.all_to_all(messages).wait()
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
