"""How the ranks' Gram matrices and margins become sums: three ways, of which the first says nothing."""

from dataclasses import dataclass
from typing import Protocol

import torch

from laconic.glm.solvers.wire import Wire
from laconic.kernels.formats import Format, format_named


class Talk(Protocol):
    """What a block says, and when."""

    def after_gram(self, G: torch.Tensor) -> None:
        """The block's Gram matrix (k, k) is there, well before it is needed."""

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        """Margins in parts (n_parts, C, k), this rank's, to the same of all ranks; G holds sums from now on."""


@dataclass(frozen=True, slots=True)
class Alone:
    """One process: nothing to say."""

    def after_gram(self, G: torch.Tensor) -> None:
        pass

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        return parts


@dataclass(frozen=True, slots=True)
class Together:
    """One AllReduce a block, for both: Gloo, where the host must wait for every message anyway.

    later   where G holds products of rows of different batches
    margin  precision of the margins
    """

    wire: Wire
    later: torch.Tensor
    margin: Format

    def after_gram(self, G: torch.Tensor) -> None:
        pass

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        v, triangle = self.wire.sum(self.margin.round(parts.sum(0)), G.view(-1)[self.later], iteration)
        G.view(-1)[self.later] = triangle
        return v[None]


@dataclass(frozen=True, slots=True)
class Ahead:
    """Two AllReduces a block, the large one ahead of time, while the block before is worked on: NCCL."""

    wire: Wire
    later: torch.Tensor
    margin: Format

    def after_gram(self, G: torch.Tensor) -> None:
        G.view(-1)[self.later] = self.wire.all_reduce(G.view(-1)[self.later], self._dtype)

    def before_recurrence(self, parts: torch.Tensor, G: torch.Tensor, iteration: int) -> torch.Tensor:
        return self.wire.all_reduce(self.margin.round(parts.sum(0)), self._dtype)[None]

    @property
    def _dtype(self) -> torch.dtype:
        return format_named(str(self.wire.format)).storage


def talk(wire: Wire, later: torch.Tensor, margin: Format) -> Talk:
    """The way for these ranks."""
    if wire.comm.size == 1:
        return Alone()
    return (Together if wire.comm.is_gloo else Ahead)(wire, later, margin)
