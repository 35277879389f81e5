"""One exchange for small tensors, another for large ones."""

from dataclasses import dataclass
from typing import ClassVar

from laconic.codec import Codec
from laconic.exchange.base import Exchange, Phases, Task
from laconic.exchange.communicator import Communicator

SMALL_BYTES = 2**16


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
