"""A stream beside the caller's, so that a GPU can exchange gradients while it computes others."""

from contextlib import AbstractContextManager, nullcontext

import torch

from laconic.exchange.base import Exchanged, Phases


class Side:
    """A CUDA stream of the exchange's own; on the CPU it stands for nothing, and every method does nothing.

    No method makes the host wait. Tensors that pass from one stream to the other are recorded, so that their memory,
    should somebody let go of them early, is not used again before both streams are done with it.

    device  where the tensors are

    >>> Side(torch.device("cpu")).stream is None
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = _new_stream(device) if device.type == "cuda" else None

    def follow(self, *given: torch.Tensor | None) -> None:
        """What is queued here from now on waits for all that the caller has queued, and uses the tensors given."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            for tensor in given:
                if tensor is not None:
                    tensor.record_stream(self.stream)

    def join(self, *taken: torch.Tensor) -> None:
        """What the caller queues from now on waits for all that is queued here, and uses the tensors taken."""
        if self.stream is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self.stream)
            for tensor in taken:
                tensor.record_stream(current)

    def current(self) -> AbstractContextManager[object]:
        """Queue here what the block queues."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def carry(self, phases: Phases) -> Phases:
        """The same phases, each queued here by whichever thread runs it."""
        return phases if self.stream is None else self._carry(phases)

    def _carry(self, phases: Phases) -> Phases:
        while True:
            with self.current():
                try:
                    next(phases)
                except StopIteration as end:
                    result: Exchanged = end.value
                    return result
            yield


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    """Of high priority: what it queues is little, and other ranks wait for it."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
