"""Sums over ranks, with their accounting."""

from dataclasses import dataclass, field, replace

import torch

from laconic.codec import Codec
from laconic.exchange import Accounting, Communicator, ScatterReduce
from laconic.kernels import Stream
from laconic.kernels.formats import format_named


@dataclass(slots=True)
class Wire:
    """What carries margins and Gram matrices: one AllReduce for both, or with a codec one for each.

    comm      the ranks
    format    of the sums: the name of a number format, or a `Codec` for the Gram matrix
    stream    random numbers of the codec
    messages  AllReduces so far
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
