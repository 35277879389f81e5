"""Exchanges in flight at the same time, without threads: for GPUs, where starting work and waiting for it are apart.

Starting an exchange runs its first phase, then one phase of each that is under way, oldest first. So while the messages
of one tensor are on the wire, the next is quantised and the one before decoded; and every rank queues its messages in
the same order, on one channel. Over NCCL, and for a rank alone, no phase makes the host wait, if codes are of fixed
size.
"""

import torch

from laconic.exchange.base import Exchange, Task
from laconic.exchange.communicator import Communicator
from laconic.exchange.pipeline import Handle, Pipeline
from laconic.exchange.side import urgent_side


class Lockstep:
    """Carries exchanges through their phases whenever another one is started or waited for.

    After the first error every later exchange fails with it, as in a `Pipeline`.

    comm    the ranks
    device  where the tensors are; on a GPU all phases are queued on one stream beside the caller's

    >>> import laconic
    >>> from laconic.exchange import AllGather
    >>> lockstep = Lockstep(Communicator(), torch.device("cpu"))
    >>> task = Task(torch.tensor([3.0, 4.0]), laconic.codec("fp32"), laconic.Stream())
    >>> lockstep.start(AllGather(), task).wait().value
    tensor([3., 4.])
    """

    def __init__(self, comm: Communicator, device: torch.device) -> None:
        self.comm, self.side = comm.one_channel(), urgent_side(device)
        self._under_way: list[Handle] = []
        self._error: BaseException | None = None

    def start(self, exchange: Exchange, task: Task) -> Handle:
        """Begin to average the task's tensor; all ranks must start the same exchanges in the same order."""
        handle = Handle(exchange.phases(task, self.comm), self.side, self._finish)
        with self.side.fork(task.v, task.memory, task.out):
            self._advance([handle, *self._under_way])
        self._under_way = [h for h in (*self._under_way, handle) if not h.done()]
        return handle

    def close(self) -> None:
        """Finish what is under way."""
        while self._under_way:
            self._finish(self._under_way[0])

    def _finish(self, handle: Handle) -> None:
        """Go on, with all that is under way, until this one is done."""
        with self.side.current():
            while not handle.done():
                self._advance(self._under_way)
                self._under_way = [h for h in self._under_way if not h.done()]

    def _advance(self, handles: list[Handle]) -> None:
        for handle in handles:
            error = handle.advance(self._error)
            self._error = self._error or error


def pipeline_for(comm: Communicator, device: torch.device) -> Pipeline | Lockstep:
    """What carries exchanges of tensors on `device`: threads where the host waits for messages, otherwise none.

    >>> pipeline = pipeline_for(Communicator(), torch.device("cpu"))
    >>> type(pipeline).__name__
    'Pipeline'
    >>> pipeline.close()
    """
    return Pipeline(comm, device) if device.type == "cpu" or comm.is_gloo else Lockstep(comm, device)
