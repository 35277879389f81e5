"""Saving and loading a node."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from laconic.training.decentralised.rows import Row, Rows
from laconic.training.state import check_format, check_shapes

FORMAT = 1


def save(
    rows: Rows,
    step: int,
    seed: int,
    node: int,
    n_nodes: int,
    estimates: Mapping[int, Sequence[Row]],
    own: Sequence[Row],
) -> dict[str, Any]:
    """A node's state as tensors only, so that nothing needs pickle."""
    numbers = {"format": FORMAT, "step": step, "seed": seed, "node": node, "nodes": n_nodes}
    return {
        **{name: torch.tensor(value) for name, value in numbers.items()},
        "estimates": {str(j): rows.named(values) for j, values in estimates.items()},
        "own": rows.named(own) if own else {},
    }


def check(state: Mapping[str, Any], rows: Rows, node: int, n_nodes: int, tracked: Sequence[int], order: str) -> None:
    """Raise `ValueError` where a state is not this node's, with what differs."""
    check_format(state, FORMAT, ("step", "seed", "node", "nodes", "estimates", "own"))
    if (int(state["node"]), int(state["nodes"])) != (node, n_nodes):
        raise ValueError(
            f"this state is from node {int(state['node'])} of {int(state['nodes'])}, this is node {node} of {n_nodes}; "
            "to change the graph, load the consensus() model and begin anew"
        )
    if state["estimates"] and sorted(int(j) for j in state["estimates"]) != list(tracked):
        raise ValueError(
            f"this state has estimates of nodes {sorted(int(j) for j in state['estimates'])}, "
            f"here node {node} tracks {list(tracked)}; give the topology that it was saved with"
        )
    for values in state["estimates"].values():
        check_shapes("estimates", rows.parameters, values)
    if state["own"]:
        check_shapes("own model", rows.parameters, state["own"])
    if state["estimates"] and bool(state["own"]) != (order == "adapt_then_combine"):
        raise ValueError(
            f"this state was saved with another order than {order!r}; give the order that it was saved with"
        )
