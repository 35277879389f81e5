"""A stream beside the caller's, so that a GPU can do one thing while it does another."""

from contextlib import AbstractContextManager, nullcontext

import torch


class Side:
    """A CUDA stream of one's own; on the CPU, where all work is in one line, every method does nothing.

    No method makes the host wait. Tensors that pass from one stream to the other are recorded, so that their memory,
    should somebody let go of them early, is not used again before both streams are done with it.

    device    where the tensors are
    priority  as of CUDA's streams: lower numbers go first

    >>> Side(torch.device("cpu")).stream is None
    True
    """

    def __init__(self, device: torch.device, priority: int = 0) -> None:
        self.stream = _new_stream(device, priority) if device.type == "cuda" else None

    def follow(self, *given: torch.Tensor | None) -> None:
        """What is queued here from now on waits for all that the caller has queued, and uses the tensors given."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            for tensor in given:
                if tensor is not None:
                    tensor.record_stream(self.stream)

    def current(self) -> AbstractContextManager[object]:
        """Queue here what the block queues."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def fork(self, *given: torch.Tensor | None) -> AbstractContextManager[object]:
        """`follow`, and queue here what the block queues: beside what the caller queues after the block."""
        self.follow(*given)
        return self.current()

    def join(self, *taken: torch.Tensor) -> None:
        """What the caller queues from now on waits for all that is queued here, and uses the tensors taken."""
        if self.stream is not None:
            current = torch.cuda.current_stream(self.stream.device)
            current.wait_stream(self.stream)
            for tensor in taken:
                tensor.record_stream(current)


def _new_stream(device: torch.device, priority: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
