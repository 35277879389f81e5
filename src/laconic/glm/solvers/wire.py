"""Sums over ranks: the AllReduces of margins and Gram matrices, and when a GPU sends them.

`Wire` sums and counts. `Reduction` decides when, for the fused solver on a GPU: never on one rank (`Local`), in one
AllReduce per block (`Joint`), or the Gram matrix one block ahead (`Prefetched`).
"""

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from laconic.codec import Codec
from laconic.exchange import Accounting, Communicator, ScatterReduce
from laconic.glm.ranks import gather_array
from laconic.kernels import Stream
from laconic.kernels.formats import Format, format_named


@dataclass(slots=True)
class Wire:
    """Sums margins and Gram matrices over ranks: one AllReduce for both, or with a codec one for each.

    comm        the ranks
    format      of the sums: the name of a number format, or a `Codec` for the Gram matrix
    stream      random numbers of the codec
    accounting  bytes and seconds so far, and
    messages    AllReduces so far
    """

    comm: Communicator
    format: "str | Codec" = "fp32"
    stream: Stream = field(default_factory=Stream)
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

    def _coded(self, v: torch.Tensor, codec: Codec, iteration: int) -> torch.Tensor:
        if not v.numel():
            return v
        result = ScatterReduce().average(v.float(), codec, self.stream.at(step=iteration), comm=self.comm)
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
