"""scatter_reduce: each rank averages one chunk and sends the average to all. reduce_scatter: it keeps the average.
gather_chunks: each rank sends the chunk that it has."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.base import Exchange, Exchanged, Phases, Task
from laconic.exchange.codes import Codes
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import Inbox
from laconic.kernels import ONES, Scale
from laconic.kernels.layout import n_buckets
from laconic.quantizers import Identity, QSGDInf

RESERVE = QSGDInf(bits=8)
"""What averages go out in where the codec itself is biased and so must not quantise them."""


@dataclass(frozen=True, slots=True)
class ScatterReduce(Exchange):
    """With P ranks and v cut into P chunks of whole buckets:

    1. encode each chunk, send chunk r to rank r (all-to-all);
    2. decode and average the P codes of own chunk, quantise the average anew, send it to every rank (all-gather);
    3. decode the P averaged chunks, own included.

    A rank receives about two codes' worth of bytes however many ranks there are. The second quantisation adds its own
    variance; `second` says how it is done.

    second  codec of the averages, unbiased or `Identity`; by default that of the values, or 8-bit QSGDInf where that
            one is biased
    """

    second: Codec | None = None

    name: ClassVar[str] = "scatter_reduce"

    def second_codec(self, codec: Codec) -> Codec:
        """The codec of the averages, given that of the values."""
        return _second(codec) if self.second is None else self.second

    def check(self, codec: Codec) -> None:
        if self.second is None:
            return
        if not isinstance(self.second, Codec):
            raise TypeError(f"scatter_reduce: second must be a Codec such as Codec(NUQSGD()), got {self.second!r}")
        quantizer = self.second.quantizer
        if quantizer is not quantizer.core or not (quantizer.unbiased or isinstance(quantizer, Identity)):
            raise ValueError(
                f"scatter_reduce keeps no memory of averages and cannot send them in second={quantizer!r}, "
                "which is biased; use NUQSGD, QSGD, QSGDInf or Identity, or leave second out"
            )

    def phases(self, task: Task, comm: Communicator) -> Phases:
        return self._phases(Codes.of(task, comm, [task.codec, self.second_codec(task.codec)]))

    def _phases(self, codes: Codes) -> Phases:
        task, comm = codes.task, codes.comm
        under_way = _UnderWay(codes, chunk_cuts(task.v.numel(), task.codec.quantizer.cut_size, comm.size))
        chunks = under_way.send_chunks()
        yield
        averages = under_way.send_to_all(under_way.average(chunks))
        yield
        return codes.result(under_way.collect(averages, task.target()), self._phases)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        cuts = chunk_cuts(n, codec.quantizer.cut_size, size)
        sizes = [last - first for first, last in pairwise(cuts)]
        second = self.second_codec(codec)
        return (size - 1) * codec.max_bytes(max(sizes)) + sum(second.max_bytes(m) for m in sizes[1:])

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω₁ / P + ω₂ (1 + ω₁ / P): the second quantisation sees the average and the first one's error."""
        first = codec.quantizer.variance_bound(n) / size
        return first + self.second_codec(codec).quantizer.variance_bound(n) * (1 + first)


