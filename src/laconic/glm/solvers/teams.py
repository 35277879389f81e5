"""Teams of ranks (2-D HybridSGD): each steps through its own rows, and all average their weights every τ blocks.

P = R · C ranks are R teams of C. Team r holds every R-th row, from its number on, and spreads the columns among its
ranks, which run SGD or CA-SGD as if there were no others. After every τ blocks of s iterations, and at the end of an
epoch, the R ranks that hold the same columns average:

    d_r = x_r − x̄,    x̄ ← x̄ + (1/R) Σ_r Q(d_r),    x_r ← x̄

where x̄ are the weights after the last average, the same bits on all teams. Only differences are quantised, so the noise
of Q goes to zero with the steps. With τ = s = 1, Q the identity and teams of as many rows each, that is one step with
the mean of the teams' gradients.

Devarakonda and Kannan 2025 (arXiv 2501.07526), where Q is the identity; quantised differences of local SGD: Reisizadeh
and others 2020 (arXiv 1909.13014).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from laconic.codec import make_codec
from laconic.exchange import by_name
from laconic.glm.options import FitOptions
from laconic.glm.ranks import Wire
from laconic.glm.solvers.objective import Requests
from laconic.glm.solvers.state import Segment, State
from laconic.kernels import Stream
from laconic.planner.glm import GATHER_LIMIT_BYTES
from laconic.quantizers import ErrorFeedback

COLUMNS = ("x", "momentum", "average")
"""Tensors of the state that a rank has for its columns; all ranks of a team hold the others."""

Mean = Callable[[torch.Tensor], torch.Tensor]
"""Of one tensor, over the teams."""


@dataclass(slots=True)
class Averaged:
    """Steps through a segment, averaging with the other teams, at its end in any case.

    Before the first iteration, teams take the mean of their intercepts, each of which is that of its own rows.
    """

    options: FitOptions
    state: State
    wire: Wire

    def __post_init__(self) -> None:
        for name, t in self.state.tensors().items() if self.state.iteration == 0 else ():
            if name.startswith("intercept"):
                total = torch.tensor(self.wire.sum_over_teams(*t.tolist()), dtype=torch.float64)
                t.copy_(total / self.wire.comm.peers.size)

    def __call__(self, segment: Segment) -> Requests[float]:
        """Ask for steps through parts of it as one team; returns Σ w φ of this team's batches."""
        state, first, loss = self.state, self.state.iteration, 0.0
        step = self.options.step * int(self.options.average_every)
        for j in range(0, segment.n_batches, step):
            last = min(j + step, segment.n_batches)
            before = {name: t.clone() for name, t in state.tensors().items()}
            state.iteration = first + j
            loss += yield segment.part(j, last)
            self._average(before)
        state.iteration = first
        return loss

    def _average(self, before: dict[str, torch.Tensor]) -> None:
        """Weights of this rank's columns by the codec; the intercept, the same on all ranks of a team, in float32.

        Ranks of a team have other columns, and must have the same bits of the intercept: it is gathered.
        """
        state, tensors, teams = self.state, self.state.tensors(), self.wire.comm.peers.size
        intercept = [n for n in tensors if n.startswith("intercept")] if state.weights.intercept.fitted else []
        n_bytes = 4 * (teams - 1) * sum(tensors[name].numel() for name in COLUMNS)
        if self.options.average_codec == "fp32" and n_bytes <= GATHER_LIMIT_BYTES:
            self._move([*COLUMNS, *intercept], before, self.wire.mean_over_teams)
        else:
            self._by_codec(before)
            self._move(intercept, before, self.wire.mean_over_teams)
        state.weights.x.copy_(self.options.precision.format("weights").round(state.weights.x))

    def _by_codec(self, before: dict[str, torch.Tensor]) -> None:
        codec, state, comm = make_codec(self.options.average_codec), self.state, self.wire.comm
        how, sizes = by_name("auto", codec, comm.peers.size), [state.tensors()[name].numel() for name in COLUMNS]
        if isinstance(codec.quantizer, ErrorFeedback) and not len(state.memory):
            state.memory = torch.zeros(sum(sizes), device=state.weights.x.device)
        memory = torch.split(state.memory, sizes) if len(state.memory) else [None] * len(sizes)

        def mean(v: torch.Tensor, name: str, own: torch.Tensor | None) -> torch.Tensor:
            stream = Stream(self.wire.seed, step=state.iteration, tensor=f"{name} of rank {comm.rank}")
            moved = how.average(v, codec, stream, memory=own, comm=comm.peers)
            self.wire.accounting += replace(moved.accounting, n_exchanges=1)
            self.wire.messages += 1
            return moved.value

        for name, own in zip(COLUMNS, memory, strict=True):
            self._move([name], before, partial(mean, name=name, own=own))

    def _move(self, names: Sequence[str], before: dict[str, torch.Tensor], mean: Mean) -> None:
        """To where they were before, and what they have changed by in the mean over teams."""
        tensors = self.state.tensors()
        moving = [(tensors[name], before[name]) for name in names if tensors[name].numel()]
        if moving:
            changes = mean(torch.cat([(t - old).float().reshape(-1) for t, old in moving]))
            for (t, old), change in zip(moving, torch.split(changes, [t.numel() for t, _ in moving]), strict=True):
                t.copy_(old + change.view_as(t).to(t.dtype))
