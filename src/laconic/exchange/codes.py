"""The messages of one exchange on this rank, made and read: whole payloads (`Codes`), or of a known size (`Slots`).

Slots are for codes of variable size over NCCL: phases need no lengths on the host.

1. Encode into memory of this rank that has room for the longest payload there can be.
2. Send the first bytes of it: the capacity, which is a quarter more than the longest payload of the last exchange of
   this tensor, on any rank. The header is among them, and says how long the payload is.
3. Decode what arrived. The longest length of all, over ranks as well, goes to pinned memory.
4. Whoever asks for the result waits for that number (`Exchanged.settled`). If a payload was longer than the capacity,
   every rank knows it, and all send the same payloads again, whole; the average is that of the whole ones.

The first exchange of a tensor knows no length, and sends whole payloads, whose lengths go through the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from laconic.codec import Codec, Payload
from laconic.codec.payload import side_by_side
from laconic.errors import CorruptPayload
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchanged, Phases, Task, measure_error, run_in_turn
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU, ROW_BYTES, whole_row
from laconic.kernels import ONES, Scale, Stream


@dataclass(slots=True)
class Codes:
    """Whole payloads.

    codecs    those of the phases
    rows      of the first phase, by the rank they are for: memory that begins with a payload, and its number of values
    longest   bytes of the longest payload that came, by phase
    """

    task: Task
    comm: Communicator
    codecs: Sequence[Codec]
    accounting: Accounting = field(default_factory=lambda: Accounting(n_exchanges=1))
    rows: dict[int, tuple[torch.Tensor, int]] = field(default_factory=dict)
    longest: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, comm: Communicator, codecs: Sequence[Codec]) -> "Codes":
        """Slots where that can be, and their capacities are known; otherwise whole."""
        whole = Codes(task, comm, codecs)
        ready = whole.fit_slots and all(phase in task.buffers.capacities for phase in range(len(codecs)))
        return Slots(task, comm, codecs, whole.accounting) if ready else whole

    @property
    def fit_slots(self) -> bool:
        """Whether the codecs and the wire can do it, and somebody settles the result."""
        device = self.task.v.device
        able = all(not codec.fixed_size and codec.has_slots(device) for codec in self.codecs)
        return self.task.late and able and not self.comm.is_gloo(device)

    def lengths(self, phase: int, sizes: Sequence[int]) -> list[int] | None:
        """Bytes of messages with so many values each; None where only those who send them know."""
        codec = self.codecs[phase]
        return [codec.max_bytes(n) for n in sizes] if codec.fixed_size else None

    def encode_part(self, first: int, last: int, stream: Stream, rank: int, place: torch.Tensor | None) -> torch.Tensor:
        """The message with values [first, last) of the task for a rank; the memory's part is updated in place."""
        task, n = self.task, last - first
        if rank not in self.rows:
            v, scale = task.part(first, last), task.scale.cut(first, last)
            memory = task.memory[first:last] if task.memory is not None and task.memory.numel() else task.memory
            row = self._encode(0, v, stream, place, memory, scale)
            self.rows[rank] = (row, n)
            if task.codec.quantizer.core.symbol_bits < 32:
                self.accounting.n_coded += n
                self.accounting.code_bytes += len(self._cut(0, row, None))
            if task.measure_error:
                sent = torch.empty(n, device=v.device)
                self.decode(0, row, sent)
                measure_error(v, sent, self.accounting)
        return self._cut(0, self.rows[rank][0], place)

    def encode(self, phase: int, v: torch.Tensor, stream: Stream, place: torch.Tensor | None) -> torch.Tensor:
        """The message with values of a later phase."""
        return self._cut(phase, self._encode(phase, v, stream, place), place)

    def _encode(
        self,
        phase: int,
        v: torch.Tensor,
        stream: Stream,
        place: torch.Tensor | None,
        memory: torch.Tensor | None = None,
        scale: Scale = ONES,
    ) -> torch.Tensor:
        """Memory that begins with the payload: `place` if given, and of use."""
        return self.codecs[phase].encode(v, stream, memory, out=place, scale=scale).data

    def _cut(self, phase: int, row: torch.Tensor, place: torch.Tensor | None) -> torch.Tensor:
        """What of it is sent, in `place` if given, and of use."""
        return row

    def note(self, phase: int, messages: Sequence[torch.Tensor]) -> None:
        """These have come, one of each rank."""
        lengths = [len(message) for message in messages]
        self.accounting.bytes_received += sum(lengths) - lengths[self.comm.rank]
        self.longest[phase] = max(lengths)

    def decode_sum(
        self, phase: int, codes: Sequence[torch.Tensor], out: torch.Tensor, weight: float, scale: Scale = ONES
    ) -> torch.Tensor:
        """out = weight * sum of the values in messages * scale."""
        return self.codecs[phase].decode_sum([received(code) for code in codes], out, weight=weight, scale=scale)

    def decode(
        self, phase: int, code: torch.Tensor, out: torch.Tensor, scale: Scale = ONES, *, add: bool = False
    ) -> None:
        """out = the values in a message * scale; or `add` the values to it."""
        if add:
            self.codecs[phase].decode_add(received(code), out)
        else:
            self.codecs[phase].decode(received(code), out=out, scale=scale)

    def result(self, value: torch.Tensor, again: "Callable[[Codes], Phases]") -> Exchanged:
        """The average, after the last phase; `again` does the exchange anew with other codes."""
        if self.fit_slots:
            longest = torch.tensor([self.longest[phase] for phase in range(len(self.codecs))], device=value.device)
            self.comm.largest(longest, phase=len(self.codecs) - 1)()
            self.learn(longest.tolist())
        return Exchanged(value, self.accounting)

    def learn(self, lengths: Sequence[int]) -> None:
        """Keep the capacities for the next exchange; `lengths` are the longest of each phase, over all ranks."""
        for phase, length in enumerate(lengths):
            self.task.buffers.learn(phase, length)


