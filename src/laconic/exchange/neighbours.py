"""The exchange of codes with the neighbours in a graph: one message per edge and direction."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from laconic.errors import CorruptPayload, ExchangeFailed
from laconic.exchange.accounting import Accounting
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU
from laconic.exchange.topology import Mixing, Topology

Edges = dict[int, Accounting]
"""By neighbour: bytes sent and received on the edge, and seconds spent waiting for it."""


@dataclass(frozen=True)
class Neighbours:
    """This rank's place in a graph of ranks.

    comm     all ranks; its first channel carries the messages
    mixing   which ranks are neighbours
    timeout  how long to wait for a neighbour; None for the process group's own timeout

    >>> from laconic.exchange import Ring
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
        """Close the channel."""
        self.comm.close()

    @property
    def rank(self) -> int:
        """This node."""
        return self.comm.rank

    @property
    def ranks(self) -> list[int]:
        """The neighbours of this node."""
        return self.mixing.neighbours(self.comm.rank)

    def swap(
        self, codes: Sequence[torch.Tensor], bounds: Sequence[int], *, fixed_size: bool
    ) -> tuple[dict[int, list[torch.Tensor]], Edges]:
        """Send `codes` (each uint8) to every neighbour; returns the codes received, by neighbour, and the accounting.

        bounds      bytes of each code: exact if `fixed_size`, otherwise upper bounds
        fixed_size  whether the lengths are known; if not, they are exchanged first

        1. unless `fixed_size`, swap lengths with each neighbour;
        2. put the codes into one message; send it to each neighbour, and receive one from each.
        """
        edges = {j: Accounting(n_exchanges=1) for j in self.ranks}
        if not self.ranks or not codes:
            return {j: [] for j in self.ranks}, edges
        lengths = {j: list(bounds) for j in self.ranks}
        if not fixed_size:
            own = torch.tensor([len(code) for code in codes], device=codes[0].device)
            lengths = self.announce(own, bounds, edges)
        found = self._swap(torch.cat(list(codes)), {j: sum(lengths[j]) for j in self.ranks}, edges)
        return {j: list(message.split_with_sizes(lengths[j])) for j, message in found.items()}, edges

    def announce(self, own: torch.Tensor, bounds: Sequence[int], edges: Edges) -> dict[int, list[int]]:
        """Swap the lengths of codes with the neighbours; raises `CorruptPayload` if one exceeds its bound."""
        found = self._swap(own.view(torch.uint8), dict.fromkeys(self.ranks, own.nbytes), edges)
        lengths = {j: message.cpu().view(torch.int64).tolist() for j, message in found.items()}
        for j, announced in lengths.items():
            if any(not 0 <= length <= bound for length, bound in zip(announced, bounds, strict=True)):
                raise CorruptPayload(
                    f"edge {self.edge(j)}: rank {j} announces codes of {announced} bytes, at most {bounds}"
                )
        return lengths

    def edge(self, j: int) -> str:
        """The name of the edge to neighbour j, the same at both ends.

        >>> Neighbours(Communicator(2, 4), Mixing.of([[1.0]])).edge(1)
        '1–2'
        """
        return f"{min(self.rank, j)}–{max(self.rank, j)}"

    def _swap(self, message: torch.Tensor, n_bytes: Mapping[int, int], edges: Edges) -> dict[int, torch.Tensor]:
        """Send `message` to every neighbour; returns the message of each neighbour j, which has n_bytes[j] bytes."""
        channel, device = self.comm.channel(0), message.device
        wire = channel.wire_device(device)
        message = message.to(wire)
        inbox = {j: torch.empty(n, dtype=torch.uint8, device=wire) for j, n in n_bytes.items()}
        works: dict[int, list[dist.Work]] = {}
        # Over Gloo one batch of operations per edge, so that an error can name the edge. Over NCCL a single batch, or
        # two neighbours could wait for each other.
        for batch in [[j] for j in inbox] if channel.is_gloo(device) else [list(inbox)]:
            operations = [
                dist.P2POp(way, tensor, group=channel.group, group_peer=j)
                for j in batch
                for way, tensor in ((dist.irecv, inbox[j]), (dist.isend, message))
            ]
            with self._naming(batch[0]):
                works |= dict.fromkeys(batch, dist.batch_isend_irecv(operations))
        for j, n in n_bytes.items():
            edges[j] += Accounting(bytes_sent=len(message), bytes_received=n)
            with edges[j].timed("wire"), self._naming(j):
                self._wait(works[j])
        return {j: received.to(device) for j, received in inbox.items()}

    def _wait(self, works: Sequence[dist.Work]) -> None:
        start = time.monotonic()
        for work in works:
            if self.timeout is None:
                work.wait()
            else:
                left = self.timeout - timedelta(seconds=time.monotonic() - start)
                work.wait(max(left, timedelta(milliseconds=1)))

    @contextmanager
    def _naming(self, j: int) -> Iterator[None]:
        """Raise torch's errors in this block as `ExchangeFailed`, which names the edge to neighbour j."""
        try:
            yield
        except RuntimeError as error:
            limit = "in time" if self.timeout is None else f"within {self.timeout.total_seconds():g} s"
            raise ExchangeFailed(
                f"exchange failed on rank {self.rank} of {self.comm.size}, on edge {self.edge(j)}: "
                f"rank {j} stopped, or did not answer {limit} ({str(error).splitlines()[0]})"
            ) from error
