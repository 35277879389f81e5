"""Schedulers: several exchanges in flight, so that one tensor is on the wire while the next is quantised.

`Pipeline` runs phases on threads, for the CPU, where the host waits for messages. `Lockstep` needs no threads, for
GPUs, where the host only queues work. `average_in_pieces` cuts one large tensor so that its pieces overlap.
"""

import queue
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Phases, Task
from laconic.exchange.channel import yielding_threads
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU
from laconic.kernels import Stream
from laconic.kernels.side_stream import SideStream

N_PHASES = 3


@dataclass(slots=True)
class Handle:
    """A running exchange, to be waited for: the phases that are left, and the scheduler that runs them."""

    phases: Phases
    scheduler: "Scheduler"
    _ended: Future[Exchanged] = field(default_factory=Future)
    _settled: Exchanged | None = None

    def done(self) -> bool:
        """Whether all phases have run, so that `wait` would return at once."""
        return self._ended.done()

    def run(self) -> None:
        """Run all phases to the end; on a GPU, queue them."""
        self.scheduler.finish(self)
        self._ended.exception()

    def wait(self) -> Exchanged:
        """Wait for the result; an error of the exchange is raised here.

        On a GPU it is ready for whatever the caller queues from now on, on its current stream.
        """
        self.run()
        with self.scheduler.side_stream.current():
            self._settled = self._settled or self._ended.result().settled()
        self.scheduler.side_stream.join(self._settled.value)
        return self._settled

    def advance(self, earlier: BaseException | None) -> BaseException | None:
        """Run the next phase, or fail with an `earlier` error; returns the error it failed with."""
        try:
            if earlier is not None:
                raise earlier
            next(self.phases)
        except StopIteration as end:
            self._ended.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            self._ended.set_exception(error)
            return error
        return None


class Scheduler(ABC):
    """Runs the phases of several exchanges, in an order that is the same on every rank.

    After the first error every later exchange fails with it: the ranks no longer agree on what comes next. On a GPU all
    phases are queued on a side stream of high priority: an exchange is little work, and other ranks wait for it.

    piece_values  values per piece in `average_in_pieces`: small pieces overlap better, large ones need fewer messages
    """

    piece_values: ClassVar[int]

    def __init__(self, comm: Communicator, device: torch.device) -> None:
        self.comm, self.side_stream = comm, SideStream(device, priority=-1)
        self._error: BaseException | None = None

    def start(self, exchange: Exchange, task: Task) -> Handle:
        """Begin to average the task's tensor; all ranks must start the same exchanges in the same order."""
        handle = Handle(exchange.phases(task, self.comm), self)
        self.side_stream.follow(task.v, task.memory, task.out, *task.scale.tensors())
        self._begin(handle)
        return handle

    @abstractmethod
    def close(self) -> None:
        """Finish all exchanges that are in flight, and end the scheduler's threads."""

    @abstractmethod
    def _begin(self, handle: Handle) -> None:
        """Run the first phase of an exchange, or hand it to a thread."""

    def finish(self, handle: Handle) -> None:  # noqa: B027 (threads need not be asked)
        """Run the remaining phases of an exchange, if no thread does."""

    def _advance(self, *handles: Handle) -> None:
        """Run one phase of each; the first error is kept, and fails all later phases."""
        with self.side_stream.current():
            for handle in handles:
                error = handle.advance(self._error)
                self._error = self._error or error


class Pipeline(Scheduler):
    """A scheduler with threads: phase i of every exchange runs on thread i, in the order of `start`, on channel i.

    So while one tensor is on the wire the next is being quantised, and yet every rank sends on each channel in the same
    order: no two ranks can disagree on which message is which, whatever their speed. A communicator with a single
    channel gets a single thread, which takes one exchange after another through all its phases.
    """

    piece_values: ClassVar[int] = 2**21

    def __init__(self, comm: Communicator, device: torch.device = CPU) -> None:
        super().__init__(comm, device)
        n_threads = N_PHASES if comm.size == 1 or len(comm.channels) > 1 else 1
        self._queues: list[queue.SimpleQueue[Handle | None]] = [queue.SimpleQueue() for _ in range(n_threads)]
        self._n_torch_threads = torch.get_num_threads()
        self._threads = [
            threading.Thread(target=self._run, args=(phase,), name=f"laconic-phase-{phase}", daemon=True)
            for phase in range(n_threads)
        ]
        with yielding_threads():
            for thread in self._threads:
                thread.start()

    def close(self) -> None:
        self._queues[0].put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self, handle: Handle) -> None:
        self._queues[0].put(handle)

    def _run(self, phase: int) -> None:
        torch.set_num_threads(self._n_torch_threads)
        last = phase + 1 == len(self._queues)
        while (handle := self._queues[phase].get()) is not None:
            self._advance(handle)
            while last and not handle.done():
                self._advance(handle)
            if not handle.done():
                self._queues[phase + 1].put(handle)
        if not last:
            self._queues[phase + 1].put(None)


