"""Ranks for a suite: those of torchrun where there are any, otherwise new ones, on an emulated network if asked for."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from laconic.bench.network import emulated_network
from laconic.exchange.launch import inside_torchrun, join_ranks, start_ranks

TIMEOUT_SECONDS = 3600.0


def n_ranks(asked: int | None, rate: str | None, default: int = 4) -> int:
    """How many ranks there will be: what was asked for, or what torchrun has started."""
    if not inside_torchrun():
        return default if asked is None else asked
    size = int(os.environ["WORLD_SIZE"])
    if asked not in (None, size):
        raise ValueError(f"torchrun has started {size} ranks and --ranks says {asked}; leave --ranks out")
    if rate is not None:
        raise ValueError("--rate emulates a network on this machine, which torchrun's ranks do not use; leave it out")
    return size


def on_ranks(
    function: str, arguments: Mapping[str, Any], ranks: int, rate: str | None, tell: Callable[[str], None]
) -> list[Any] | None:
    """What `function` returned on each rank; None on the ranks of torchrun other than the first."""
    if inside_torchrun():
        return join_ranks(function, arguments, timeout_seconds=TIMEOUT_SECONDS)
    with emulated_network(ranks, rate) as hosts:
        return start_ranks(function, arguments, hosts, timeout_seconds=TIMEOUT_SECONDS, tell=tell)
