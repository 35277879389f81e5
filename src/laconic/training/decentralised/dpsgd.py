"""D-PSGD: nodes send their models as they are, in float32."""

from datetime import timedelta
from typing import ClassVar

import torch
import torch.distributed as dist

from laconic.codec import Codec, Payload
from laconic.exchange.neighbours import Neighbours
from laconic.exchange.topology import Topology
from laconic.training.decentralised.base import Decentralised, Order
from laconic.training.decentralised.rows import Row
from laconic.training.groups import Policy


class DPSGD(Decentralised):
    """Decentralised SGD without compression, in float32: x̃_j = x_j, so that x_i' = Σ_j W_ij x_j − γ ∇F_i(x_i).

    >>> from laconic.exchange.topology import Ring
    >>> net = torch.nn.Linear(4, 1)
    >>> optimizer = DPSGD(net, torch.optim.SGD(net.parameters(), lr=0.1), Ring())
    >>> net(torch.ones(4)).backward()
    >>> optimizer.step()
    >>> optimizer.consensus_distance()
    0.0

    Algorithm 1 of Lian, Zhang, Zhang, Hsieh, Zhang and Liu 2017, "Can decentralized algorithms outperform centralized
    algorithms?", NeurIPS.
    """

    name: ClassVar[str] = "D-PSGD"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        topology: Topology | str,
        *,
        order: Order = "combine_then_adapt",
        policy: Policy | None = None,
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        super().__init__(
            model, optimizer, topology, order=order, policy=policy, group=group, timeout=timeout, neighbours=neighbours
        )

    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """x_i'."""
        return x_next

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← x_j'."""
        codec.decode(payload, out=estimate)
