"""Ranks that are started, or joined: their results come back, their failures are shown, none is left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from laconic.exchange.launch import Host, RankFailed, start_ranks

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def forked_ranks():
    """None here: each rank is a new process."""


@pytest.fixture(autouse=True)
def rank_functions(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)


def ended(pid: int) -> bool:
    """Whether there is no such process, or only its entry that waits to be read by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_end(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not all(ended(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_results_come_back_in_order_and_nothing_is_left():
    told = []
    results = start_ranks("rank_functions:add", {"number": 5}, [Host()] * 3, progress=told.append)
    assert [r["rank"] for r in results] == [0, 1, 2]
    assert {r["sum"] for r in results} == {18.0}
    assert {r["threads"] for r in results} == {1}
    assert told == ["adding"]
    assert all(ended(r["pid"]) for r in results)


def test_the_failed_rank_is_shown():
    with pytest.raises(RankFailed, match=r"(?s)rank 1 ended with exit status 1.*the sky has fallen"):
        start_ranks("rank_functions:fail_on_one", {}, [Host()] * 2)


def test_time_is_limited(tmp_path):
    with pytest.raises(RankFailed, match=r"ranks \[0, 1\] were not done after 6 s"):
        start_ranks("rank_functions:sleep", {"notes": str(tmp_path)}, [Host()] * 2, timeout_seconds=6)
    assert all_end([int(note.name) for note in tmp_path.iterdir()])


STARTER = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
from laconic.exchange.launch import Host, start_ranks
start_ranks("rank_functions:sleep", {"notes": NOTES}, [Host()] * 2)
"""


@pytest.mark.parametrize("signal", ["SIGINT", "SIGKILL"])
def test_ranks_end_with_their_starter(signal, tmp_path):
    import signal as signals

    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER.replace("NOTES", repr(str(tmp_path)))], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        starter.send_signal(getattr(signals, signal))
        assert starter.wait(20) != 0
    finally:
        starter.kill()
        starter.wait()
    pids = [int(note.name) for note in tmp_path.iterdir()]
    assert len(pids) == 2
    assert all_end(pids)


def test_ranks_of_torchrun_are_joined(tmp_path):
    """As torchrun would start them, by its variables."""
    code = (
        "from laconic.exchange.launch import inside_torchrun, join_ranks;"
        "assert inside_torchrun();"
        "found = join_ranks('rank_functions:add', {'number': 1});"
        "import sys; sys.stderr.write('none' if found is None else str([r['sum'] for r in found]))"
    )
    port = str(20000 + os.getpid() % 20000)
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**common, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert said[0].endswith("[3.0, 3.0]")
    assert said[1].endswith("none")
