"""scatter_reduce: each rank averages one chunk and sends the average to all."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task
from laconic.exchange.communicator import Communicator
from laconic.exchange.encoding import encode, received
from laconic.kernels.layout import n_buckets
from laconic.quantizers import QSGDInf

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

    second  codec of the averages; by default that of the values, or 8-bit QSGDInf where that one is biased
    """

    second: Codec | None = None

    name: ClassVar[str] = "scatter_reduce"

    def second_codec(self, codec: Codec) -> Codec:
        """The codec of the averages, given that of the values."""
        return _second(codec) if self.second is None else self.second

    def phases(self, task: Task, comm: Communicator) -> Phases:
        n, second = task.v.numel(), self.second_codec(task.codec)
        cuts = chunk_cuts(n, task.codec.quantizer.bucket_size, comm.size)
        sizes = [last - first for first, last in pairwise(cuts)]
        accounting = Accounting(n_exchanges=1, n_values=n)
        with accounting.timed("encode"):
            stream = replace(task.stream, rank=comm.rank)
            sending = [task.codec.max_bytes(m) for m in sizes] if task.codec.fixed_size else None
            expected = [sending[comm.rank]] * comm.size if sending else None
            outbox = comm.outbox(expected, task.v.device, phase=0, sending=sending, buffers=task.buffers)
            for r in comm.sending_order:
                at = stream.at(tensor=f"{stream.tensor}/{r}")
                code = encode(task, cuts[r], cuts[r + 1], at, accounting, outbox.room(r)).data
                accounting.bytes_sent += len(code) if r != comm.rank else 0
                outbox.send(r, code)
            inbox = outbox.close()
        yield
        with accounting.timed("wire"):
            codes = inbox.wait()
        accounting.bytes_received += sum(len(code) for code in codes) - len(codes[comm.rank])
        with accounting.timed("decode"):
            own = task.buffers.empty("average", sizes[comm.rank], torch.float32, task.v.device)
            task.codec.decode_sum([received(code) for code in codes], own, weight=1.0 / comm.size)
        with accounting.timed("encode"):
            expected = [second.max_bytes(m) for m in sizes] if second.fixed_size else None
            outbox = comm.shared_outbox(expected, task.v.device, phase=1, buffers=task.buffers)
            at = stream.at(tensor=f"{stream.tensor}/average")
            code = second.encode(own, at, out=outbox.room(comm.rank)).data
            accounting.bytes_sent += len(code) * (comm.size - 1)
            for r in comm.sending_order:
                outbox.send(r, code)
            inbox = outbox.close()
        yield
        average = task.target()
        for r in reversed(comm.sending_order):  # own first, then those that sent to this rank first
            with accounting.timed("wire"):
                code = inbox.receive(r)
            accounting.bytes_received += len(code) if r != comm.rank else 0
            with accounting.timed("decode"):
                second.decode(received(code), out=average[cuts[r] : cuts[r + 1]])
        with accounting.timed("wire"):
            inbox.sent()
        return Exchanged(average, accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        cuts = chunk_cuts(n, codec.quantizer.bucket_size, size)
        sizes = [last - first for first, last in pairwise(cuts)]
        second = self.second_codec(codec)
        return (size - 1) * codec.max_bytes(max(sizes)) + sum(second.max_bytes(m) for m in sizes[1:])

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω₁ / P + ω₂ (1 + ω₁ / P): the second quantisation sees the average and the first one's error."""
        first = codec.quantizer.variance_bound(n) / size
        return first + self.second_codec(codec).quantizer.variance_bound(n) * (1 + first)


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
