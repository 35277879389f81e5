"""CA-SGD, block after block, without the host."""

from dataclasses import dataclass

import torch

from laconic.exchange import Accounting
from laconic.glm.problem import Problem
from laconic.glm.solvers.device.lane import Lane
from laconic.glm.solvers.device.room import Room
from laconic.glm.solvers.device.source import Found, source
from laconic.glm.solvers.device.steps import Steps
from laconic.glm.solvers.device.talk import Talk, talk
from laconic.glm.solvers.segment import Segment
from laconic.glm.solvers.settings import Settings
from laconic.glm.solvers.state import State
from laconic.glm.solvers.wire import Wire
from laconic.kernels.gpu.glm import gram, margins, recurrence, room_for, update
from laconic.kernels.side_stream import SideStream

RUNS = (32, 8, 1)
"""Blocks of a graph; a segment is made up of these."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A captured run, and what it says each time."""

    graph: torch.cuda.CUDAGraph
    accounting: Accounting
    messages: int


def fitting_s(problem: Problem, settings: Settings, wire: Wire) -> int:
    """Iterations of a block that one multiprocessor can hold: s, or in one process the most that fit; 0 for none."""
    size = settings.sampling.batch_size
    choices = range(settings.s, 0, -1) if wire.comm.size == 1 else [settings.s]
    return next((s for s in choices if room_for(s * size, size, problem.n_outputs)), 0)


class Blocks:
    """Steps through segments of an epoch, s iterations a block:

    1. gather and Gram matrix of block i + 1 on a second stream, and its AllReduce, while
    2. the recurrence of block i runs as one kernel, and
    3. the new weights and the margins of block i + 1 as another; the margins' AllReduce.

    On CUDA a run of blocks is one graph, captured once; only a segment's first margins and last rows are launched one
    by one. Bound to one state.
    """

    name = "fused blocks"

    def __init__(self, problem: Problem, settings: Settings, state: State, wire: Wire) -> None:
        self.problem, self.settings, self.state, self.wire = problem, settings, state, wire
        self.s, self.size = fitting_s(problem, settings, wire), settings.sampling.batch_size
        self.k, device = self.s * self.size, problem.columns.device
        self.base = torch.zeros((), dtype=torch.int64, device=device)
        self.side, self.rooms = SideStream(device), dict[int, Room]()
        self._room_for(self.k)
        self.source = source(problem, self.k, RUNS)
        self.lane: Lane | None = None
        self.steps = Steps(0, self.s, device)
        self.losses = torch.empty(0, device=device)
        self.graphs: dict[tuple[int, int], Replay] = {}
        self.warm = False
        self.captures = device.type == "cuda" and not wire.comm.is_gloo

    @staticmethod
    def suits(problem: Problem, settings: Settings, wire: Wire) -> bool:
        """Whether the kernels know this fit."""
        p = settings.precision
        return (
            settings.momentum == 0
            and settings.average is None
            and (isinstance(p.gram_wire, str) or wire.comm.size == 1)
            and p.gram_operand in ("fp32", "tf32", "bf16", "fp16")
            and p.gram_accumulate == "fp32"
            and p.update in ("fp32", "bf16")
            and fitting_s(problem, settings, wire) > 0
        )

    def advance(self, segment: Segment) -> float:
        """Step through a segment, changing the state's weights; returns Σ w φ."""
        lane = self._load(segment)
        n_blocks, rest = divmod(len(segment.rows), self.k)
        self.base.zero_()
        done = 0
        while done < n_blocks:
            found = self.source.enter(lane, done, n_blocks)
            if done == 0:
                self._margins(found, self.rooms[self.k])
            done += self._some(lane, found, done, n_blocks)
        if rest:
            found, room = self.source.enter(lane, done, n_blocks), self._room_for(rest)
            self._margins(found, room)
            self._run(lane, found, room, 1, last=True)
        return float(self.losses[: n_blocks + (rest > 0)].sum(dtype=torch.float64))

    def _load(self, segment: Segment) -> Lane:
        if self.lane is None or self.lane.capacity < len(segment.rows):
            rows, n_batches = len(segment.rows), segment.n_batches
            self.lane = Lane(self.problem, rows, n_batches, self.source.spare, averages=False)
            self.losses = torch.zeros(len(segment.rows) // self.k + 1, device=self.base.device)
            self.steps = Steps(segment.n_batches, self.s, self.base.device)
            self.graphs.clear()
        self.lane.load(segment)
        self.steps.load(segment.rates, segment.scales(self.settings.gradient), self.settings.penalty.l2)
        return self.lane

    def _some(self, lane: Lane, found: Found, done: int, n_blocks: int) -> int:
        """The next run of blocks; returns how many."""
        if not self.captures or not self.warm:
            self._run(lane, found, self.rooms[self.k], 1)  # compiles the kernels, which a capture cannot
            self.warm = True
            return 1
        buffer, here = self.source.place(done)
        n = next(run for run in RUNS if run <= min(n_blocks - done, here))
        if (n, buffer) not in self.graphs:
            self.graphs[n, buffer] = self._capture(lane, found, n)
        replay = self.graphs[n, buffer]
        replay.graph.replay()
        self.wire.accounting += replay.accounting
        self.wire.messages += replay.messages
        return n

    def _capture(self, lane: Lane, found: Found, n: int) -> Replay:
        kept, self.wire.accounting, messages = self.wire.accounting, Accounting(), self.wire.messages
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._run(lane, found, self.rooms[self.k], n)
        said = Replay(graph, self.wire.accounting, self.wire.messages - messages)
        self.wire.accounting, self.wire.messages = kept, messages
        return said

    def _run(self, lane: Lane, found: Found, room: Room, n: int, *, last: bool = False) -> None:
        """n blocks; `last` where no block follows."""
        given, weights = self.settings, self.state.weights
        speech = talk(self.wire, room.later, given.precision.format("margin"))
        self._gram(found, room, 0, speech)
        for i in range(n):
            self.side.join()
            if i + 1 < n:
                self._gram(found, room, i + 1, speech)
            G, ahead = room.grams[i % 2], i * self.s
            parts = speech.before_recurrence(room.margins.sums, G, self.state.iteration + ahead)
            recurrence(
                G, parts, lane.y, lane.w, lane.offset, self.steps.each, self.base, ahead, weights.intercept.value,
                room.p, self.losses, code=self.problem.family.kernel_code, batch_size=self.size, s=self.s,
                fitted=weights.intercept.fitted, narrow=given.precision.margin == "bf16",
            )  # fmt: skip
            update(
                found.X, found.rows, found.next_rows, self.base, ahead, room.p, self.steps.ends, weights.x,
                room.margins, batch_size=self.size, s=self.s, l1=given.penalty.l1,
                narrow=given.precision.update == "bf16", last=last,
            )  # fmt: skip
        self.base.add_(n * self.s)

    def _gram(self, found: Found, room: Room, i: int, speech: Talk) -> None:
        """The Gram matrix of block i of a run, beside what is queued next."""
        G = room.grams[i % 2]
        with self.side.fork():
            operand = self.settings.precision.gram_operand
            gram(found.X, found.rows, self.base, i * self.s, room.product, self.size, operand, G)
            speech.after_gram(G)

    def _margins(self, found: Found, room: Room) -> None:
        margins(found.X, found.rows, self.base, self.state.weights.x, room.margins, self.size)

    def _room_for(self, k: int) -> Room:
        if k not in self.rooms:
            self.rooms[k] = Room.of(k, self.size, self.problem, talks=self.wire.comm.size > 1)
        return self.rooms[k]
