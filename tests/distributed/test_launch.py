"""Ranks that are started, or joined: their results come back, their failures are shown, none is left behind."""

import os
import signal as signals
import socket
import subprocess
import time
from pathlib import Path

import pytest

from forking import forked, run_script
from laconic.errors import ExchangeFailed, LaconicError, Option
from laconic.exchange import launch
from laconic.exchange.launch import Host, RankFailed, join_ranks, start_ranks

HERE = Path(__file__).parent


@pytest.fixture
def new_processes(monkeypatch):
    """Ranks are started anew here, not forked."""
    monkeypatch.setattr(launch, "subprocess", subprocess)


@pytest.fixture(autouse=True)
def rank_functions(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)


def ended(pid: int) -> bool:
    """Whether there is no such process, or only its entry that waits to be read by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_end(pids: list[int], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not all(ended(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_results_come_back_in_order_and_nothing_is_left(new_processes):
    told, threads = [], 3
    results = start_ranks("rank_functions:add", {"number": 5}, [Host()] * 2, threads=threads, progress=told.append)
    assert [r["rank"] for r in results] == [0, 1]
    assert {r["sum"] for r in results} == {11.0}
    assert {r["threads"] for r in results} == {threads}
    assert told == ["adding"]
    assert all(ended(r["pid"]) for r in results)


def test_the_failed_rank_is_shown():
    with pytest.raises(RankFailed, match=r"(?s)rank 1 ended with exit status 1.*the sky has fallen"):
        start_ranks("rank_functions:fail_on_one", {}, [Host()] * 2)


def test_a_killed_rank_is_one_line():
    with pytest.raises(LaconicError, match=r"^rank 1 was ended by signal 9 \(Killed\); was there enough memory\?$"):
        start_ranks("rank_functions:die", {}, [Host()] * 2)


@pytest.mark.parametrize(("wrong", "said"), [(0, "batch_size must be"), (1, "rank 1: batch_size must be")])
def test_an_error_of_the_function_is_raised_with_its_options(wrong, said):
    with pytest.raises(LaconicError, match=f"^{said} at least 1") as raised:
        start_ranks("rank_functions:refuse", {"wrong": wrong}, [Host()] * 2)
    assert Option("batch_size") in raised.value.parts


def test_time_is_limited(tmp_path):
    with pytest.raises(RankFailed, match=r"ranks \[0, 1\] were not done after 2 s"):
        start_ranks("rank_functions:sleep", {"notes": str(tmp_path)}, [Host()] * 2, timeout_seconds=2)
    assert all_end([int(note.name) for note in tmp_path.iterdir()])


def starter(rank, path, notes, size, pipe):
    """Starts ranks anew, from a fork."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ["PYTHONPATH"] = path
    signals.signal(signals.SIGINT, signals.default_int_handler)  # a shell may have started the tests with it ignored
    start_ranks("rank_functions:sleep", {"notes": notes}, [Host()] * size)


@pytest.mark.parametrize(("signal", "size"), [(signals.SIGINT, 2), (signals.SIGKILL, 1)])
def test_ranks_end_with_their_starter(signal, size, tmp_path):
    with forked(starter, 1, os.environ["PYTHONPATH"], str(tmp_path), size) as ((process,), _):
        deadline = time.monotonic() + 240
        while len(list(tmp_path.iterdir())) < size and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, signal)
        process.join(240)
        assert process.exitcode
    pids = [int(note.name) for note in tmp_path.iterdir()]
    assert len(pids) == size
    assert all_end(pids)


JOINED = """
from laconic.errors import LaconicError
from laconic.exchange.launch import inside_torchrun, join_ranks
assert inside_torchrun()
try:
    found = join_ranks(FUNCTION, ARGUMENTS)
    sys.stdout.write("none" if found is None else str([r["sum"] for r in found]))
except LaconicError as error:
    sys.stdout.write(str(error))
"""


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("add", {"number": 1}, "[3.0, 3.0]none"),
        ("refuse", {"wrong": 0}, "batch_size must be at least 1none"),
        ("refuse", {"wrong": 1}, "rank 1: batch_size must be at least 1none"),
    ],
)
def test_ranks_of_torchrun_are_joined(tmp_path, function, arguments, said):
    """Rank 0 has what all ranks returned, or the error; the others have nothing."""
    code = JOINED.replace("FUNCTION", repr(f"rank_functions:{function}")).replace("ARGUMENTS", repr(arguments))
    (tmp_path / "joined.py").write_text(f"import sys; sys.path.append({str(HERE)!r}); print = None\n{code}")
    run = run_script(tmp_path / "joined.py", tmp_path, 2)
    assert run.returncode == 0, run.stderr
    assert run.stdout.replace("not a result\n", "") == said


def test_a_port_that_is_taken_is_named(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(
            ExchangeFailed, match=f"cannot join the other ranks at 127.0.0.1:{port}: .* is that port free"
        ):
            join_ranks("rank_functions:add", {"number": 1})