class Lockstep(Scheduler):
    """A scheduler without threads: whenever an exchange is started or waited for, all in flight advance by one phase.

    Starting an exchange runs its first phase, then one phase of each that is in flight, oldest first. So while the
    messages of one tensor are on the wire, the next is quantised and the one before decoded; and every rank queues its
    messages in the same order, on one channel. Over NCCL, and for one rank, no phase makes the host wait, provided that
    codes have a fixed size.

    >>> import laconic
    >>> from laconic.exchange import AllGather
    >>> lockstep = Lockstep(Communicator(), CPU)
    >>> task = Task(torch.tensor([3.0, 4.0]), laconic.codec("fp32"), laconic.Stream())
    >>> lockstep.start(AllGather(), task).wait().value
    tensor([3., 4.])
    """

    piece_values: ClassVar[int] = 2**23

    def __init__(self, comm: Communicator, device: torch.device) -> None:
        super().__init__(comm.one_channel(), device)
        self._in_flight: list[Handle] = []

    def close(self) -> None:
        while self._in_flight:
            self.finish(self._in_flight[0])

    def _begin(self, handle: Handle) -> None:
        self._advance(handle, *self._in_flight)
        self._in_flight = [h for h in (*self._in_flight, handle) if not h.done()]

    def finish(self, handle: Handle) -> None:
        while not handle.done():
            self._advance(*self._in_flight)
            self._in_flight = [h for h in self._in_flight if not h.done()]


def pipeline_for(comm: Communicator, device: torch.device) -> Scheduler:
    """The scheduler for tensors on `device`: a `Pipeline` if the host waits for messages, otherwise a `Lockstep`."""
    return Pipeline(comm, device) if device.type == "cpu" or comm.is_gloo(device) else Lockstep(comm, device)


def average_in_pieces(
    pipeline: Scheduler,
    exchange: Exchange,
    v: torch.Tensor,
    codec: Codec,
    stream: Stream = Stream(),  # noqa: B008
    memory: torch.Tensor | None = None,
    *,
    piece_values: int | None = None,
    measure_error: bool = False,
    out: torch.Tensor | None = None,
) -> Exchanged:
    """Average `v` (n,) over the ranks of the pipeline, about `piece_values` (by default its own) at a time, and wait.

    `memory`, `measure_error` and `out` are those of `Task`. The result has the properties of the exchange's own; its
    bits depend on `piece_values`, which must be the same on all ranks. The seconds of its accounting are sums over
    pieces, and exceed the time it took, since pieces overlap.

    >>> import laconic
    >>> from laconic.exchange import AllGather
    >>> pipeline = Pipeline(Communicator())
    >>> v = torch.arange(10.0)
    >>> average_in_pieces(pipeline, AllGather(), v, laconic.codec("fp32"), piece_values=4).value.equal(v)
    True
    >>> pipeline.close()
    """
    exchange.require(codec, v, out)
    piece_values = pipeline.piece_values if piece_values is None else piece_values
    if piece_values < 1:
        raise ValueError(f"piece_values must be at least 1, got {piece_values}")
    v = v.reshape(-1)
    average = torch.empty(v.numel(), dtype=torch.float32, device=v.device) if out is None else out
    multiple = codec.quantizer.cut_size * pipeline.comm.size  # a bucket per rank, so that none has more to sum
    width, handles = max(1, piece_values // multiple) * multiple, []
    for first in range(0, v.numel(), width):
        piece = slice(first, first + width)
        part = memory[piece] if memory is not None and memory.numel() else memory
        at = stream.at(tensor=f"{stream.tensor}+{first}")
        task = Task(v[piece], codec, at, part, measure_error, average[piece])
        handles.append(pipeline.start(exchange, task))
    accounting = Accounting()
    for handle in handles:
        accounting += handle.wait().accounting
    accounting.n_exchanges = 1
    return Exchanged(average, accounting)
