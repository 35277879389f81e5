"""all_gather: everyone sends its code to everyone."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task, encode, received
from laconic.exchange.communicator import Communicator
from laconic.exchange.slots import Slots


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
        slots = Slots(task, comm, [task.codec], accounting)
        if slots.ready:
            return (yield from self._by_slots(slots))
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
        slots.learn_whole(max(len(code) for code in codes))
        return Exchanged(average, accounting)

    def _by_slots(self, slots: Slots) -> Phases:
        """The same with codes of variable size in messages of a known one."""
        task, comm, accounting = slots.task, slots.comm, slots.accounting
        with accounting.timed("encode"):
            capacity = slots.capacity(0)
            row = slots.encode_part(0, task.n_values, replace(task.stream, rank=comm.rank), comm.rank)
            outbox = comm.shared_outbox([capacity] * comm.size, task.v.device, phase=0, buffers=task.buffers)
            for r in comm.sending_order:
                slots.send(outbox, r, row, 0)
            inbox = outbox.close()
        yield
        with accounting.timed("wire"):
            codes = inbox.wait()
        accounting.bytes_received += capacity * (comm.size - 1)
        with accounting.timed("decode"):
            average = slots.decode(0, codes, task.target(), 1.0 / comm.size, task.scale)
        return slots.result(average, lambda: self._whole(slots, average))

    def _whole(self, slots: Slots, average: torch.Tensor) -> Exchanged:
        """Once more, with whole payloads."""
        comm, accounting, payload = slots.comm, slots.accounting, slots.whole()[slots.comm.rank]
        codes = comm.all_to_all([payload] * comm.size, None, phase=0).wait()
        accounting.bytes_sent += len(payload) * (comm.size - 1)
        accounting.bytes_received += sum(len(code) for code in codes) - len(payload)
        task, payloads = slots.task, [received(code) for code in codes]
        task.codec.decode_sum(payloads, average, weight=1.0 / comm.size, scale=task.scale)
        return Exchanged(average, accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω / P: P independent errors of at most ω ‖v_i‖², averaged."""
        return codec.quantizer.variance_bound(n) / size
