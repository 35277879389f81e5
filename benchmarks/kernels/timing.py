"""How a time is taken on a GPU: replays of CUDA graphs between events, baseline and contender in turn."""

from collections.abc import Callable

import torch

from laconic.bench.protocol import Comparison

Call = Callable[[], object]


class Timed:
    """A call as a CUDA graph of its own, and the seconds of one replay."""

    def __init__(self, call: Call) -> None:
        call()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            call()

    def begin(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Replay once between two events, which are to be read after a synchronisation."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        self._graph.replay()
        last.record()
        return first, last


def compare(contender: Timed, baseline: Timed, repeats: int, warmup: int = 2) -> Comparison:
    """Seconds of both, and the ratio of baseline to contender, round by round."""
    for _ in range(warmup):
        baseline.begin()
        contender.begin()
    rounds = [(baseline.begin(), contender.begin()) for _ in range(repeats)]
    torch.cuda.synchronize()
    return Comparison.of([(_seconds(*theirs), _seconds(*ours)) for theirs, ours in rounds])


def _seconds(first: torch.cuda.Event, last: torch.cuda.Event) -> float:
    return 1e-3 * float(first.elapsed_time(last))
