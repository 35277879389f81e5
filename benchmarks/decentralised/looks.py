"""When to look at the loss while several nodes train, and whose."""

import copy
from collections.abc import Mapping

import torch


def moments(n_steps: int, n: int = 10) -> list[int]:
    """Numbers of steps after which the loss is looked at: about n of them, the last included.

    >>> moments(25, 4)
    [6, 12, 18, 25]
    """
    return sorted({max(1, n_steps * i // n) for i in range(1, n + 1)})


def with_state(net: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """Another network of the same kind, such as the average of all nodes'."""
    other = copy.deepcopy(net)
    other.load_state_dict(state)
    return other
