"""The same steps of training, averaged over ranks or mixed with neighbours, step by step in turn; for benchmarks."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import codec as make_codec
from laconic.exchange import Accounting, Communicator
from laconic.exchange.topology import by_name as topology_by_name
from laconic.training.compressor import Compressor
from laconic.training.ddp import compress
from laconic.training.decentralised.base import Decentralised
from laconic.training.decentralised.clock import Clock
from laconic.training.decentralised.dcdpsgd import DCDPSGD
from laconic.training.decentralised.dpsgd import DPSGD
from laconic.training.decentralised.ecdpsgd import ECDPSGD
from laconic.training.decentralised.simulated import SimulatedGraph
from laconic.training.problems import Problem, problem

MEMBERS: dict[str, type[Decentralised]] = {"dpsgd": DPSGD, "dcd": DCDPSGD, "ecd": ECDPSGD}
VARIANTS: dict[str, dict[str, Any]] = {
    "ecd-paper": {"reference": "zero", "clock": Clock()},
    "ecd-running": {"clock": Clock()},
    "ecd-restart": {"clock": Clock(restart=20)},
}
"""Of ECD-PSGD: measured from zero with a clock that runs on; measured from the estimate, with a clock that runs on, or
that starts again after 20."""
MOMENTUM = 0.9
N_LOOKS = 4
"""At the loss, where ranks must average their models for it over a network that may be slow."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to train, by plain values.

    member    "all_reduce" (DDP, or laconic's scatter_reduce where there is a scheme), "dpsgd", "dcd", "ecd", or one
              of `VARIANTS`
    scheme    of the codec; with `options` as in `laconic.codec`
    topology  by name; of no use to all_reduce
    """

    member: str
    scheme: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    topology: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the member is made with, besides model, optimizer and topology."""
        codec = {"codec": make_codec(self.scheme, **self.options)} if self.scheme else {}
        return codec | VARIANTS.get(self.member, {})

    @property
    def kind(self) -> type[Decentralised]:
        """The class of a decentralised member."""
        return ECDPSGD if self.member in VARIANTS else MEMBERS[self.member]


@dataclass(slots=True)
class _Lane:
    """One plan under trial on this rank."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | Decentralised
    compressor: Compressor | None = None
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def trial_on_rank(
    tell: Callable[[str], None],
    *,
    plans: Mapping[str, Mapping[str, Any]],
    steps: int,
    warmup_steps: int,
    problem_name: str,
    width: int,
    batch_size: int,
) -> dict[str, dict[str, Any]]:
    """For each plan: seconds of each timed step, losses of the average model, bytes sent and received a step.

    Step t of all plans comes before step t + 1 of any, on the same batches, from the same initial weights.
    """
    comm = Communicator.over()
    task = problem(problem_name, width)
    lanes = {label: _lane(Plan(**plan), task) for label, plan in plans.items()}
    n_steps = warmup_steps + steps
    for step in range(n_steps):
        tell(f"step {step + 1} of {n_steps}")
        rows = batch_rows(len(task.x), step, comm.rank, comm.size, batch_size)
        for lane in lanes.values():
            if step == warmup_steps:
                _forget(lane)
            comm.all_reduce(torch.zeros(1))()
            start = time.perf_counter()
            _step(lane, task.x[rows], task.y[rows])
            seconds = time.perf_counter() - start
            if step >= warmup_steps:
                lane.seconds.append(seconds)
            if step + 1 in moments(n_steps, N_LOOKS):
                lane.losses.append(_loss(lane, task, comm))
    found = {label: _look(lane, task) for label, lane in lanes.items()}
    for lane in lanes.values():
        for part in (lane.compressor, lane.optimizer):
            if isinstance(part, Compressor | Decentralised):
                part.close()
    return found


def simulate(
    plan: Plan, n_nodes: int, n_steps: int, problem_name: str, width: int, batch_size: int
) -> tuple[list[float], float, float, int]:
    """The same training on simulated nodes: losses of the average model, bytes a node sends a step, distance, values.

    AllReduce training is simulated as what it is without rounding: a step on the mean of all gradients.
    """
    task = problem(problem_name, width)
    if plan.member == "all_reduce":
        return _simulate_all_reduce(task, n_nodes, n_steps, batch_size)
    nets = [_network(task) for _ in range(n_nodes)]
    graph = SimulatedGraph(plan.kind, nets, _sgd(task), topology_by_name(plan.topology), **plan.arguments)
    losses = []
    for step in range(n_steps):
        graph.zero_grad()
        for node, net in enumerate(nets):
            rows = batch_rows(len(task.x), step, node, n_nodes, batch_size)
            _backward(net, task.x[rows], task.y[rows])
        graph.step()
        if step + 1 in moments(n_steps):
            losses.append(_loss_of(_with_state(nets[0], graph.consensus()), task.x, task.y))
    n = sum(p.numel() for p in nets[0].parameters())
    return losses, max(node.last.bytes_sent for node in graph.nodes), graph.consensus_distance(), n


def moments(n_steps: int, n: int = 10) -> list[int]:
    """Numbers of steps after which the loss is looked at: about n of them, the last included.

    >>> moments(25, 4)
    [6, 12, 18, 25]
    """
    return sorted({max(1, n_steps * i // n) for i in range(1, n + 1)})


def batch_rows(n: int, step: int, node: int, n_nodes: int, batch_size: int) -> torch.Tensor:
    """The samples of a node's batch: a random draw, the same for every plan."""
    generator = torch.Generator().manual_seed(1 + step * n_nodes + node)
    return torch.randint(n, (batch_size,), generator=generator)


def _network(task: Problem) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return task.network()


def _sgd(task: Problem) -> Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr=task.learning_rate, momentum=MOMENTUM)


