"""A node goes on from its own state only: one of another node, graph, model or order is refused with what differs."""

import pytest
import torch

from laconic import DPSGD, Complete, Ring, SimulatedGraph


def graph(*, topology=None, order="combine_then_adapt", width=3, size=4) -> SimulatedGraph:
    """After a step."""
    nets = [torch.nn.Linear(2, width) for _ in range(size)]
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)  # noqa: E731
    made = SimulatedGraph(DPSGD, nets, sgd, topology or Ring(), order=order)
    made.step()
    return made


LATER = "adapt_then_combine"
WRONG = {
    "another node": (lambda: graph().state_dict()[1], {}, "this state is from node 1 of 4, this is node 0 of 4"),
    "another size": (lambda: graph(size=5).state_dict()[0], {}, "this state is from node 0 of 5, this is node 0 of 4"),
    "another graph": (lambda: graph(topology=Complete()).state_dict()[0], {}, r"here node 0 tracks \[0, 1, 3\]"),
    "another model": (
        lambda: graph(width=5).state_dict()[0],
        {},
        r"the estimates of weight has shape \(5, 2\) in the state and \(3, 2\) here",
    ),
    "another order": (lambda: graph().state_dict()[0], {"order": LATER}, f"saved with another order than '{LATER}'"),
    "the other order": (lambda: graph(order=LATER).state_dict()[0], {}, "another order than 'combine_then_adapt'"),
    "all of a checkpoint": (lambda: {"model": {}, "node": {}}, {}, "this has no 'format', but model, node"),
    "no table": (lambda: graph().state_dict()[0] | {"own": 3}, {}, "no tensors by name as its own, but int"),
    "another version": (
        lambda: graph().state_dict()[0] | {"format": 9},
        {},
        "state has format 9, this laconic reads 1",
    ),
}


@pytest.mark.parametrize(("state", "options", "said"), WRONG.values(), ids=WRONG)
def test_what_is_not_this_node_s_state_is_refused(state, options, said):
    with pytest.raises(ValueError, match=said):
        graph(**options).nodes[0].load_state_dict(state())
