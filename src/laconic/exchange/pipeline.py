"""Exchanges in flight at the same time, each phase of all of them in order.

Phase i of every exchange runs on thread i, first come first served, and talks on channel i. So while one tensor is on
the wire the next is being quantised, and yet every rank sends on each channel in the same order: no two ranks can
disagree on which message is which, whatever their speed. A communicator with a single channel gets a single thread,
which takes one exchange after another through all its phases.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from laconic.exchange.base import Exchange, Exchanged, Phases, Task
from laconic.exchange.communicator import Communicator
from laconic.exchange.side import carry, urgent_side
from laconic.exchange.threads import yielding_threads
from laconic.kernels.side import Side

N_PHASES = 3
CPU = torch.device("cpu")


@dataclass(slots=True)
class Handle:
    """An exchange under way.

    side    where its work is queued, on a GPU
    finish  carries it to its end, where no thread does
    """

    phases: Phases | None
    side: Side
    finish: "Callable[[Handle], None] | None" = None
    _done: threading.Event = field(default_factory=threading.Event)
    _result: Exchanged | None = None
    _error: BaseException | None = None

    def done(self) -> bool:
        """Whether all phases have run, so that `wait` would return at once."""
        return self._done.is_set()

    def wait(self) -> Exchanged:
        """The result, once it is there; an error of the exchange is raised here.

        On a GPU "there" means: for whatever the caller queues from now on, on its current stream.
        """
        if self.finish is not None:
            self.finish(self)
        self._done.wait()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("the exchange ended without a result")
        self.side.join(self._result.value)
        return self._result

    def advance(self, earlier: BaseException | None) -> BaseException | None:
        """Run the next phase, or fail with an `earlier` error; returns the error it failed with."""
        try:
            if earlier is not None:
                raise earlier
            if self.phases is not None:
                next(self.phases)
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            self._end(None, error)
            return error
        return None

    def _end(self, result: Exchanged | None, error: BaseException | None) -> None:
        self._result, self._error, self.phases = result, error, None
        self._done.set()


class Pipeline:
    """Threads that carry exchanges through their phases.

    After the first error every later exchange fails with it: the ranks no longer agree on what comes next.

    comm    the ranks
    device  where the tensors are; on a GPU all phases are queued on one stream beside the caller's
    """

    def __init__(self, comm: Communicator, device: torch.device = CPU) -> None:
        self.comm, self.side = comm, urgent_side(device)
        n_threads = N_PHASES if comm.size == 1 or len(comm.channels) > 1 else 1
        self._queues: list[queue.SimpleQueue[Handle | None]] = [queue.SimpleQueue() for _ in range(n_threads)]
        self._error: BaseException | None = None
        self._n_threads = torch.get_num_threads()
        self._threads = [
            threading.Thread(target=self._run, args=(phase,), name=f"laconic-phase-{phase}", daemon=True)
            for phase in range(n_threads)
        ]
        with yielding_threads():
            for thread in self._threads:
                thread.start()

    def start(self, exchange: Exchange, task: Task) -> Handle:
        """Begin to average the task's tensor; all ranks must start the same exchanges in the same order."""
        handle = Handle(carry(exchange.phases(task, self.comm), self.side), self.side)
        self.side.follow(task.v, task.memory, task.out)
        self._queues[0].put(handle)
        return handle

    def close(self) -> None:
        """Finish what is under way and end the threads."""
        self._queues[0].put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, phase: int) -> None:
        torch.set_num_threads(self._n_threads)
        while True:
            handle = self._queues[phase].get()
            last = phase + 1 == len(self._queues)
            if handle is not None:
                self._advance(handle)
                while last and not handle.done():
                    self._advance(handle)
            if not last and (handle is None or not handle.done()):
                self._queues[phase + 1].put(handle)
            if handle is None:
                return

    def _advance(self, handle: Handle) -> None:
        error = handle.advance(self._error)
        if error is not None:
            self._error = self._error or error
