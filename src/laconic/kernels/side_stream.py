"""A second CUDA stream, whose work a GPU can overlap with that of the caller's stream."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


class SideStream:
    """A CUDA stream beside the caller's; on the CPU, where there are no streams, every method does nothing.

    No method makes the host wait. Tensors that pass between the streams are recorded (`Tensor.record_stream`), so that
    the allocator does not reuse their memory before both streams are done with it.

    device    where the tensors are
    priority  as of CUDA's streams: lower numbers go first

    >>> SideStream(torch.device("cpu")).stream is None
    True
    """

    def __init__(self, device: torch.device, priority: int = 0) -> None:
        self.stream = _new_stream(device, priority) if device.type == "cuda" else None

    def follow(self, *given: Tensor | None) -> None:
        """Make later work on this stream wait for all that the caller has queued; `given` are used here."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            for tensor in given:
                if tensor is not None:
                    tensor.record_stream(self.stream)

    def current(self) -> AbstractContextManager[object]:
        """A context whose work is queued on this stream."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def fork(self, *given: Tensor | None) -> AbstractContextManager[object]:
        """`follow`, then `current`: the context's work runs beside what the caller queues after it."""
        self.follow(*given)
        return self.current()

    def join(self, *taken: Tensor) -> None:
        """Make the caller's later work wait for all that is queued on this stream; `taken` are used there."""
        if self.stream is not None:
            current = torch.cuda.current_stream(self.stream.device)
            current.wait_stream(self.stream)
            for tensor in taken:
                tensor.record_stream(current)


def _new_stream(device: torch.device, priority: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
