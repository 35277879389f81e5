"""A stream beside the caller's, so that a GPU can exchange gradients while it computes others."""

from contextlib import AbstractContextManager, nullcontext

import torch

from laconic.exchange.base import Exchanged, Phases


class Side:
    """A CUDA stream of the exchange's own; on the CPU it stands for nothing, and every method does nothing.

    No method makes the host wait. What an exchange reads and writes is safe as long as the caller goes through
    `follow` before it and `join` after it: memory freed after `join` is used again in the caller's order only.

    device  where the tensors are

    >>> Side(torch.device("cpu")).stream is None
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def follow(self) -> None:
        """What is queued here from now on waits for all that the caller has queued."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))

    def join(self) -> None:
        """What the caller queues from now on waits for all that is queued here."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

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
