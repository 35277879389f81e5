"""`laconic bench exchange` and `laconic bench ddp`, at sizes that take no time."""

import os
from pathlib import Path

import pytest

from laconic.exchange import emulated_network as network

EXCHANGE = ["bench", "exchange", "--ranks", "2", "--size", "3000", "--repeats", "1", "--codec", "nuqsgd-4,nothing"]
DDP = ["bench", "ddp", "--ranks", "2", "--size", "3000", "--repeats", "1", "--codec", "nuqsgd-4"]
FSDP = ["bench", "fsdp", *DDP[2:-1], "nuqsgd-4/512", "--problem", "clusters"]
reason = network.available()


@pytest.mark.skipif(reason is not None, reason=f"an emulated network {reason}")
def test_json_over_the_emulated_network(published):
    document = published([*EXCHANGE, "--rate", "1gbit"])
    assert document["suite"] == "exchange"
    assert document["options"]["rate"] == "1gbit"
    assert [row["contender"] for row in document["rows"]][-1] == "nothing"
    assert all(row["rate"] == "1gbit" and row["environment"]["cpu"] for row in document["rows"])
    assert not list(Path("/run/netns").glob(f"laconic-{os.getpid()}-*"))


@pytest.mark.parametrize("command", [EXCHANGE, DDP, FSDP])
def test_tables(command, printed):
    out = printed(command)
    for word in ("fp32", "nuqsgd-4", "loopback", "Where the time goes"):
        assert word in out


WRONG = {
    "rate": (["--rate", "fast"], "such as 1gbit"),
    "one rank": (["--ranks", "1"], "ranks must be from 2 to 250"),
    "no ranks": (["--ranks", "0"], "--ranks"),
    "too many ranks": (["--ranks", "1000"], "ranks must be from 2 to 250"),
    "codec": (["--codec", "zip"], "unknown codec 'zip'"),
    "no codec": (["--codec", ","], "no codec"),
    "size": (["--size", "0"], "--size"),
    "output": (["--output", "/nowhere/rows.json"], "/nowhere/rows.json: there is no folder"),
}


@pytest.mark.parametrize("suite", ["exchange", "ddp"])
@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(suite, arguments, said, complains):
    complains(["bench", suite, *arguments], said)


def test_no_root_is_told(complains, monkeypatch):
    monkeypatch.setattr(network.os, "geteuid", lambda: 1000)
    told = "an emulated network needs root; without --rate the ranks talk over loopback"
    complains([*EXCHANGE, "--rate", "1gbit"], told)


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--ranks", "3"], "torchrun has started 2 ranks"), (["--rate", "1gbit"], "leave it out")]
)
def test_torchrun_decides_on_the_ranks(arguments, said, complains, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    complains(["bench", "exchange", *arguments], said)
