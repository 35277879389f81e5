"""A mistake on one rank is an error on all: nobody waits for a rank that has given up."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.exchange.say import all_say

T = TypeVar("T")
Facts = dict[str, Any]
"""Plain JSON values."""


class RanksDiffer(LaconicError, RuntimeError):
    """Ranks were given different arguments, or one of them refused its data."""


def agree(comm: Communicator, prepare: Callable[[], tuple[T, Facts]], own: frozenset[str]) -> tuple[T, list[Facts]]:
    """Prepare on every rank; go on only if all could, and if all say the same.

    prepare  gives what this rank goes on with, and facts to compare; whatever it raises is raised here, and as
             `RanksDiffer` on the other ranks
    own      facts that may differ between ranks

    Returns what `prepare` gave and the facts of every rank.
    """
    try:
        result, facts = prepare()
    except Exception as error:
        if comm.size > 1:
            all_say(comm, {"error": f"{type(error).__name__}: {error}"})
        raise
    if comm.size == 1:
        return result, [facts]
    everyone = all_say(comm, {"facts": facts})
    for rank, said in enumerate(everyone):
        if "error" in said:
            raise RanksDiffer(f"rank {rank} could not begin: {said['error']}")
    _compare([said["facts"] for said in everyone], own)
    return result, [said["facts"] for said in everyone]


def digest(array: np.ndarray | None) -> str | None:
    """A short name for the contents of an array of numbers or text."""
    if array is None:
        return None
    plain = array.astype(str) if array.dtype == object else array
    return hashlib.blake2b(np.ascontiguousarray(plain).tobytes(), digest_size=8).hexdigest()


def _compare(everyone: list[Facts], own: frozenset[str]) -> None:
    first = everyone[0]
    for rank, facts in enumerate(everyone):
        for name, value in facts.items():
            if name not in own and value != first.get(name):
                raise RanksDiffer(
                    f"{name} is {first.get(name)} on rank 0 and {value} on rank {rank}; give every rank the same"
                )
