"""What each rank does in the suite `decentralised`."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.decentralised.looks import moments, with_state
from benchmarks.decentralised.ways import Way, fp32_bytes
from laconic.bench.training import NetworkProblem, TrainingRun, Trial, interleave
from laconic.exchange import Communicator
from laconic.training import Decentralised, compress

N_LOOKS = 4
"""At the loss, where ranks must average their models for it over a network that may be slow."""


def decentralised_on_rank(
    tell: Callable[[str], None], *, ways: Mapping[str, Mapping[str, Any]], trial: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """For each way: seconds of each timed step, losses of the average model, bytes sent a step, distance."""
    comm, asked = Communicator.over(), Trial(**trial)
    task, looked_at = asked.network_problem(), moments(asked.n_steps, N_LOOKS)
    lanes = {label: _lane(Way(**way), task) for label, way in ways.items()}
    losses: dict[str, list[float]] = {label: [] for label in lanes}

    def look(n_done: int) -> None:
        for label, lane in lanes.items() if n_done in looked_at else ():
            losses[label].append(_loss(lane, task, comm))

    interleave(lanes.values(), task, asked, tell, after=look)
    found = {label: {"losses": losses[label], **_seen(lane, comm.size)} for label, lane in lanes.items()}
    for lane in lanes.values():
        lane.close()
    return found


def _lane(way: Way, task: NetworkProblem) -> TrainingRun:
    net = task.new_network()
    if way.member != "all_reduce":
        return TrainingRun(net, way.kind(net, task.new_optimizer(net.parameters()), way.topology, **way.arguments))
    model = DistributedDataParallel(net)
    compressor = compress(model, way.codec, exchange="scatter_reduce", error_every=0) if way.scheme else None
    return TrainingRun(model, task.new_optimizer(model.parameters()), compressor)


def _loss(lane: TrainingRun, task: NetworkProblem, comm: Communicator) -> float:
    """Training loss of the average model: each rank looks at its share of the samples."""
    net = lane.network
    if isinstance(lane.optimizer, Decentralised):
        net = with_state(net, lane.optimizer.consensus())
    mean = torch.tensor(task.loss(net, slice(comm.rank, None, comm.size)) / comm.size)
    comm.all_reduce(mean)()
    return float(mean)


def _seen(lane: TrainingRun, size: int) -> dict[str, Any]:
    """What this rank saw of a way."""
    n = lane.n_parameters
    seen = {
        "n_parameters": n,
        "seconds": lane.seconds,
        "bytes_sent": fp32_bytes(n, size),
        **lane.per_step("bytes_sent"),
    }
    if isinstance(lane.optimizer, Decentralised):
        seen["distance"] = lane.optimizer.consensus_distance()
    return seen
