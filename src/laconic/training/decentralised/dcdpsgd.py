"""DCD-PSGD: nodes send the quantised difference that a step makes."""

from typing import ClassVar

from laconic.codec import Codec, Payload
from laconic.training.decentralised.base import Decentralised
from laconic.training.decentralised.rows import Row
from laconic.training.decentralised.stability import noise_limit


class DCDPSGD(Decentralised):
    """Difference compression: with C = Q(x_i' − x_i), x_i ← x_i + C, and everyone who tracks i sets x̃_i ← x̃_i + C.

    So x̃_i = x_i to the last bit at all times, and a node's own model bears the noise. Stable for variance bounds
    ω < (1 + λ_n) / (1 − λ_n) only, λ_n the least eigenvalue of W (see `stability`): a codec that cannot promise this is
    refused.

    >>> import torch
    >>> from laconic import NUQSGD
    >>> from laconic.exchange.topology import Ring
    >>> net = torch.nn.Linear(64, 64)
    >>> optimizer = DCDPSGD(net, torch.optim.SGD(net.parameters(), lr=0.1), Ring(), NUQSGD(bits=4, bucket_size=512))
    >>> net(torch.ones(64)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.estimates[0][0].equal(optimizer.rows.gather()[0])
    True

    Algorithm 1 of Tang, Gan, Zhang, Zhang and Liu 2018, "Communication compression for decentralized training",
    NeurIPS.
    Differences from the paper: its condition on the noise is sufficient, ours is exact for mixing without gradients.
    """

    name: ClassVar[str] = "DCD-PSGD"

    def check(self) -> None:
        super().check()
        limit = noise_limit(self.mixing)
        if not self.omega < limit:
            raise ValueError(
                f"{self.name}: {self.codec.quantizer!r} may lose {self.omega:.3g} of ‖v‖², "
                f"{self.topology!r} of {self.mixing.size} nodes bears less than {limit:.3g}; "
                "use a smaller bucket_size, more bits, or ECDPSGD"
            )

    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """x_i' − x_i."""
        return x_next - x

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← x̃_j + C."""
        codec.decode_add(payload, estimate)

    def settle(self, x_next: Row, estimate: Row) -> Row:
        """x̃_i itself."""
        return estimate
