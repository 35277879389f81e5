"""D-PSGD, DCD-PSGD and ECD-PSGD: what a node sends, and how estimates of it follow."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch

from laconic.codec import Codec, Payload
from laconic.exchange.topology import Topology
from laconic.options import check_int
from laconic.quantizers import Quantizer
from laconic.training.decentralised.base import Decentralised, Row
from laconic.training.decentralised.stability import held_at, noise_limit
from laconic.training.groups import PLAIN

Reference = Literal["estimate", "zero"]


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
    default_codec: ClassVar[str] = "fp32"

    def check(self) -> None:
        if self.codec != PLAIN:
            raise ValueError(f"{self.name} sends float32, got {self.codec.quantizer!r}; use DCDPSGD or ECDPSGD")

    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """x_i'."""
        return x_next

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← x_j'."""
        codec.decode(payload, out=estimate)


class DCDPSGD(Decentralised):
    """Difference compression: with C = Q(x_i' − x_i), x_i ← x_i + C, and everyone who tracks i sets x̃_i ← x̃_i + C.

    So x̃_i = x_i to the last bit at all times, and a node's own model bears the noise. Stable for variance bounds
    ω < (1 + λ_n) / (1 − λ_n) only, λ_n the least eigenvalue of W (see `stability`): a codec that cannot promise this is
    refused.

    >>> from laconic import NUQSGD
    >>> from laconic.exchange.topology import Ring
    >>> net = torch.nn.Linear(64, 64)
    >>> optimizer = DCDPSGD(net, torch.optim.SGD(net.parameters(), lr=0.1), Ring(), NUQSGD(bits=4, bucket_size=512))
    >>> net(torch.ones(64)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.estimates[0][0].equal(optimizer.gather()[0])
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
        """x_i' − x_i, with x_i as x̃_i has it: parameters in bfloat16 have lost digits of it."""
        return x_next - estimate

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← x̃_j + C."""
        codec.decode_add(payload, estimate)

    def settle(self, x_next: Row, estimate: Row) -> Row:
        """x̃_i itself."""
        return estimate


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock t of ECD-PSGD: 1, 2, 3, … as in the paper, unless it is held at `hold` or starts again after `restart`.

    At t, an estimate takes 2/t of what arrives and keeps 1 − 2/t of itself.

    hold     largest t; at 2 there is no extrapolation and an estimate is replaced by what arrives
    restart  after t has reached this, it is 2 again (1 is for an estimate without error only)

    >>> [Clock().at(step) for step in range(5)], [Clock(hold=2).at(step) for step in range(5)]
    ([1, 2, 3, 4, 5], [1, 2, 2, 2, 2])
    >>> [Clock(restart=3).at(step) for step in range(6)]
    [1, 2, 3, 2, 3, 2]
    """

    hold: int | None = None
    restart: int | None = None

    def __post_init__(self) -> None:
        for name in ("hold", "restart"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_int(name, value, 2, owner="clock"))
        if self.hold is not None and self.restart is not None:
            raise ValueError(f"clock: give hold or restart, not both, got {self.hold} and {self.restart}")

    def at(self, step: int) -> int:
        """t at a step, counted from 0."""
        if self.hold is not None:
            return min(step + 1, self.hold)
        if self.restart is not None and step > 0:
            return 2 + (step - 1) % (self.restart - 1)
        return step + 1


class ECDPSGD(Decentralised):
    """Extrapolation compression with any unbiased quantizer. At clock t, node i with x_i' = Σ_j W_ij x̃_j − γ ∇F_i(x_i)

        z_i = (1 − t/2) x_i + (t/2) x_i'
        sends Q(z_i), and everyone who tracks i sets x̃_i ← (1 − 2/t) x̃_i + (2/t) Q(z_i).

    Without quantisation x̃_i = x_i, so that this is D-PSGD.

    reference  what Q is applied relative to. "zero": Q(z) itself, as in the paper. "estimate": x̃_i + Q(z − x̃_i),
               which is unbiased too, and which all who track i can decode, since they hold the same x̃_i; its error is
               a share of the difference, not of the whole model
    clock      `Clock()` is the paper's, t = 1, 2, 3, …; `Clock(hold=t)` stops it. By default the paper's for "zero";
               for "estimate" held at `stability.held_at`, which depends on the codec's variance bound and the graph
    options    the other arguments of `Decentralised`, by name

    >>> from laconic import NUQSGD
    >>> from laconic.exchange.topology import Ring
    >>> net = torch.nn.Linear(64, 64)
    >>> optimizer = ECDPSGD(net, torch.optim.SGD(net.parameters(), lr=0.1), Ring(), NUQSGD(bits=4, bucket_size=512))
    >>> net(torch.ones(64)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.clock
    Clock(hold=2, restart=None)

    Algorithm 3 of NUQSGD (JMLR 22(114), 2021); Algorithm 2 of Tang, Gan, Zhang, Zhang and Liu 2018, "Communication
    compression for decentralized training", NeurIPS.
    Differences from the paper: by default Q measures from the estimate, and the clock is held. Both papers assume an
    error bounded by a constant; that of any quantizer with a norm grows with ‖z‖ ~ ‖x‖ + (t/2) ‖x' − x‖, and then the
    paper's own form drifts (docs/decentralised.md).
    """

    name: ClassVar[str] = "ECD-PSGD"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        topology: Topology | str,
        codec: Codec | Quantizer | str | None = None,
        *,
        reference: Reference = "estimate",
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        if reference not in get_args(Reference):
            raise ValueError(f"unknown reference {reference!r}; choose one of {', '.join(get_args(Reference))}")
        if clock is not None and not isinstance(clock, Clock):
            raise TypeError(f"clock must be a Clock such as Clock(hold=3), got {clock!r}")
        self.reference = reference
        super().__init__(model, optimizer, topology, codec, **options)
        self.clock = self._automatic_clock() if clock is None else clock

    @property
    def t(self) -> int:
        """The clock at this step."""
        return self.clock.at(self.n_steps)

    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """z_i, or z_i − x̃_i."""
        z = torch.lerp(x, x_next, self.t / 2)
        return z if self.reference == "zero" else z.sub_(estimate)

    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """x̃_j ← (1 − 2/t) x̃_j + (2/t) Q(z_j), or x̃_j + (2/t) Q(z_j − x̃_j)."""
        if self.reference == "zero":
            estimate.mul_(1 - 2 / self.t)
        codec.decode_add(payload, estimate, 2 / self.t)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "reference": self.reference, "clock": repr(self.clock)}

    def _automatic_clock(self) -> Clock:
        if self.reference == "zero":
            return Clock()
        t = held_at(self.mixing, self.omega)
        if t is None:
            raise ValueError(
                f"{self.name}: {self.codec.quantizer!r} may lose {self.omega:.3g} of ‖v‖², too much for "
                f"{self.topology!r} of {self.mixing.size} nodes at any clock; "
                "use a smaller bucket_size or more bits, or give clock="
            )
        return Clock(hold=t)
