"""D-PSGD: nodes send their models as they are, in float32."""

from typing import ClassVar

from laconic.codec import Codec, Payload
from laconic.training.decentralised.base import Decentralised
from laconic.training.decentralised.rows import Row
from laconic.training.groups import PLAIN


class DPSGD(Decentralised):
    """Decentralised SGD without compression, in float32: x̃_j = x_j, so that x_i' = Σ_j W_ij x_j − γ ∇F_i(x_i).

    >>> import torch
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

    def check(self) -> None:
        if self.codec != PLAIN:
            raise ValueError(f"{self.name} sends float32, got {self.codec.quantizer!r}; use DCDPSGD or ECDPSGD")

    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """x_i'."""
        return x_next

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← x_j'."""
        codec.decode(payload, out=estimate)
