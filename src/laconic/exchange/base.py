"""The interface of an exchange, which averages a tensor over ranks; `collectives` has the members."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import NEW, Buffers
from laconic.kernels import ONES, Scale, Stream
from laconic.quantizers.base import flat


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The result of an exchange: the average, the same on every rank to the last bit, and what it cost this rank.

    settle  if the result is provisional (`codes.Slots`): waits until its validity is known, and returns a valid one
    """

    value: torch.Tensor
    accounting: Accounting
    settle: "Callable[[], Exchanged] | None" = None

    def settled(self) -> "Exchanged":
        """The valid result; waits if this one is provisional."""
        return self if self.settle is None else self.settle()


@dataclass(frozen=True, slots=True)
class Task:
    """One tensor to average.

    v              (n,), any floating type
    codec          how it goes over the wire
    stream         of its random numbers; `rank` is filled in
    memory         error memory of this rank, updated in place
    measure_error  whether to measure the quantisation error of this rank's message
    out            where the average goes: a contiguous row of float32, which may be `v` itself; new memory if None
    buffers        where memory for messages comes from
    late           whether the caller settles the result, so that codes of variable size may go in slots
    scale          `v` and `memory` are divided by it before they are encoded, in place, and averages multiplied by it
                   after they are decoded; the same on every rank. Without effect where nothing is quantised
    """

    v: torch.Tensor
    codec: Codec
    stream: Stream
    memory: torch.Tensor | None = None
    measure_error: bool = False
    out: torch.Tensor | None = None
    buffers: Buffers = NEW
    scale: Scale = ONES
    late: bool = False

    @property
    def n_values(self) -> int:
        """Values of the tensor."""
        return self.v.numel()

    def part(self, first: int, last: int) -> torch.Tensor:
        """Values [first, last) as one row."""
        return self.v.reshape(-1)[first:last]

    def target(self) -> torch.Tensor:
        """Where the average goes; call it once, since new memory costs more than the decoding that fills it."""
        v = self.v
        return torch.empty(v.numel(), dtype=torch.float32, device=v.device) if self.out is None else self.out


Phases = Generator[None, None, Exchanged]
"""A running exchange: each `next` runs one phase. The first phase never waits for other ranks; later ones may."""


class Exchange(ABC):
    """A method of averaging over ranks. Members are frozen; all state is in the task."""

    name: ClassVar[str]

    @abstractmethod
    def phases(self, task: Task, comm: Communicator) -> Phases:
        """The exchange as a generator, cut where it waits for other ranks; phase i uses channel i of `comm`."""

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
                f"out must be a contiguous row of {n} float32 values, got {out.dtype} of shape {tuple(out.shape)}"
            )

    def bytes_received(self, codec: Codec, n: int, size: int) -> int:
        """Most bytes a rank receives for n values among `size` ranks ("auto" minimises it): one code per other rank."""
        return (size - 1) * codec.max_bytes(n)

    def variance_bound(self, codec: Codec, n: int, size: int) -> float:
        """Bound on E‖result − mean‖² over the mean of ‖v_i‖², for unbiased codecs: ω / P if P errors are averaged."""
        return codec.quantizer.variance_bound(n) / size

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
        scale: Scale = ONES,
    ) -> Exchanged:
        """Average `v` over the ranks of `comm` (default: the default process group) and wait for it.

        The other arguments are those of `Task`.

        >>> import torch, laconic
        >>> from laconic.exchange import AllGather
        >>> AllGather().average(torch.tensor([3.0, 4.0]), laconic.codec("fp32")).value
        tensor([3., 4.])
        """
        self.require(codec, v, out)
        task = Task(flat(v), codec, stream, memory, measure_error, out, scale=scale)
        return run_in_turn([self.phases(task, Communicator.over() if comm is None else comm)])[0]


def run_in_turn(running: Sequence[Phases]) -> list[Exchanged]:
    """Run exchanges to completion, one phase of each in turn: while messages of one are under way, the next encodes."""
    found: dict[int, Exchanged] = {}
    while len(found) < len(running):
        for i, phases in enumerate(running):
            try:
                if i not in found:
                    next(phases)
            except StopIteration as end:
                found[i] = end.value.settled()
    return [found[i] for i in range(len(running))]


def measure_error(v: torch.Tensor, sent: torch.Tensor, accounting: Accounting) -> None:
    """Add ‖sent − v‖² and ‖v‖² to the accounting; on a GPU they stay there until they are read.

    Nothing is added if one of them is not finite: a step that a loss scaler throws away would spoil every later sum.
    """
    v = v.detach().double().reshape(-1)
    found = torch.stack([(sent.double() - v).square().sum(), v.square().sum()])
    error, energy = torch.where(torch.isfinite(found).all(), found, 0.0)
    accounting.error += error if v.is_cuda else float(error)
    accounting.energy += energy if v.is_cuda else float(energy)
