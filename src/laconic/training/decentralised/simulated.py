"""A graph of k nodes simulated on one device, with the same algorithm objects."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from laconic.exchange import Accounting, Communicator
from laconic.exchange.neighbours import Neighbours
from laconic.exchange.topology import Topology, topology_for
from laconic.training.decentralised.base import Decentralised

Optimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


class SimulatedGraph:
    """k nodes, each with its own model, optimizer and estimates; codes are handed over instead of sent.

    The result is, bit for bit, that of k ranks.

    member     `DPSGD`, `DCDPSGD` or `ECDPSGD`
    models     one per node
    optimizer  makes a torch optimizer from parameters
    topology   as for the member; so are all further arguments

    >>> from laconic import NUQSGD, Ring
    >>> from laconic.training import ECDPSGD
    >>> nets = [torch.nn.Linear(64, 64) for _ in range(4)]
    >>> sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    >>> graph = SimulatedGraph(ECDPSGD, nets, sgd, Ring(), NUQSGD(bits=4, bucket_size=512))
    >>> before = graph.consensus_distance()
    >>> for _ in range(20):
    ...     graph.zero_grad()
    ...     for net in graph.models:
    ...         net(torch.ones(64)).square().mean().backward()
    ...     graph.step()
    >>> graph.consensus_distance() < 0.1 * before
    True
    """

    def __init__(
        self,
        member: type[Decentralised],
        models: Sequence[torch.nn.Module],
        optimizer: Optimizer,
        topology: Topology | str,
        *arguments: Any,
        **options: Any,
    ) -> None:
        self.models = list(models)
        if len(set(map(id, self.models))) < len(self.models):
            raise ValueError("a model is given twice, but each node has its own; copy.deepcopy(model) makes another")
        mixing = topology_for(topology).mixing(len(self.models))
        self.nodes: list[Decentralised] = [
            member(
                model,
                optimizer(list(model.parameters())),
                topology,
                *arguments,
                neighbours=Neighbours(Communicator(rank=i, size=len(self.models)), mixing),
                **options,
            )
            for i, model in enumerate(self.models)
        ]

    def zero_grad(self) -> None:
        """Call `zero_grad` of all optimizers."""
        for node in self.nodes:
            node.zero_grad()

    def step(self) -> None:
        """One step of every node, given the gradients in its model."""
        if not self.nodes[0].estimates:
            models = {i: node.models() for i, node in enumerate(self.nodes)}
            for node in self.nodes:
                node.start_from(models)
        codes = {i: node.begin()[0] for i, node in enumerate(self.nodes)}
        n_bytes = {i: sum(len(code) for code in sent) for i, sent in codes.items()}
        for i, node in enumerate(self.nodes):
            received = {j: n_bytes[j] for j in node.neighbours.ranks}
            node.count({j: Accounting(1, bytes_sent=n_bytes[i], bytes_received=n) for j, n in received.items()})
            node.finish(codes)

    @torch.no_grad()
    def consensus(self) -> dict[str, torch.Tensor]:
        """The average of all nodes' models as a state dict; buffers that are not floating-point are node 0's."""
        states = [model.state_dict() for model in self.models]
        return {
            name: torch.stack([state[name].float() for state in states]).mean(dim=0).to(value.dtype)
            if value.is_floating_point()
            else value.clone()
            for name, value in states[0].items()
        }

    def consensus_distance(self) -> float:
        """√(1/n Σ_i ‖x_i − x̄‖²)."""
        x = torch.stack([torch.cat(node.gather()) for node in self.nodes])
        return math.sqrt(float((x - x.mean(dim=0)).square().sum()) / len(x))

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of all nodes, in order."""
        return [node.state_dict() for node in self.nodes]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on from what `state_dict` returned; load the models' and optimizers' states too."""
        if len(states) != len(self.nodes):
            raise ValueError(f"need {len(self.nodes)} states, one per node, got {len(states)}")
        for node, state in zip(self.nodes, states, strict=True):
            node.load_state_dict(state)
