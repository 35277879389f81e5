"""The interface of an exchange: average a tensor over ranks."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.buffers import NEW, Buffers
from laconic.exchange.communicator import Communicator
from laconic.kernels import Stream
from laconic.quantizers.base import flat


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What every rank holds after an exchange, to the last bit the same, and what it cost this rank."""

    value: torch.Tensor
    accounting: Accounting


@dataclass(frozen=True, slots=True)
class Task:
    """One tensor to average.

    v       (n,), any floating type
    codec   how it goes over the wire
    stream  where its random numbers come from; `rank` is filled in
    memory  error memory of this rank, updated in place
    out     where the average goes: a contiguous row of float32, which may be `v` itself; new memory if None
    buffers where memory for messages comes from
    """

    v: torch.Tensor
    codec: Codec
    stream: Stream
    memory: torch.Tensor | None = None
    measure_error: bool = False
    out: torch.Tensor | None = None
    buffers: Buffers = NEW

    def target(self) -> torch.Tensor:
        """Where the average goes; call it once. Fresh memory costs more than the decoding that fills it."""
        if self.out is not None:
            return self.out
        return torch.empty(self.v.numel(), dtype=torch.float32, device=self.v.device)


Phases = Generator[None, None, Exchanged]
"""An exchange under way: each `next` runs one phase, and only the phases after the first wait for other ranks."""


class Exchange(ABC):
    """A way to average over ranks. Members are frozen; all state is in the task."""

    name: ClassVar[str]

    @abstractmethod
    def phases(self, task: Task, comm: Communicator) -> Phases:
        """The exchange, cut where it waits for other ranks; phase i uses channel i of `comm`."""

    def check(self, codec: Codec) -> None:  # noqa: B027 (most carry any codec)
        """Raise `ValueError` if this exchange cannot carry `codec`; the message names both."""

    def require(self, codec: Codec, v: torch.Tensor, out: torch.Tensor | None) -> None:
        """Raise `TypeError` or `ValueError` if `v` cannot be averaged with `codec` into `out`."""
        if not isinstance(codec, Codec):
            raise TypeError(f"codec must be a Codec such as Codec(NUQSGD(bits=4)), got {codec!r}")
        self.check(codec)
        n = flat(v).numel()
        if out is not None and (out.dtype != torch.float32 or out.shape != (n,) or not out.is_contiguous()):
            raise ValueError(
                f"out must be a contiguous row of {n} float32, one a value, got {out.dtype} of shape {tuple(out.shape)}"
            )

    @abstractmethod
    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        """Most bytes a rank receives for n values among `size` ranks; what "auto" minimises."""

    @abstractmethod
    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """Bound on E‖result − mean‖² over the mean of ‖v_i‖²; for unbiased codecs."""

    def average(
        self,
        v: torch.Tensor,
        codec: Codec,
        stream: Stream = Stream(),  # noqa: B008
        *,
        memory: torch.Tensor | None = None,
        comm: Communicator | None = None,
        measure_error: bool = False,
        out: torch.Tensor | None = None,
    ) -> Exchanged:
        """Average `v` over the ranks of `comm` (default: the default process group) and wait for it.

        The other arguments are those of `Task`.

        >>> import torch, laconic
        >>> from laconic.exchange import AllGather
        >>> AllGather().average(torch.tensor([3.0, 4.0]), laconic.codec("fp32")).value
        tensor([3., 4.])
        """
        self.require(codec, v, out)
        task = Task(flat(v), codec, stream, memory, measure_error, out)
        phases = self.phases(task, Communicator.over() if comm is None else comm)
        while True:
            try:
                next(phases)
            except StopIteration as end:
                result: Exchanged = end.value
                return result
