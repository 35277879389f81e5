"""all_reduce: the uncompressed baselines, summed by the process group itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task, measure_error
from laconic.exchange.communicator import Communicator
from laconic.quantizers import Identity

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class AllReduce(Exchange):
    """The process group's own all-reduce, in float32 or bfloat16 as the codec's `Identity` says.

    1. divide by P and cast; 2. sum over all ranks. In bfloat16 the sums are rounded too, unlike `ScatterReduce` with
    `Identity("bf16")`, which sums in float32.
    """

    name: ClassVar[str] = "all_reduce"

    def check(self, codec: Codec) -> None:
        if not isinstance(codec.quantizer, Identity):
            raise ValueError(
                f"all_reduce sums values on the wire and cannot carry {codec.quantizer}; "
                "use exchange='scatter_reduce' or 'all_gather', or codec 'fp32' or 'bf16'"
            )

    def phases(self, task: Task, comm: Communicator) -> Phases:
        accounting = Accounting(n_exchanges=1, n_values=task.v.numel())
        with accounting.timed("encode"):
            dtype = _DTYPES[getattr(task.codec.quantizer, "dtype", "fp32")]
            average = task.target()
            wire = average
            if dtype != torch.float32:
                wire = task.buffers.empty("reduced", average.numel(), dtype, average.device)
            if task.measure_error:
                measure_error(task.v, task.v.detach().reshape(-1).to(dtype).float(), accounting)
            if wire.data_ptr() != task.v.data_ptr():
                wire.copy_(task.v.detach().reshape(-1))
            wire.div_(comm.size)
            wait = comm.all_reduce(wire)
        yield
        with accounting.timed("wire"):
            wait()
        n_bytes = self.bytes_received(task.codec, task.v.numel(), comm.size)
        accounting.bytes_sent += n_bytes
        accounting.bytes_received += n_bytes
        with accounting.timed("decode"):
            if wire is not average:
                average.copy_(wire)
        return Exchanged(average, accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        """2 (P − 1) / P of the values: what a ring all-reduce moves."""
        return 2 * (size - 1) * n * codec.quantizer.bits // 8 // size

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        return codec.quantizer.variance_bound(n)
