"""A stream beside the caller's: what waits for what, shown without a GPU by streams that note what they are told."""

from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

from laconic.exchange import Accounting, Communicator, Exchanged, Lockstep, Pipeline, Task
from laconic.kernels import Part, Scale
from laconic.kernels.side_stream import SideStream

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@dataclass
class Told:
    """A stream; all of them write into one list."""

    device: torch.device
    priority: int = 0
    name: str = "side"
    log: list[str] = field(default_factory=list)

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


class Passed(torch.Tensor):
    """A tensor that notes which stream uses it."""

    def record_stream(self, stream):
        stream.log.append(f"used by {stream.name}")


@pytest.fixture
def told(monkeypatch):
    """What was told to the streams of a GPU that is not there."""
    log = []

    @contextmanager
    def queue_on(stream):
        log.append(f"begin {stream.name}")
        yield
        log.append(f"end {stream.name}")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: Told(device, priority, log=log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Told(device, name="caller", log=log))
    monkeypatch.setattr(torch.cuda, "stream", queue_on)
    return log


def enter(block):
    with block:
        pass


FOLLOW, HERE = "side waits for caller", ["begin side", "end side"]
LAWS = {
    "follow": (lambda side: side.follow(Passed(), None), [FOLLOW, "used by side"]),
    "current": (lambda side: enter(side.current()), HERE),
    "fork": (lambda side: enter(side.fork()), [FOLLOW, *HERE]),
    "fork with tensors": (lambda side: enter(side.fork(None, Passed())), [FOLLOW, "used by side", *HERE]),
    "join": (lambda side: side.join(), ["caller waits for side"]),
    "join with tensors": (lambda side: side.join(Passed()), ["caller waits for side", "used by caller"]),
}


@pytest.mark.parametrize("law", LAWS)
def test_who_waits_for_whom(told, law):
    call, expected = LAWS[law]
    call(SideStream(CUDA))
    assert told == expected


@pytest.mark.parametrize("law", [law for law in LAWS if "tensors" not in law])
def test_a_side_of_the_cpu_is_nothing(told, law):
    LAWS[law][0](SideStream(CPU))
    assert told == []


class ThreePhases:
    """An exchange that only yields."""

    def phases(self, task, comm):
        yield
        yield
        return Exchanged(task.v, Accounting())


@pytest.mark.parametrize("scheduler", [Pipeline, Lockstep])
def test_each_phase_of_an_exchange_is_queued_on_the_side(told, scheduler):
    running = scheduler(Communicator(), CUDA)
    scale = Scale((Part(0, 1, Passed(), 1.0, Passed()),))
    handle = running.start(ThreePhases(), Task(Passed(), None, None, scale=scale))
    running.close()
    handle.wait()
    phases, settling = 3 * HERE, HERE
    used = ["used by side"] * 3  # what is averaged, and both tensors of its scale
    assert told == [FOLLOW, *used, *phases, *settling, "caller waits for side", "used by caller"]


def test_an_exchange_goes_first(told):
    assert (SideStream(CUDA).stream.priority, Lockstep(Communicator(), CUDA).side_stream.stream.priority) == (0, -1)


@on_cuda
def test_priorities_on_a_gpu():
    assert (SideStream(CUDA).stream.priority, Lockstep(Communicator(), CUDA).side_stream.stream.priority) == (0, -1)


@on_cuda
def test_nothing_is_read_too_early():
    side, x = SideStream(CUDA), torch.zeros(2**20, device=CUDA)
    for i in range(1, 9):
        torch.cuda._sleep(10_000_000)
        x.fill_(i)
        with side.fork(x):
            torch.cuda._sleep(10_000_000)
            found = x * 2
        side.join(found)
        assert torch.equal(found, torch.full_like(x, 2 * i)), i


@on_cuda
def test_a_graph_holds_both_streams():
    side, x = SideStream(CUDA), torch.ones(2**20, device=CUDA)
    beside = torch.zeros_like(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with side.fork():
            torch.mul(x, 2, out=beside)
        side.join()
        torch.add(beside, 1, out=x)
    for expected in (3, 7, 15):
        graph.replay()
        assert torch.equal(x, torch.full_like(x, expected))
