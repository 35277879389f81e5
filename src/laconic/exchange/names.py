"""Exchanges by name, and the choice among them."""

from laconic.codec import Codec
from laconic.exchange.all_gather import AllGather
from laconic.exchange.all_reduce import AllReduce
from laconic.exchange.base import Exchange
from laconic.exchange.by_size import BySize
from laconic.exchange.nothing import Nothing
from laconic.exchange.scatter_reduce import ScatterReduce
from laconic.quantizers import Identity

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
