"""The codes that this rank sends and receives in one exchange: whole payloads (`Codes`) or fixed-size slots (`Slots`).

Slots are for codes of variable size over NCCL: phases need no lengths on the host.

1. Encode into memory of this rank that has room for the longest possible payload.
2. Send the first bytes of it: the capacity, which is an eighth more than the longest payload of the last exchange of
   this tensor, on any rank. They include the header, which gives the payload's length.
3. Decode what arrived. The longest length, over payloads and ranks, is copied to pinned memory.
4. `Exchanged.settled` waits for that number. If a payload was longer than the capacity, every rank knows it, and all
   send the same payloads again, whole; the average is that of the whole ones.

In the first exchange of a tensor no length is known: it sends whole payloads, whose lengths go through the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from laconic.codec import Codec, Payload
from laconic.codec.payload import side_by_side
from laconic.errors import CorruptPayload
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchanged, Phases, Task, measure_error, run_in_turn
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU, ROW_BYTES, Inbox, Make, Messages, sending_order, whole_row
from laconic.kernels import ONES, Scale, Stream


@dataclass(slots=True)
class Codes:
    """The codes of one exchange, sent as whole payloads.

    codecs   one per phase
    rows     of the first phase, by receiving rank: memory that begins with a payload, and its number of values
    longest  bytes of the longest payload received, by phase
    """

    task: Task
    comm: Communicator
    codecs: Sequence[Codec]
    accounting: Accounting = field(default_factory=lambda: Accounting(n_exchanges=1))
    rows: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    longest: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, comm: Communicator, codecs: Sequence[Codec]) -> "Codes":
        """`Slots` where they are supported and their capacities known; otherwise whole payloads."""
        whole = Codes(task, comm, codecs)
        ready = whole.fit_slots and all(phase in task.buffers.capacities for phase in range(len(codecs)))
        return Slots(task, comm, codecs, whole.accounting) if ready else whole

    @property
    def fit_slots(self) -> bool:
        """Whether the codecs and the backend support slots, and the caller settles the result."""
        device = self.task.v.device
        able = all(not codec.fixed_size and codec.has_slots(device) for codec in self.codecs)
        return self.task.late and able and not self.comm.is_gloo(device)

    def send_values(self) -> Inbox:
        """In phase 0, send all values to every rank."""
        n = self.task.n_values
        return self._send(0, lambda rank, place: self._part(rank, (0, n), place), [n] * self.comm.size, shared=True)

    def send_chunks(self, cuts: Sequence[int]) -> Inbox:
        """In phase 0, send values cuts[r] to cuts[r + 1] to rank r."""
        chunks = list(pairwise(cuts))
        sizes = [last - first for first, last in chunks]
        return self._send(0, lambda rank, place: self._part(rank, chunks[rank], place, f"/{rank}"), sizes)

    def send_average(self, own: Tensor, cuts: Sequence[int]) -> Inbox:
        """In phase 1, send own chunk to every rank; `cuts` are those of all chunks."""
        sizes, at = [last - first for first, last in pairwise(cuts)], self._stream("/average")
        return self._send(1, lambda _, place: self._cut(1, self._encode(1, own, at, place), place), sizes, shared=True)

    def _send(self, phase: int, make: Make, sizes: Sequence[int], *, shared: bool = False) -> Inbox:
        """Send codes: if `shared`, rank r sends one of sizes[r] values to all; otherwise all send such to rank r."""
        task, comm, accounting = self.task, self.comm, self.accounting
        accounting.n_values = task.n_values
        sending = self._lengths(phase, sizes)
        lengths = sending if shared or not sending else [sending[comm.rank]] * comm.size

        def count(rank: int, place: Tensor | None) -> Tensor:
            message = make(rank, place)
            accounting.bytes_sent += len(message) * (comm.size - 1 if shared else rank != comm.rank)
            return message

        with accounting.timed("encode"):
            return comm.send(Messages(count, task.v.device, lengths, sending, shared, phase, task.buffers))

    def _lengths(self, phase: int, sizes: Sequence[int]) -> list[int]:
        """Bytes of codes of `sizes` values each; empty if only their senders know."""
        codec = self.codecs[phase]
        return [codec.max_bytes(n) for n in sizes] if codec.fixed_size else []

    def _stream(self, part: str = "") -> Stream:
        stream = replace(self.task.stream, rank=self.comm.rank)
        return stream.at(tensor=f"{stream.tensor}{part}") if part else stream

    def _part(self, rank: int, part: tuple[int, int], place: Tensor | None, name: str = "") -> Tensor:
        """The code of a part of the task's values for a rank, made once; the memory's part is updated in place."""
        task, n = self.task, part[1] - part[0]
        if rank not in self.rows:
            v, scale = task.part(*part), task.scale.cut(*part)
            memory = task.memory[slice(*part)] if task.memory is not None and task.memory.numel() else task.memory
            row = self._encode(0, v, self._stream(name), place, memory, scale)
            self.rows[rank] = (row, n)
            if task.codec.quantizer.core.symbol_bits < 32:
                self.accounting.n_coded += n
                self.accounting.code_bytes += len(self._cut(0, row, None))
            if task.measure_error:
                sent = torch.empty(n, dtype=torch.float32, device=v.device)
                self._decode(0, row, sent)
                measure_error(v, sent, self.accounting)
        return self._cut(0, self.rows[rank][0], place)

    def _encode(
        self, phase: int, v: Tensor, at: Stream, place: Tensor | None, memory: Tensor | None = None, scale: Scale = ONES
    ) -> Tensor:
        """Memory that begins with the payload: `place` if given and suitable."""
        return self.codecs[phase].encode(v, at, memory, out=place, scale=scale).data

    def _cut(self, phase: int, row: Tensor, place: Tensor | None) -> Tensor:
        """The part of `row` that is sent, copied to `place` if given and needed."""
        return row

    def average(self, inbox: Inbox, out: Tensor, weight: float | None = None, scale: Scale = ONES) -> Tensor:
        """After phase 0: out = the mean of the codes of all ranks, or `weight` times their sum, times `scale`."""
        with self.accounting.timed("wire"):
            messages = inbox.wait()
        self._note(0, messages)
        with self.accounting.timed("decode"):
            return self._decode_sum(0, messages, out, 1.0 / self.comm.size if weight is None else weight, scale)

    def collect(self, inbox: Inbox, out: Tensor, cuts: Sequence[int], *, add: bool = False) -> Tensor:
        """After phase 1: decode the chunks of all ranks into their places in `out`, or `add` them to it."""
        messages = [out] * self.comm.size
        for rank in reversed(sending_order(self.comm.rank, self.comm.size)):  # own, then who sent to this one first
            with self.accounting.timed("wire"):
                messages[rank] = inbox.arrivals[rank]()
            with self.accounting.timed("decode"):
                first, last = cuts[rank : rank + 2]
                self._decode(1, messages[rank], out[first:last], self.task.scale.cut(first, last), add=add)
        with self.accounting.timed("wire"):
            inbox.sent()
        self._note(1, messages)
        return out

    def _note(self, phase: int, messages: Sequence[Tensor]) -> None:
        """Account for received messages, one from each rank."""
        lengths = [len(message) for message in messages]
        self.accounting.bytes_received += sum(lengths) - lengths[self.comm.rank]
        self.longest[phase] = max(lengths)

    def _decode_sum(
        self, phase: int, messages: Sequence[Tensor], out: Tensor, weight: float, scale: Scale = ONES
    ) -> Tensor:
        """out = weight * sum of the values in messages * scale."""
        return self.codecs[phase].decode_sum(map(received, messages), out, weight=weight, scale=scale)

    def _decode(self, phase: int, message: Tensor, out: Tensor, scale: Scale = ONES, *, add: bool = False) -> None:
        """out = the values in a message * scale; or `add` the values to it."""
        if add:
            self.codecs[phase].decode_add(received(message), out)
        else:
            self.codecs[phase].decode(received(message), out=out, scale=scale)

    def result(self, value: Tensor, again: "Callable[[Codes], Phases]") -> Exchanged:
        """The average, after the last phase; `again` repeats the exchange with other codes."""
        if self.fit_slots:
            longest = torch.tensor([self.longest[phase] for phase in range(len(self.codecs))], device=value.device)
            self.comm.largest(longest, phase=len(self.codecs) - 1)()
            self._learn(longest.tolist())
        return Exchanged(value, self.accounting)

    def _learn(self, lengths: Sequence[int]) -> None:
        """Set the capacities for the next exchange; `lengths` are the longest of each phase, over all ranks."""
        for phase, length in enumerate(lengths):
            self.task.buffers.learn(phase, length)


@dataclass(slots=True)
class Slots(Codes):
    """The codes of one exchange, sent as the first bytes of payloads: see the module.

    report  (phases + 1,) int64 on the values' device: the longest payload of each phase, and how many were corrupt
    """

    report: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.report = torch.zeros(len(self.codecs) + 1, dtype=torch.int64, device=self.task.v.device)

    def _capacity(self, phase: int) -> int:
        return self.task.buffers.capacities[phase]

    def _lengths(self, phase: int, sizes: Sequence[int]) -> list[int]:
        return [self._capacity(phase)] * len(sizes)

    def _encode(
        self, phase: int, v: Tensor, at: Stream, place: Tensor | None, memory: Tensor | None = None, scale: Scale = ONES
    ) -> Tensor:
        n_bytes = max(self._capacity(phase), whole_row(self.codecs[phase].max_bytes(v.numel())))
        row = torch.empty(n_bytes, dtype=torch.uint8, device=v.device)
        self.codecs[phase].encode_slot(v, at, memory, row, scale=scale)
        return row

    def _cut(self, phase: int, row: Tensor, place: Tensor | None) -> Tensor:
        message = row[: self._capacity(phase)]
        return message if place is None else place.copy_(message)

    def _decode_sum(
        self, phase: int, messages: Sequence[Tensor], out: Tensor, weight: float, scale: Scale = ONES
    ) -> Tensor:
        codec, rows = self.codecs[phase], side_by_side(messages, ROW_BYTES)
        verdict = torch.zeros(1, dtype=torch.int32, device=out.device)
        codec.decode_slots(rows, out, weight, verdict, scale=scale)
        longest = codec.layout.slot_lengths(rows, out.numel()).max()
        self.report[phase] = torch.maximum(self.report[phase], longest)
        self.report[-1] += verdict[0]
        return out

    def _decode(self, phase: int, message: Tensor, out: Tensor, scale: Scale = ONES, *, add: bool = False) -> None:
        values = self._decode_sum(phase, [message], torch.empty_like(out) if add else out, 1.0, scale)
        if add:
            out.add_(values)

    def result(self, value: Tensor, again: Callable[[Codes], Phases]) -> Exchanged:
        """The average, provisional until it is settled."""
        self.comm.largest(self.report, phase=len(self.codecs) - 1)()
        size, cuda = len(self.report), self.report.is_cuda
        found = self.task.buffers.empty("report", size, torch.int64, CPU, pinned=cuda)
        found.copy_(self.report, non_blocking=True)
        arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        if arrived is not None:
            arrived.record()

        def settle() -> Exchanged:
            if arrived is not None:
                arrived.synchronize()
            *lengths, n_corrupt = found.tolist()
            fits = all(length <= self._capacity(phase) for phase, length in enumerate(lengths))
            self._learn(lengths)
            if not fits:
                return run_in_turn([again(self._whole())])[0]
            if n_corrupt:
                raise CorruptPayload(f"{n_corrupt} of the payloads of tensor {self.task.stream.tensor!r} are corrupt")
            return Exchanged(value, self.accounting)

        return Exchanged(value, self.accounting, settle)

    def _whole(self) -> Codes:
        """The same payloads, whole; the host waits for their lengths."""
        lengths = self.codecs[0].layout.slot_lengths
        whole = {rank: (row[: int(lengths(row[None], n))], n) for rank, (row, n) in self.rows.items()}
        return Codes(self.task, self.comm, self.codecs, self.accounting, whole)


def received(message: Tensor) -> Payload:
    """A message as a payload. On a GPU its header is not read, for the host would wait for it.

    This rank fixed the message's length, and `laconic.compress` compares the ranks' codecs before the first exchange.
    """
    return Payload(message, trusted=message.is_cuda)
