"""Which exchange: by name, by the size of a tensor, or "auto"."""

from dataclasses import dataclass
from typing import ClassVar

from laconic.codec import Codec
from laconic.exchange.all_gather import AllGather
from laconic.exchange.all_reduce import AllReduce
from laconic.exchange.base import Exchange, Nothing, Phases, Task
from laconic.exchange.communicator import Communicator
from laconic.exchange.scatter_reduce import ScatterReduce
from laconic.quantizers import Identity

SMALL_BYTES = 2**16

EXCHANGES: dict[str, type[Exchange]] = {e.name: e for e in (AllReduce, AllGather, ScatterReduce, Nothing)}


@dataclass(frozen=True, slots=True)
class BySize(Exchange):
    """Each tensor by `small` if a rank then receives at most 64 KiB, otherwise by `large`.

    So few bytes take less time than the further rounds of messages by which `large` would save some of them.

    >>> import laconic
    >>> from laconic.exchange import AllGather, ScatterReduce
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
        return self.choose(task.codec, task.v.numel(), comm.size).phases(task, comm)

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        return self.choose(codec, n, size).bytes_received(codec, n, size)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        return self.choose(codec, n, size).variance_bound(codec, n, size)


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
    elif name == "auto":
        chosen = _automatic(codec, size, n)
    elif name in EXCHANGES:
        chosen = EXCHANGES[name]()
    else:
        raise ValueError(f"unknown exchange {name!r}; choose one of auto, {', '.join(EXCHANGES)}")
    chosen.check(codec)
    return chosen


def _automatic(codec: Codec, size: int, n: int) -> Exchange:
    if codec.quantizer == Identity("fp32"):
        return AllReduce()
    gather, scatter = AllGather(), ScatterReduce()
    fewer = scatter.bytes_received(codec, n, size) < 0.99 * gather.bytes_received(codec, n, size)
    return BySize(gather, scatter) if fewer else gather
