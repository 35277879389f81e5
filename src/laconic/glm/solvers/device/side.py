"""A second stream of a GPU, for work that may run beside the first."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Side:
    """Work beside the current stream; on a CPU, where kernels are interpreted, all work is in one line."""

    def __init__(self, device: torch.device) -> None:
        new = torch.cuda.Stream
        self.stream = new(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextmanager
    def fork(self) -> Iterator[None]:
        """What the body queues runs after everything queued so far, beside what is queued afterwards."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """What is queued afterwards runs after everything that was forked."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
