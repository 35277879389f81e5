"""The training of the suite `decentralised` on nodes that are simulated in this process."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.decentralised.looks import moments, with_state
from benchmarks.decentralised.ways import Way, fp32_bytes
from laconic.bench.training import NetworkProblem, Trial, backward, batch_rows
from laconic.kernels import Stream
from laconic.training import SimulatedGraph


def simulate(way: Way, n_nodes: int, trial: Trial) -> dict[str, Any]:
    """Losses of the average model, number of parameters, bytes that a node sends a step and distance, as ranks tell."""
    return (_all_reduce if way.member == "all_reduce" else _graph)(way, n_nodes, trial, trial.network_problem())


def _graph(way: Way, n_nodes: int, trial: Trial, task: NetworkProblem) -> dict[str, Any]:
    nets = [task.new_network() for _ in range(n_nodes)]
    graph = SimulatedGraph(way.kind, nets, task.new_optimizer, way.topology, **way.arguments)
    return {
        "losses": [task.loss(with_state(nets[0], graph.consensus())) for _ in _train(nets, graph, trial, task)],
        "n_parameters": _n_parameters(nets[0]),
        "bytes_sent": max(node.last.bytes_sent for node in graph.nodes),
        "distance": graph.consensus_distance(),
    }


def _all_reduce(way: Way, n_nodes: int, trial: Trial, task: NetworkProblem) -> dict[str, Any]:
    """As what it is without rounding: a step on the mean of all gradients."""
    net = task.new_network()
    optimizer, n = task.new_optimizer(net.parameters()), _n_parameters(net)
    losses = [task.loss(net) for _ in _train([net] * n_nodes, optimizer, trial, task, weight=1 / n_nodes)]
    return {"losses": losses, "n_parameters": n, "bytes_sent": fp32_bytes(n, n_nodes), "distance": 0.0}


def _train(
    nets: Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | SimulatedGraph,
    trial: Trial,
    task: NetworkProblem,
    weight: float = 1.0,
) -> Iterator[int]:
    """All steps, node i with the i-th network; stops whenever the loss is to be looked at."""
    looked_at = moments(trial.n_steps)
    for step in range(trial.n_steps):
        optimizer.zero_grad()
        for node, net in enumerate(nets):
            rows = batch_rows(len(task.x), trial.batch_size, Stream(rank=node, step=step))
            backward(net, task.x[rows], task.y[rows], weight)
        optimizer.step()
        if step + 1 in looked_at:
            yield step + 1


def _n_parameters(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())