@dataclass(frozen=True, slots=True)
class ReduceScatter(Exchange):
    """Phase one of scatter_reduce: rank r gets the average of chunk r only. With v as P equally long chunks:

    1. encode each chunk, send chunk r to rank r (all-to-all);
    2. decode the P codes of own chunk and average them.

    There is one quantisation. The value of the result, and `out` of the task, have n / P values.

    weight  what the sum over ranks is multiplied by; by default 1 / P
    """

    weight: float | None = None

    name: ClassVar[str] = "reduce_scatter"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        width = task.n_values // comm.size
        under_way = _UnderWay(Codes(task, comm, [task.codec]), [r * width for r in range(comm.size + 1)])
        chunks = under_way.send_chunks()
        yield
        scale = task.scale.cut(comm.rank * width, (comm.rank + 1) * width)
        return Exchanged(under_way.average(chunks, task.out, self.weight, scale), under_way.accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n // size)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω / P, as under all_gather."""
        return codec.quantizer.variance_bound(n) / size


@dataclass(frozen=True, slots=True)
class GatherChunks(Exchange):
    """The end of scatter_reduce, without an average: every rank gets the chunks of all. With v as own chunk, one of P
    that are equally long:

    1. encode own chunk, send it to every rank (all-gather);
    2. decode the P chunks, own included.

    The value of the result, and `out` of the task, have P n values.

    add  whether the chunks are added to what `out` holds
    """

    add: bool = False

    name: ClassVar[str] = "gather_chunks"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        cuts = [r * task.n_values for r in range(comm.size + 1)]
        under_way = _UnderWay(Codes(task, comm, [task.codec] * 2), cuts)
        chunks = under_way.send_to_all(task.v)
        yield
        out = task.out
        if out is None:
            out = torch.empty(under_way.cuts[-1], dtype=torch.float32, device=task.v.device)
        return Exchanged(under_way.collect(chunks, out, add=self.add), under_way.accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω, of each chunk."""
        return codec.quantizer.variance_bound(n)


class _UnderWay:
    """One exchange on this rank, one method per step; `cuts` are those of `chunk_cuts`."""

    def __init__(self, codes: Codes, cuts: list[int]) -> None:
        self.codes, self.cuts, self.sizes = codes, cuts, [last - first for first, last in pairwise(cuts)]
        self.task, self.comm, self.accounting = codes.task, codes.comm, codes.accounting
        self.stream = replace(self.task.stream, rank=self.comm.rank)
        self.accounting.n_values = self.task.n_values

    def send_chunks(self) -> Inbox:
        """Step 1."""
        task, comm, codes = self.task, self.comm, self.codes
        with self.accounting.timed("encode"):
            sending = codes.lengths(0, self.sizes)
            expected = [sending[comm.rank]] * comm.size if sending else None
            outbox = comm.outbox(expected, task.v.device, phase=0, sending=sending, buffers=task.buffers)
            for r in comm.sending_order:
                at = self.stream.at(tensor=f"{self.stream.tensor}/{r}")
                code = codes.encode_part(self.cuts[r], self.cuts[r + 1], at, r, outbox.buffer_for(r))
                self.accounting.bytes_sent += len(code) if r != comm.rank else 0
                outbox.send(r, code)
            return outbox.close()

    def send_to_all(self, own: torch.Tensor) -> Inbox:
        """The rest of step 2, with own average."""
        task, comm, codes = self.task, self.comm, self.codes
        with self.accounting.timed("encode"):
            lengths = codes.lengths(1, self.sizes)
            outbox = comm.shared_outbox(lengths, task.v.device, phase=1, buffers=task.buffers)
            at = self.stream.at(tensor=f"{self.stream.tensor}/average")
            code = codes.encode(1, own, at, outbox.buffer_for(comm.rank))
            self.accounting.bytes_sent += len(code) * (comm.size - 1)
            for r in comm.sending_order:
                outbox.send(r, code)
            return outbox.close()

    def average(
        self, inbox: Inbox, out: torch.Tensor | None = None, weight: float | None = None, scale: Scale = ONES
    ) -> torch.Tensor:
        """The mean of the P codes of this rank's chunk, or `weight` times their sum, times m."""
        task, comm = self.task, self.comm
        with self.accounting.timed("wire"):
            messages = inbox.wait()
        self.codes.note(0, messages)
        with self.accounting.timed("decode"):
            if out is None:
                out = task.buffers.empty("average", self.sizes[comm.rank], torch.float32, task.v.device)
            return self.codes.decode_sum(0, messages, out, 1.0 / comm.size if weight is None else weight, scale)

    def collect(self, inbox: Inbox, out: torch.Tensor, *, add: bool = False) -> torch.Tensor:
        """Step 3."""
        messages = [out] * self.comm.size
        for r in reversed(self.comm.sending_order):  # own first, then those that sent to this rank first
            with self.accounting.timed("wire"):
                messages[r] = inbox.receive(r)
            with self.accounting.timed("decode"):
                first, last = self.cuts[r : r + 2]
                self.codes.decode(1, messages[r], out[first:last], self.task.scale.cut(first, last), add=add)
        with self.accounting.timed("wire"):
            inbox.sent()
        self.codes.note(1, messages)
        return out


@lru_cache(maxsize=64)
def _second(codec: Codec) -> Codec:
    """Kept, since a codec remembers the frames of its payloads."""
    core = codec.quantizer.core
    if core.unbiased or core.wire_id == 0:
        return codec if core is codec.quantizer else replace(codec, quantizer=core)
    return replace(codec, quantizer=replace(RESERVE, bucket_size=core.bucket_size))


def chunk_cuts(n: int, bucket_size: int, size: int) -> list[int]:
    """Where to cut n values into `size` chunks of whole buckets, as equal as can be; some may be empty.

    >>> chunk_cuts(100, 16, 3), chunk_cuts(10, 16, 3)
    ([0, 32, 64, 100], [0, 0, 0, 10])
    """
    buckets = n_buckets(n, bucket_size)
    return [min(n, r * buckets // size * bucket_size) for r in range(size)] + [n]