def _lane(plan: Plan, task: Problem) -> _Lane:
    net = _network(task)
    if plan.member != "all_reduce":
        optimizer = _sgd(task)(list(net.parameters()))
        return _Lane(net, plan.kind(net, optimizer, topology_by_name(plan.topology), **plan.arguments))
    model = DistributedDataParallel(net)
    compressor = None
    if plan.scheme:
        codec = make_codec(plan.scheme, **plan.options)
        compressor = compress(model, codec, exchange="scatter_reduce", error_every=0)
    return _Lane(model, _sgd(task)(list(model.parameters())), compressor)


def _backward(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    torch.nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]


def _step(lane: _Lane, x: torch.Tensor, y: torch.Tensor) -> None:
    lane.optimizer.zero_grad()
    _backward(lane.model, x, y)
    lane.optimizer.step()


def _forget(lane: _Lane) -> None:
    """What the first steps cost does not count: they compile kernels and send whole models."""
    for part in (lane.compressor, lane.optimizer):
        if isinstance(part, Compressor | Decentralised):
            part.totals = Accounting()


def _loss(lane: _Lane, task: Problem, comm: Communicator) -> float:
    """Training loss of the average model: each rank looks at its share of the samples."""
    net = lane.model
    if isinstance(lane.optimizer, Decentralised):
        net = _with_state(net, lane.optimizer.consensus())
    elif isinstance(net, DistributedDataParallel):
        net = net.module
    share = slice(comm.rank, None, comm.size)
    mean = torch.tensor(_loss_of(net, task.x[share], task.y[share]) / comm.size)
    comm.all_reduce(mean)()
    return float(mean)


def _loss_of(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(net(x), y))


def _with_state(net: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    other = copy.deepcopy(net)
    other.load_state_dict(state)
    return other


def _look(lane: _Lane, task: Problem) -> dict[str, Any]:
    """What this rank saw of a plan; bytes of DDP's own all-reduce are those of a ring."""
    n = sum(p.numel() for p in lane.model.parameters())
    seen: dict[str, Any] = {"n_parameters": n, "seconds": lane.seconds, "losses": lane.losses}
    steps = max(1, len(lane.seconds))
    part = lane.optimizer if isinstance(lane.optimizer, Decentralised) else lane.compressor
    if part is None:
        size = torch.distributed.get_world_size()
        return {**seen, "bytes_sent": 2 * (size - 1) / size * 4 * n}
    seen |= {"bytes_sent": part.totals.bytes_sent / steps}
    if isinstance(part, Decentralised):
        seen |= {"distance": part.consensus_distance()}
    return seen


def _simulate_all_reduce(
    task: Problem, n_nodes: int, n_steps: int, batch_size: int
) -> tuple[list[float], float, float, int]:
    net = _network(task)
    optimizer, losses = _sgd(task)(list(net.parameters())), []
    for step in range(n_steps):
        optimizer.zero_grad()
        for node in range(n_nodes):
            rows = batch_rows(len(task.x), step, node, n_nodes, batch_size)
            (torch.nn.functional.cross_entropy(net(task.x[rows]), task.y[rows]) / n_nodes).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step + 1 in moments(n_steps):
            losses.append(_loss_of(net, task.x, task.y))
    n = sum(p.numel() for p in net.parameters())
    return losses, 2 * (n_nodes - 1) / n_nodes * 4 * n, 0.0, n