@dataclass(slots=True)
class Slots(Codes):
    """The first bytes of payloads.

    report  (phases + 1,) int64 where the values are: the longest payload of each phase, and how many were corrupt
    """

    report: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.report = torch.zeros(len(self.codecs) + 1, dtype=torch.int64, device=self.task.v.device)

    def capacity(self, phase: int) -> int:
        """Bytes of a message."""
        return self.task.buffers.capacities[phase]

    def lengths(self, phase: int, sizes: Sequence[int]) -> list[int] | None:
        return [self.capacity(phase)] * len(sizes)

    def _encode(
        self,
        phase: int,
        v: torch.Tensor,
        stream: Stream,
        place: torch.Tensor | None,
        memory: torch.Tensor | None = None,
        scale: Scale = ONES,
    ) -> torch.Tensor:
        n_bytes = max(self.capacity(phase), whole_row(self.codecs[phase].max_bytes(v.numel())))
        row = torch.empty(n_bytes, dtype=torch.uint8, device=v.device)
        self.codecs[phase].encode_slot(v, stream, memory, row, scale=scale)
        return row

    def _cut(self, phase: int, row: torch.Tensor, place: torch.Tensor | None) -> torch.Tensor:
        message = row[: self.capacity(phase)]
        return message if place is None else place.copy_(message)

    def decode_sum(
        self, phase: int, codes: Sequence[torch.Tensor], out: torch.Tensor, weight: float, scale: Scale = ONES
    ) -> torch.Tensor:
        codec, rows = self.codecs[phase], side_by_side(codes, ROW_BYTES)
        verdict = torch.zeros(1, dtype=torch.int32, device=out.device)
        codec.decode_slots(rows, out, weight, verdict, scale=scale)
        longest = codec.layout.slot_lengths(rows, out.numel()).max()
        self.report[phase] = torch.maximum(self.report[phase], longest)
        self.report[-1] += verdict[0]
        return out

    def decode(
        self, phase: int, code: torch.Tensor, out: torch.Tensor, scale: Scale = ONES, *, add: bool = False
    ) -> None:
        values = self.decode_sum(phase, [code], torch.empty_like(out) if add else out, 1.0, scale)
        if add:
            out.add_(values)

    def result(self, value: torch.Tensor, again: Callable[[Codes], Phases]) -> Exchanged:
        """The average, to be settled."""
        self.comm.largest(self.report, phase=len(self.codecs) - 1)()
        size, cuda = len(self.report), self.report.is_cuda
        found = self.task.buffers.empty("report", size, torch.int64, CPU, pinned=cuda)
        found.copy_(self.report, non_blocking=True)
        arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        if arrived is not None:
            arrived.record()
        return Exchanged(value, self.accounting, partial(self._settle, found, arrived, value, again))

    def _settle(
        self,
        found: torch.Tensor,
        arrived: torch.cuda.Event | None,
        value: torch.Tensor,
        again: Callable[[Codes], Phases],
    ) -> Exchanged:
        if arrived is not None:
            arrived.synchronize()
        *lengths, n_corrupt = found.tolist()
        fits = all(length <= self.capacity(phase) for phase, length in enumerate(lengths))
        self.learn(lengths)
        if not fits:
            return run_in_turn([again(self._whole())])[0]
        if n_corrupt:
            raise CorruptPayload(f"{n_corrupt} of the payloads of tensor {self.task.stream.tensor!r} are corrupt")
        return Exchanged(value, self.accounting)

    def _whole(self) -> Codes:
        """The same payloads, whole; the host waits for their lengths."""
        lengths = self.codecs[0].layout.slot_lengths
        whole = {rank: (row[: int(lengths(row[None], n))], n) for rank, (row, n) in self.rows.items()}
        return Codes(self.task, self.comm, self.codecs, self.accounting, whole)


def received(code: torch.Tensor) -> Payload:
    """A message as a payload. On a GPU its header is not read, for the host would wait for it.

    This rank fixed the message's length, and `laconic.compress` compares the ranks' codecs before the first exchange.
    """
    return Payload(code, trusted=code.is_cuda)
