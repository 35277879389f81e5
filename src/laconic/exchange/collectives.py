"""The exchanges, each specified by the numbered list in its docstring, and the automatic choice among them.

P is the number of ranks, ω a quantizer's variance bound.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import torch

from laconic.codec import Codec, codec_for
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task, measure_error
from laconic.exchange.codes import Codes
from laconic.exchange.communicator import Communicator
from laconic.kernels.layout import n_buckets
from laconic.quantizers import Identity, QSGDInf, Quantizer

FALLBACK_QUANTIZER = QSGDInf(bits=8)
"""The quantizer of averages where the codec's own is biased, and so must not quantise them."""
SMALL_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class AllGather(Exchange):
    """Algorithm 1 of NUQSGD (JMLR 22(114), 2021):

    1. encode own values; send the code to every rank;
    2. decode all P codes, own included, and average.

    A rank receives (P − 1) codes, so the cost grows with the number of ranks; there is one quantisation only.
    """

    name: ClassVar[str] = "all_gather"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        return self._phases(Codes.of(task, comm, [task.codec]))

    def _phases(self, codes: Codes) -> Phases:
        values = codes.send_values()
        yield
        return codes.result(codes.average(values, codes.task.target(), scale=codes.task.scale), self._phases)


@dataclass(frozen=True, slots=True)
class ScatterReduce(Exchange):
    """With v cut into P chunks of whole buckets:

    1. encode each chunk, send chunk r to rank r (all-to-all);
    2. decode and average the P codes of own chunk, quantise the average again, send it to every rank (all-gather);
    3. decode the P averaged chunks, own included.

    A rank receives about two codes' worth of bytes however many ranks there are. The second quantisation adds its own
    variance.

    second  codec of the averages, or its name, unbiased or `Identity`; by default that of the values, or 8-bit
            QSGDInf where that one is biased
    """

    second: Codec | Quantizer | str | None = None

    name: ClassVar[str] = "scatter_reduce"

    def __post_init__(self) -> None:
        if self.second is not None:
            object.__setattr__(self, "second", codec_for(self.second))

    def second_codec(self, codec: Codec) -> Codec:
        """The codec of the averages, given that of the values."""
        return _second(codec) if self.second is None else codec_for(self.second)

    def check(self, codec: Codec) -> None:
        if self.second is None:
            return
        quantizer = codec_for(self.second).quantizer
        if quantizer is not quantizer.core or not (quantizer.unbiased or isinstance(quantizer, Identity)):
            raise ValueError(
                f"scatter_reduce keeps no memory of averages and cannot send them in second={quantizer!r}, "
                "which is biased; use NUQSGD, QSGD, QSGDInf or Identity, or leave second out"
            )

    def phases(self, task: Task, comm: Communicator) -> Phases:
        return self._phases(Codes.of(task, comm, [task.codec, self.second_codec(task.codec)]))

    def _phases(self, codes: Codes) -> Phases:
        task, rank = codes.task, codes.comm.rank
        cuts = chunk_cuts(task.n_values, task.codec.quantizer.cut_size, codes.comm.size)
        chunks = codes.send_chunks(cuts)
        yield
        own = codes.average(chunks, _chunk(task, cuts[rank + 1] - cuts[rank]))
        averages = codes.send_average(own, cuts)
        yield
        return codes.result(codes.collect(averages, task.target(), cuts), self._phases)

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
        codes, width = Codes(task, comm, [task.codec]), task.n_values // comm.size
        chunks = codes.send_chunks([r * width for r in range(comm.size + 1)])
        yield
        out = _chunk(task, width) if task.out is None else task.out
        scale = task.scale.cut(comm.rank * width, (comm.rank + 1) * width)
        return Exchanged(codes.average(chunks, out, self.weight, scale), codes.accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return (size - 1) * codec.max_bytes(n // size)


@dataclass(frozen=True, slots=True)
class GatherChunks(Exchange):
    """Phase two of scatter_reduce: every rank gets the chunks of all ranks. With v as own chunk, one of P that are
    equally long:

    1. encode own chunk, send it to every rank (all-gather);
    2. decode the P chunks, own included.

    The value of the result, and `out` of the task, have P n values.

    add  whether the chunks are added to `out`
    """

    add: bool = False

    name: ClassVar[str] = "gather_chunks"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        codes, cuts = Codes(task, comm, [task.codec] * 2), [r * task.n_values for r in range(comm.size + 1)]
        chunks = codes.send_average(task.v, cuts)
        yield
        out = task.out
        if out is None:
            out = torch.empty(cuts[-1], dtype=torch.float32, device=task.v.device)
        return Exchanged(codes.collect(chunks, out, cuts, add=self.add), codes.accounting)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """ω, of each chunk."""
        return codec.quantizer.variance_bound(n)


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
        accounting, v = Accounting(n_exchanges=1, n_values=task.n_values), task.v.detach().reshape(-1)
        with accounting.timed("encode"):
            average = wire = task.target()
            dtype = getattr(task.codec.quantizer, "wire_dtype", torch.float32)
            if dtype != torch.float32:
                wire = task.buffers.empty("reduced", len(v), dtype, v.device)
            if task.measure_error:
                measure_error(v, v.to(wire.dtype).float(), accounting)
            if wire.data_ptr() != v.data_ptr():
                wire.copy_(v)
            wire.div_(comm.size)
            wait = comm.all_reduce(wire)
        yield
        with accounting.timed("wire"):
            wait()
        accounting.bytes_sent = accounting.bytes_received = self.bytes_received(task.codec, len(v), comm.size)
        with accounting.timed("decode"):
            if wire is not average:
                average.copy_(wire)
        return Exchanged(average, accounting)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        """2 (P − 1) / P of the values: what a ring all-reduce moves."""
        return 2 * (size - 1) * n * codec.quantizer.bits // 8 // size

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        return codec.quantizer.variance_bound(n)


@dataclass(frozen=True, slots=True)
class Nothing(Exchange):
    """Every rank keeps its own values. For benchmarks only: replicas drift apart."""

    name: ClassVar[str] = "nothing"

    def phases(self, task: Task, comm: Communicator) -> Phases:
        yield
        value = task.target().copy_(task.v.detach().reshape(-1))
        return Exchanged(value, Accounting(n_exchanges=1, n_values=value.numel()))

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return 0

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """No bound: nothing is averaged."""
        return float("inf")


@dataclass(frozen=True, slots=True)
class BySize(Exchange):
    """Each tensor by `small` if a rank then receives at most 64 KiB, otherwise by `large`.

    Sending so few bytes takes less time than the additional rounds of messages that `large` needs to save some of them.

    >>> import laconic
    >>> way = BySize(AllGather(), ScatterReduce())
    >>> [way.choose(laconic.codec("nuqsgd", bits=4), n, size=4).name for n in (10_000, 1_000_000)]
    ['all_gather', 'scatter_reduce']
    """

    small: Exchange
    large: Exchange

    name: ClassVar[str] = "by_size"

    def choose(self, codec: Codec, n: int, size: int) -> Exchange:
        """The exchange for n values among `size` ranks."""
        return self.small if self.small.bytes_received(codec, n, size) <= SMALL_BYTES else self.large

    def check(self, codec: Codec) -> None:
        self.small.check(codec)
        self.large.check(codec)

    def phases(self, task: Task, comm: Communicator) -> Phases:
        return self.choose(task.codec, task.n_values, comm.size).phases(task, comm)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return self.choose(codec, n, size).bytes_received(codec, n, size)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        return self.choose(codec, n, size).variance_bound(codec, n, size)


EXCHANGES: dict[str, type[Exchange]] = {e.name: e for e in (AllReduce, AllGather, ScatterReduce, Nothing)}


def by_name(name: str | Exchange, codec: Codec, size: int, n: int = 2**20) -> Exchange:
    """An exchange that carries `codec` among `size` ranks, by name; "auto" chooses for n values.

    Rule of "auto": float32 goes through all_reduce; otherwise the exchange by which a rank receives fewer bytes,
    all_gather if they tie, since it quantises once. For equal codes that is all_gather up to two ranks. Where it is
    scatter_reduce, tensors of which a rank would receive at most 64 KiB go through all_gather nevertheless.

    >>> import laconic
    >>> by_name("auto", laconic.codec("nuqsgd"), size=4)
    BySize(small=AllGather(), large=ScatterReduce(second=None))
    """
    if isinstance(name, Exchange):
        chosen = name
    elif name in EXCHANGES:
        chosen = EXCHANGES[name]()
    elif name != "auto":
        raise ValueError(f"unknown exchange {name!r}; choose one of auto, {', '.join(EXCHANGES)}")
    elif codec.quantizer == Identity("fp32"):
        chosen = AllReduce()
    else:
        gather, scatter = AllGather(), ScatterReduce()
        fewer = scatter.bytes_received(codec, n, size) < 0.99 * gather.bytes_received(codec, n, size)
        chosen = BySize(gather, scatter) if fewer else gather
    chosen.check(codec)
    return chosen


def chunk_cuts(n: int, bucket_size: int, size: int) -> list[int]:
    """Where to cut n values into `size` chunks of whole buckets, as equal as possible; some may be empty.

    >>> chunk_cuts(100, 16, 3), chunk_cuts(10, 16, 3)
    ([0, 32, 64, 100], [0, 0, 0, 10])
    """
    buckets = n_buckets(n, bucket_size)
    return [min(n, r * buckets // size * bucket_size) for r in range(size)] + [n]


def _chunk(task: Task, n: int) -> torch.Tensor:
    """Memory for this rank's chunk of the average."""
    return task.buffers.empty("average", n, torch.float32, task.v.device)


@lru_cache(maxsize=64)
def _second(codec: Codec) -> Codec:
    """The default codec of averages. Cached, since a codec caches the frames of its payloads."""
    core = codec.quantizer.core
    if core.unbiased or core.wire_id == 0:
        return codec if core is codec.quantizer else replace(codec, quantizer=core)
    return replace(codec, quantizer=replace(FALLBACK_QUANTIZER, bucket_size=core.bucket_size))
