"""What decentralised training is tried on: logistic regression and a small convolutional network on the digits."""

import copy
from functools import cache

import torch

from laconic import SimulatedGraph
from laconic.data import load_digits


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits()
    return images.view(-1, 1, 8, 8), labels


@cache
def shards(n_nodes: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The digits, dealt out to the nodes in turn."""
    images, labels = digits()
    return [images[i::n_nodes] for i in range(n_nodes)], [labels[i::n_nodes] for i in range(n_nodes)]


def logistic() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def convolutional() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 10),
    )


PROBLEMS = {"logistic": (logistic, 0.1), "cnn": (convolutional, 0.02)}
"""A network and a step size, for momentum 0.9."""
BATCH = 16


def sgd(lr: float):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=1e-4)


def rows(step: int, node: int, n_nodes: int, n: int) -> torch.Tensor:
    return torch.randint(n, (BATCH,), generator=torch.Generator().manual_seed(step * n_nodes + node))


def loss_of(net: torch.nn.Module) -> float:
    images, labels = digits()
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(net(images), labels))


def all_reduce_loss(problem: str, n_nodes: int, n_steps: int) -> float:
    """AllReduce SGD: every step on the mean of the nodes' gradients, from the same batches."""
    make, lr = PROBLEMS[problem]
    net, (x, y) = make(), shards(n_nodes)
    optimizer = sgd(lr)(net.parameters())
    for step in range(n_steps):
        optimizer.zero_grad()
        for node in range(n_nodes):
            at = rows(step, node, n_nodes, len(x[node]))
            (torch.nn.functional.cross_entropy(net(x[node][at]), y[node][at]) / n_nodes).backward()
        optimizer.step()
    return loss_of(net)


def train(graph: SimulatedGraph, chosen: range) -> None:
    n_nodes = len(graph.models)
    x, y = shards(n_nodes)
    for step in chosen:
        graph.zero_grad()
        for node, net in enumerate(graph.models):
            at = rows(step, node, n_nodes, len(x[node]))
            torch.nn.functional.cross_entropy(net(x[node][at]), y[node][at]).backward()
        graph.step()


def graph_on(problem: str, member, topology, n_nodes: int, **options) -> SimulatedGraph:
    make, lr = PROBLEMS[problem]
    return SimulatedGraph(member, [make() for _ in range(n_nodes)], sgd(lr), topology, **options)


def consensus_loss(graph: SimulatedGraph) -> float:
    """Of the average of all models."""
    net = copy.deepcopy(graph.models[0])
    net.load_state_dict(graph.consensus())
    return loss_of(net)
