"""Agreement between ranks: gather JSON values, raise an error of one rank on all, compare configurations.

Every function here is collective: all ranks of the communicator must call it, in the same order.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from laconic.errors import Disagreement, LaconicError, from_json
from laconic.exchange.communicator import Communicator
from laconic.exchange.messages import CPU

ALONE = Communicator()
MOST_DIFFERENCES = 5


def gather_json(comm: Communicator, value: Any, device: torch.device = CPU) -> list[Any]:
    """The JSON value of each rank, by rank, on every rank.

    device  where the messages are: a GPU for NCCL

    >>> gather_json(Communicator(), {"rows": 3})
    [{'rows': 3}]
    """
    message = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    received = comm.all_to_all([message] * comm.size).wait()
    return [json.loads(message.cpu().numpy().tobytes()) for message in received]


def gather_from_all(comm: Communicator, value: Any, device: torch.device, replicas: Communicator) -> list[Any]:
    """`gather_json` over all groups like `comm`, by group and rank; `replicas` has this rank's counterpart in each."""
    everyone = gather_json(comm, value, device) if comm.size > 1 else [value]
    groups = gather_json(replicas, everyone, device) if replicas.size > 1 else [everyone]
    return [one for group in groups for one in group]


@contextmanager
def raise_on_all_ranks(comm: Communicator, *, of_users: bool = False) -> Iterator[None]:
    """If the block raises on one rank, raise on all of them, so that no rank waits for one that has given up.

    A rank whose own block failed raises that error; the others raise `Disagreement`, which names the first rank that
    failed and repeats its message. The block must not exchange anything that only some ranks would get to.

    of_users  the block reads files and settings, whose errors the user can fix: `ValueError`, `TypeError` and `OSError`
              are raised as `LaconicError` with the same message

    >>> with raise_on_all_ranks(Communicator()):
    ...     raise ValueError("no such column")
    Traceback (most recent call last):
        ...
    ValueError: no such column
    """
    try:
        yield
    except Exception as error:
        if comm.size > 1:
            told = error if isinstance(error, LaconicError) else LaconicError(user_message(error))
            gather_json(comm, told.to_json())
        if of_users and isinstance(error, ValueError | TypeError | OSError) and not isinstance(error, LaconicError):
            raise LaconicError(user_message(error)) from error
        raise
    for rank, parts in enumerate(gather_json(comm, None) if comm.size > 1 else ()):
        if parts is not None:
            raise Disagreement(f"rank {rank}: ", *from_json(parts))


user_errors = partial(raise_on_all_ranks, of_users=True)


def require_same(
    comm: Communicator,
    facts: Mapping[str, Any],
    *,
    may_differ: Collection[str] = (),
    device: torch.device = CPU,
    replicas: Communicator = ALONE,
) -> list[dict[str, Any]]:
    """Raise `Disagreement` on every rank, naming rank and field, unless all ranks give the same facts.

    facts       JSON values by the names a user knows them by
    may_differ  names of facts that are gathered but not compared
    replicas    ranks of the same number in other groups like `comm`, whose facts are compared too

    Returns the facts of each rank, by rank; those of group g begin at g · comm.size.

    >>> require_same(Communicator(), {"seed": 0})
    [{'seed': 0}]
    """
    everyone = gather_from_all(comm, dict(facts), device, replicas)
    first = everyone[0]
    differences = [
        f"{name} is {first.get(name)} on rank 0 and {other.get(name)} on rank {rank}"
        for rank, other in enumerate(everyone)
        for name in sorted((first.keys() | other.keys()) - set(may_differ))
        if first.get(name) != other.get(name)
    ]
    if differences:
        raise Disagreement(
            f"ranks disagree: {'; '.join(differences[:MOST_DIFFERENCES])}. "
            "Give every rank the same arguments and, to go on with a run, states of the same step"
        )
    return everyone


def user_message(error: Exception) -> str:
    """An error's message for the user, with the error's type if it is not one that users are expected to cause.

    >>> user_message(ValueError("no such column")), user_message(KeyError("x"))
    ('no such column', "KeyError: 'x'")
    """
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    expected = isinstance(error, LaconicError | ValueError | TypeError | OSError)
    return str(error) if expected and str(error) else f"{type(error).__name__}: {error}".removesuffix(": ")
