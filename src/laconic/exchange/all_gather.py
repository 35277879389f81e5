"""all_gather: everyone sends its code to everyone."""

from dataclasses import dataclass, replace
from typing import ClassVar

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task, encode, received
from laconic.exchange.communicator import Communicator


@dataclass(frozen=True, slots=True)
class AllGather(Exchange):
    """Algorithm 1 of NUQSGD (JMLR 22(114), 2021), with P ranks:

    1. encode own values;
    2. send the code to every rank, receive P codes;
    3. decode all P codes, own included, and average.

    A rank receives (P − 1) codes, so the cost grows with the number of ranks; there is one quantisation only.
    """

    name: ClassVar[str] = "all_gather"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        accounting = Accounting(n_exchanges=1, n_values=task.v.numel())
        with accounting.timed("encode"):
            n, stream = task.v.numel(), replace(task.stream, rank=comm.rank)
            lengths = [task.codec.max_bytes(n)] * comm.size if task.codec.fixed_size else None
            outbox = comm.shared_outbox(lengths, task.v.device, phase=0, buffers=task.buffers)
            payload = encode(task, 0, n, stream, accounting, outbox.buffer_for(comm.rank))
            for r in comm.sending_order:
                outbox.send(r, payload.data)
            inbox = outbox.close()
        yield
        with accounting.timed("wire"):
            codes = inbox.wait()
        accounting.bytes_sent += payload.n_bytes * (comm.size - 1)
        accounting.bytes_received += sum(len(code) for code in codes) - len(codes[comm.rank])
        with accounting.timed("decode"):
            payloads = [received(code) for code in codes]
            average = task.codec.decode_sum(payloads, task.target(), weight=1.0 / comm.size, scale=task.scale)
        return Exchanged(average, accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω / P: P independent errors of at most ω ‖v_i‖², averaged."""
        return codec.quantizer.variance_bound(n) / size
