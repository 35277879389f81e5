"""all_gather: everyone sends its code to everyone."""

from dataclasses import dataclass, replace
from typing import ClassVar

from laconic.codec import Codec
from laconic.exchange.base import Exchange, Phases, Task
from laconic.exchange.codes import Codes
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
        return self._phases(Codes.of(task, comm, [task.codec]))

    def _phases(self, codes: Codes) -> Phases:
        task, comm, accounting, n = codes.task, codes.comm, codes.accounting, codes.task.v.numel()
        accounting.n_values = n
        with accounting.timed("encode"):
            lengths = codes.lengths(0, [n] * comm.size)
            outbox = comm.shared_outbox(lengths, task.v.device, phase=0, buffers=task.buffers)
            stream = replace(task.stream, rank=comm.rank)
            message = codes.encode_part(0, n, stream, comm.rank, outbox.buffer_for(comm.rank))
            for r in comm.sending_order:
                outbox.send(r, message)
            inbox = outbox.close()
        yield
        with accounting.timed("wire"):
            messages = inbox.wait()
        accounting.bytes_sent += len(message) * (comm.size - 1)
        codes.note(0, messages)
        with accounting.timed("decode"):
            average = codes.decode_sum(0, messages, task.target(), 1.0 / comm.size, task.scale)
        return codes.result(average, self._phases)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω / P: P independent errors of at most ω ‖v_i‖², averaged."""
        return codec.quantizer.variance_bound(n) / size
