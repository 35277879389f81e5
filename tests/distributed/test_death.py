"""A rank that dies in the middle of a step: every surviving rank gets an error in time, and no wrong result."""

import os
from contextlib import suppress
from datetime import timedelta

import pytest
import torch
from models import batch, sgd, train, weights, wrap

import laconic
from forking import forked
from laconic.training.ddp import compressor_of

LIMIT = timedelta(seconds=120)


def mortal(rank, store, noticed, pipe):
    """One of three ranks; the second dies, the others tell what they are told, and whether their model is as before.

    noticed  whether their connections know of it before anything is sent
    """
    torch.distributed.init_process_group("gloo", f"file://{store}", LIMIT, 3, rank)
    model = wrap(None, "nuqsgd", timeout=LIMIT)
    train(model, sgd(model), range(3), rank)
    before = weights(model)
    x, y = batch(rank, 3)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    if rank == 1:
        os._exit(17)
    for channel in compressor_of(model).comm.channels if noticed else ():
        with suppress(RuntimeError):
            channel.group.recv([torch.zeros(1)], 1, 99).wait()
    try:
        loss.backward()
    except Exception as error:  # noqa: BLE001 (told to the test)
        pipe.send((type(error).__name__, str(error), torch.equal(before, weights(model))))
    os._exit(0)


@pytest.mark.parametrize("noticed", [False, True])
def test_survivors_are_told(tmp_path, noticed):
    with forked(mortal, 3, str(tmp_path / "store"), noticed) as (ranks, pipes):
        told = {rank: pipes[rank].recv() for rank in (0, 2)}
    assert ranks[1].exitcode == 17
    for rank, (kind, text, same) in told.items():
        assert kind == "ExchangeFailed"
        assert f"on rank {rank} of 3: another rank stopped, or did not answer in time" in text
        assert same


def forgetful(rank, store, part, pipe):
    """Two ranks, of all or of three, of which only the first calls compress; what it is told."""
    torch.distributed.init_process_group("gloo", f"file://{store}", LIMIT, 2 + part, rank)
    group = torch.distributed.new_group([0, 1], timeout=timedelta(seconds=20)) if part else None
    model = wrap(group, None) if rank < 2 else None
    try:
        if rank == 0:
            laconic.compress(model, "nuqsgd", timeout=3)
            train(model, sgd(model), range(1), rank)
    except Exception as error:  # noqa: BLE001 (told to the test)
        pipe.send((type(error).__name__, str(error)))
    pipe.recv() if rank else None  # until the test ends
    os._exit(0)


NEVER = [
    (False, "did every rank call compress, or whatever"),
    pytest.param(True, "did every rank make the same calls of compress", marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("part", "said"), NEVER)
def test_a_rank_that_never_called_compress(tmp_path, part, said):
    with forked(forgetful, 2 + part, str(tmp_path / "store"), part) as (_, pipes):
        kind, text = pipes[0].recv()
        for pipe in pipes[1:]:
            pipe.send(None)
    assert kind == "ExchangeFailed"
    assert said in text
