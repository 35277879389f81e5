"""Training in the suite `decentralised`: on one of several ranks, or on nodes simulated in this process."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.decentralised_contenders import Contender, fp32_bytes
from laconic.bench.suite import Progress
from laconic.bench.training import NetworkProblem, TrainingRun, Trial, backward, batch_rows, interleave
from laconic.exchange import Communicator
from laconic.kernels import Stream
from laconic.training import Decentralised, SimulatedGraph, compress

N_LOSSES = 4
"""Losses measured per contender on ranks; for each, the models are averaged over a network that may be slow."""


def loss_steps(n_steps: int, n: int = 10) -> list[int]:
    """Step counts after which the loss is measured: about n of them, including the last.

    >>> loss_steps(25, 4)
    [6, 12, 18, 25]
    """
    return sorted({max(1, n_steps * i // n) for i in range(1, n + 1)})


def with_state(net: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """A copy of the network with another state, such as the average of all nodes."""
    other = copy.deepcopy(net)
    other.load_state_dict(state)
    return other


def decentralised_on_rank(
    progress: Progress, *, contenders: Mapping[str, Mapping[str, Any]], trial: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """For each contender: seconds of each timed step, losses of the average model, bytes sent per step, distance."""
    comm, asked = Communicator.over(), Trial(**trial)
    problem, at_steps = asked.network_problem(), loss_steps(asked.n_steps, N_LOSSES)
    runs = {label: _new_run(Contender(**values), problem) for label, values in contenders.items()}
    losses: dict[str, list[float]] = {label: [] for label in runs}

    def add_losses(n_done: int) -> None:
        for label, run in runs.items() if n_done in at_steps else ():
            losses[label].append(_loss(run, problem, comm))

    interleave(runs.values(), problem, asked, progress, after=add_losses)
    results = {label: {"losses": losses[label], **_result(run, comm.size)} for label, run in runs.items()}
    for run in runs.values():
        run.close()
    return results


def _new_run(one: Contender, problem: NetworkProblem) -> TrainingRun:
    net = problem.new_network()
    if one.member != "all_reduce":
        optimizer = one.kind(net, problem.new_optimizer(net.parameters()), one.topology, **one.arguments)
        return TrainingRun(net, optimizer, optimizer)
    model = DistributedDataParallel(net)
    compressor = compress(model, one.codec, exchange="scatter_reduce", error_every=0) if one.scheme else None
    return TrainingRun(model, problem.new_optimizer(model.parameters()), compressor)


def _loss(run: TrainingRun, problem: NetworkProblem, comm: Communicator) -> float:
    """Training loss of the average model; each rank computes its share of the samples."""
    net = run.network
    if isinstance(run.optimizer, Decentralised):
        net = with_state(net, run.optimizer.consensus())
    mean = torch.tensor(problem.loss(net, slice(comm.rank, None, comm.size)) / comm.size)
    comm.all_reduce(mean)()
    return float(mean)


def _result(run: TrainingRun, size: int) -> dict[str, Any]:
    """This rank's seconds and bytes, and the distance of the models."""
    sent = {"bytes_sent": fp32_bytes(run.n_parameters, size), **run.per_step("bytes_sent")}
    result = {"n_parameters": run.n_parameters, "seconds": run.seconds, **sent}
    if isinstance(run.optimizer, Decentralised):
        result["distance"] = run.optimizer.consensus_distance()
    return result


def simulate(one: Contender, n_nodes: int, trial: Trial) -> dict[str, Any]:
    """Losses of the average model, number of parameters, bytes that a node sends per step, and distance."""
    return (_all_reduce if one.member == "all_reduce" else _graph)(one, n_nodes, trial, trial.network_problem())


def _graph(one: Contender, n_nodes: int, trial: Trial, problem: NetworkProblem) -> dict[str, Any]:
    nets = [problem.new_network() for _ in range(n_nodes)]
    graph = SimulatedGraph(one.kind, nets, problem.new_optimizer, one.topology, **one.arguments)
    return {
        "losses": [problem.loss(with_state(nets[0], graph.consensus())) for _ in _train(nets, graph, trial, problem)],
        "n_parameters": _n_parameters(nets[0]),
        "bytes_sent": max(node.last.bytes_sent for node in graph.nodes),
        "distance": graph.consensus_distance(),
    }


def _all_reduce(one: Contender, n_nodes: int, trial: Trial, problem: NetworkProblem) -> dict[str, Any]:
    """AllReduce without rounding: one network, stepped with the mean of all gradients."""
    net = problem.new_network()
    optimizer, n = problem.new_optimizer(net.parameters()), _n_parameters(net)
    losses = [problem.loss(net) for _ in _train([net] * n_nodes, optimizer, trial, problem, weight=1 / n_nodes)]
    return {"losses": losses, "n_parameters": n, "bytes_sent": fp32_bytes(n, n_nodes), "distance": 0.0}


def _train(
    nets: Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | SimulatedGraph,
    trial: Trial,
    problem: NetworkProblem,
    weight: float = 1.0,
) -> Iterator[int]:
    """Run all steps, node i with the i-th network; yields whenever the loss is to be measured."""
    at_steps = loss_steps(trial.n_steps)
    for step in range(trial.n_steps):
        optimizer.zero_grad()
        for node, net in enumerate(nets):
            rows = batch_rows(len(problem.x), trial.batch_size, Stream(rank=node, step=step))
            backward(net, problem.x[rows], problem.y[rows], weight)
        optimizer.step()
        if step + 1 in at_steps:
            yield step + 1


def _n_parameters(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())
