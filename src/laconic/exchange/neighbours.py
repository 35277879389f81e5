"""The exchange of codes with the neighbours in a graph: one message per edge and direction."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from laconic.errors import CorruptPayload, ExchangeFailed
from laconic.exchange.accounting import Accounting
from laconic.exchange.channel import CPU
from laconic.exchange.communicator import Communicator
from laconic.exchange.mixing import Mixing
from laconic.exchange.topology import Topology

Works = list[dist.Work]


@dataclass(frozen=True)
class Neighbours:
    """This rank's place in a graph of ranks.

    comm     all ranks; its first channel carries the messages
    mixing   which ranks are neighbours
    timeout  how long a neighbour is waited for; None for the process group's own

    >>> from laconic.exchange.topology import Ring
    >>> Neighbours.open(Ring()).ranks
    []
    """

    comm: Communicator
    mixing: Mixing
    timeout: timedelta | None = None

    @classmethod
    def open(
        cls,
        topology: Topology,
        group: dist.ProcessGroup | None = None,
        device: torch.device = CPU,
        *,
        timeout: timedelta | None = None,
    ) -> "Neighbours":
        """A place in `topology` over the ranks of `group`, for codes on `device`; every rank of it must call this."""
        mixing = topology.mixing(Communicator.over(group).size)
        return cls(Communicator.open(group, device, n_channels=1, timeout=timeout), mixing, timeout)

    def close(self) -> None:
        """Give back the channel."""
        self.comm.close()

    @property
    def rank(self) -> int:
        """This node."""
        return self.comm.rank

    @property
    def ranks(self) -> list[int]:
        """The neighbours of this node."""
        return self.mixing.neighbours(self.comm.rank)

    def start(self, codes: Sequence[torch.Tensor], bounds: Sequence[int], *, fixed_size: bool) -> "Swap":
        """Send `codes` (each uint8) to every neighbour, and receive as many from each; returns while they travel.

        bounds      bytes of each code: exactly so many if `fixed_size`, otherwise at most
        fixed_size  whether the lengths are known; if not, they are exchanged first

        1. if need be, swap lengths with each neighbour and wait for them;
        2. put the codes into one message; send it to each neighbour, and make ready to receive one from each.
        """
        swap = Swap(self, codes[0].device if codes else CPU)
        if not self.ranks or not codes:
            return swap
        lengths = {j: list(bounds) for j in self.ranks}
        if not fixed_size:
            lengths = self.announce([len(code) for code in codes], bounds, swap)
        swap.begin(torch.cat(list(codes)), lengths)
        return swap

    def announce(self, own: list[int], bounds: Sequence[int], swap: "Swap") -> dict[int, list[int]]:
        """Swap the lengths of codes with the neighbours; raises `CorruptPayload` if one exceeds its bound."""
        first = Swap(self, swap.device)
        size = 8 * len(own)
        first.begin(torch.tensor(own).view(torch.uint8).to(swap.device), {j: [size] for j in self.ranks})
        found = {j: first.receive(j)[0].cpu().view(torch.int64).tolist() for j in self.ranks}
        first.sent()
        for j, lengths in found.items():
            swap.edges[j] += first.edges[j]
            if any(not 0 <= length <= bound for length, bound in zip(lengths, bounds, strict=True)):
                raise CorruptPayload(
                    f"edge {self.edge(j)}: rank {j} announces codes of {lengths} bytes, at most {bounds}"
                )
        return found

    def edge(self, j: int) -> str:
        """The name of the edge to neighbour j, the same at both ends.

        >>> Neighbours(Communicator(2, 4), Mixing.of([[1.0]])).edge(1)
        '1–2'
        """
        return f"{min(self.rank, j)}–{max(self.rank, j)}"

    def failure(self, j: int, error: RuntimeError) -> ExchangeFailed:
        """The error if neighbour j does not answer."""
        limit = "in time" if self.timeout is None else f"within {self.timeout.total_seconds():g} s"
        reason = str(error).splitlines()[0]
        return ExchangeFailed(
            f"exchange failed on rank {self.rank} of {self.comm.size}, on edge {self.edge(j)}: "
            f"rank {j} stopped, or did not answer {limit} ({reason})"
        )


@dataclass(slots=True)
class Swap:
    """Messages under way on all edges of one node.

    edges  by neighbour: bytes sent and received on the edge, and seconds waited for it
    """

    place: Neighbours
    device: torch.device
    edges: dict[int, Accounting] = field(default_factory=dict)
    _inbox: dict[int, torch.Tensor] = field(default_factory=dict)
    _lengths: dict[int, list[int]] = field(default_factory=dict)
    _sends: dict[int, Works] = field(default_factory=dict)
    _receives: dict[int, Works] = field(default_factory=dict)
    _message: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))

    def __post_init__(self) -> None:
        self.edges = {j: Accounting(n_exchanges=1) for j in self.place.ranks}

    def begin(self, message: torch.Tensor, lengths: dict[int, list[int]]) -> None:
        """Send `message` to all, and receive `lengths[j]` codes from each j."""
        channel = self.place.comm.channel(0)
        wire = channel.wire_device(self.device)
        self._message, self._lengths = message.to(wire), lengths
        self._inbox = {j: torch.empty(sum(lengths[j]), dtype=torch.uint8, device=wire) for j in lengths}
        if channel.is_gloo(self.device):  # an operation each, so that whatever fails can be named
            for j in lengths:
                works = self._post([j], channel.group)
                self._receives[j], self._sends[j] = works[:1], works[1:]
        else:  # one group of operations, or two neighbours could wait for each other
            works = self._post(list(lengths), channel.group)
            self._receives = dict.fromkeys(lengths, works)
        for j in lengths:
            self.edges[j].bytes_sent += len(message)
            self.edges[j].bytes_received += sum(lengths[j])

    def receive(self, j: int) -> list[torch.Tensor]:
        """The codes of neighbour j, once they are here; `ExchangeFailed` names the edge if they do not come."""
        with self.edges[j].timed("wire"):
            self._wait(j, self._receives[j])
        return list(self._inbox[j].to(self.device).split_with_sizes(self._lengths[j]))

    def sent(self) -> None:
        """Wait until own messages have left."""
        for j, works in self._sends.items():
            with self.edges[j].timed("wire"):
                self._wait(j, works)

    def _post(self, to: Sequence[int], group: dist.ProcessGroup) -> Works:
        operations = []
        for j in to:
            operations.append(dist.P2POp(dist.irecv, self._inbox[j], group=group, group_peer=j))
            operations.append(dist.P2POp(dist.isend, self._message, group=group, group_peer=j))
        try:
            return list(dist.batch_isend_irecv(operations))
        except RuntimeError as error:
            raise self.place.failure(to[0], error) from error

    def _wait(self, j: int, works: Works) -> None:
        limit = self.place.timeout
        start = time.monotonic()
        for work in works:
            try:
                if limit is None:
                    work.wait()
                else:
                    work.wait(max(limit - timedelta(seconds=time.monotonic() - start), timedelta(milliseconds=1)))
            except RuntimeError as error:
                raise self.place.failure(j, error) from error
