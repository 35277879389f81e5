"""Slots: codes of variable size in messages whose size every rank knows, for NCCL: phases need no lengths on the host.

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

from laconic.codec import Codec
from laconic.codec.payload import side_by_side
from laconic.errors import CorruptPayload
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchanged, Task, measure_error
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU, ROW_BYTES, Outbox, whole_row
from laconic.kernels import ONES, Scale, Stream


@dataclass(slots=True)
class Slots:
    """One exchange by slots on this rank.

    codecs    those of its phases
    report    (phases + 1,) int64 where the values are: the longest payload of each phase, and how many were corrupt
    payloads  of the first phase, by the rank they are for: memory that begins with one, and its number of values
    """

    task: Task
    comm: Communicator
    codecs: Sequence[Codec]
    accounting: Accounting
    report: torch.Tensor = field(init=False)
    payloads: dict[int, tuple[torch.Tensor, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.possible:
            self.report = torch.zeros(len(self.codecs) + 1, dtype=torch.int64, device=self.task.v.device)

    @property
    def possible(self) -> bool:
        """Whether the codecs and the wire can do it, and somebody settles the result."""
        device = self.task.v.device
        able = all(not codec.fixed_size and codec.has_slots(device) for codec in self.codecs)
        return self.task.late and able and not self.comm.is_gloo(device)

    @property
    def ready(self) -> bool:
        """Whether capacities are known as well."""
        return self.possible and all(self.capacity(phase) for phase in range(len(self.codecs)))

    def capacity(self, phase: int) -> int:
        """Bytes of a message; 0 where they are not known."""
        return self.task.buffers.capacities.get(phase, 0)

    def encode(
        self, phase: int, v: torch.Tensor, stream: Stream, memory: torch.Tensor | None = None, scale: Scale = ONES
    ) -> torch.Tensor:
        """The payload of values, in memory that may go on behind it."""
        n_bytes = max(self.capacity(phase), whole_row(self.codecs[phase].max_bytes(v.numel())))
        row = torch.empty(n_bytes, dtype=torch.uint8, device=v.device)
        self.codecs[phase].encode_slot(v, stream, memory, row, scale=scale)
        return row

    def encode_part(self, first: int, last: int, stream: Stream, rank: int) -> torch.Tensor:
        """Values [first, last) of the task, for a rank; the memory's part is updated in place."""
        task, n, v = self.task, last - first, self.task.part(first, last)
        memory = task.memory[first:last] if task.memory is not None and task.memory.numel() else task.memory
        row = self.encode(0, v, stream, memory, task.scale.cut(first, last))
        self.accounting.n_coded += n
        self.accounting.code_bytes += self.capacity(0)
        if task.measure_error:
            sent = torch.empty(n, device=v.device)
            self.codecs[0].decode_slots(row[None], sent, 1.0, self._verdict())
            measure_error(v, sent, self.accounting)
        self.payloads[rank] = (row, n)
        return row

    def send(self, outbox: Outbox, rank: int, row: torch.Tensor, phase: int) -> None:
        """The first bytes of a payload."""
        message, place = row[: self.capacity(phase)], outbox.buffer_for(rank)
        outbox.send(rank, message if place is None else place.copy_(message))
        self.accounting.bytes_sent += len(message) if rank != self.comm.rank else 0

    def decode(
        self, phase: int, codes: Sequence[torch.Tensor], out: torch.Tensor, weight: float, scale: Scale = ONES
    ) -> torch.Tensor:
        """out = weight * sum of the values in messages * scale; the lengths go to the report."""
        codec, rows, verdict = self.codecs[phase], side_by_side(codes, ROW_BYTES), self._verdict()
        codec.decode_slots(rows, out, weight, verdict, scale=scale)
        longest = codec.layout.slot_lengths(rows, out.numel()).max()
        self.report[phase] = torch.maximum(self.report[phase], longest)
        self.report[-1] += verdict[0]
        return out

    def _verdict(self) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int32, device=self.task.v.device)

    def result(self, value: torch.Tensor, again: Callable[[], Exchanged]) -> Exchanged:
        """The result, to be settled: `again` exchanges whole payloads."""
        self.comm.largest(self.report, phase=len(self.codecs) - 1)()
        size, cuda = len(self.report), self.report.is_cuda
        found = self.task.buffers.empty("report", size, torch.int64, CPU, pinned=cuda)
        found.copy_(self.report, non_blocking=True)
        arrived = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]
        if arrived is not None:
            arrived.record()
        done = Exchanged(value, self.accounting)
        return Exchanged(value, self.accounting, partial(self._settle, found, arrived, done, again))

    def _settle(
        self, found: torch.Tensor, arrived: torch.cuda.Event | None, done: Exchanged, again: Callable[[], Exchanged]
    ) -> Exchanged:
        if arrived is not None:
            arrived.synchronize()
        *lengths, n_corrupt = found.tolist()
        fits = all(length <= self.capacity(phase) for phase, length in enumerate(lengths))
        self.learn(lengths)
        if not fits:
            return again()
        if n_corrupt:
            raise CorruptPayload(f"{n_corrupt} of the payloads of tensor {self.task.stream.tensor!r} are corrupt")
        return done

    def learn(self, lengths: Sequence[int]) -> None:
        """Keep the capacities for the next exchange; `lengths` are the longest of each phase, over all ranks."""
        for phase, length in enumerate(lengths):
            self.task.buffers.learn(phase, length)

    def learn_whole(self, *lengths: int) -> None:
        """The same from what this rank saw of each phase, after an exchange of whole payloads."""
        if self.possible:
            self.report[: len(lengths)] = torch.tensor(lengths)
            self.comm.largest(self.report, phase=len(self.codecs) - 1)()
            self.learn(self.report.tolist()[: len(lengths)])

    def whole(self) -> dict[int, torch.Tensor]:
        """The payloads of the first phase, cut to their lengths, which the host waits for."""
        lengths = self.codecs[0].layout.slot_lengths
        return {rank: row[: int(lengths(row[None], n))] for rank, (row, n) in self.payloads.items()}
