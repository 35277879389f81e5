"""Processes as forks of one that has imported torch and compiled kernels: importing them takes seconds, each time.

`forked(function, n)` runs a function in several of them, `run_script` a script, `run_code` code. `popen` stands in for
`Popen` in `start_ranks` (fixture `forked_ranks`). All forks share Python's seed of hashes; what must hold for processes
that do not is tested under torchrun, by `distributed/test_readme.py`.
"""

import os
import runpy
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.connection import wait
from pathlib import Path

import pytest

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "laconic.bench.fsdp", "forking", "warm"])


class Fork(CONTEXT.Process):
    """A process of the server, which finds `warm` by PYTHONPATH: before Python 3.13 it does not look at sys.path."""

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
            forkserver.ensure_running()
        super().start()


CONTEXT.Process = Fork


@contextmanager
def forked(function, size: int, *arguments):
    """Processes that call function(rank, *arguments, pipe), and our ends of their pipes, which close at the end."""
    pipes = [CONTEXT.Pipe() for _ in range(size)]
    calls = [(function, rank, *arguments, theirs) for rank, (_, theirs) in enumerate(pipes)]
    ranks = [CONTEXT.Process(target=_call, args=call, daemon=True) for call in calls]
    try:
        for rank, (_, theirs) in zip(ranks, pipes, strict=True):
            rank.start()
            theirs.close()
        yield ranks, [ours for ours, _ in pipes]
    finally:
        for ours, _ in pipes:
            ours.close()
        for rank in ranks:
            rank.join(60)


def _call(function, *arguments) -> None:
    begin()
    function(*arguments)


def begin() -> None:
    """What an interpreter that has just been started has of its own."""
    import numpy as np
    import torch

    np.random.seed()  # noqa: NPY002 (the generator that all forks have a copy of)
    torch.set_num_threads(1)


def run_script(script, folder, ranks: int = 0, restarts: int = 0) -> subprocess.CompletedProcess:
    """`python script` in a folder or, where there are ranks, `torchrun --nproc-per-node ranks script`."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if ranks else None
    with tempfile.TemporaryDirectory() as streams:
        for attempt in range(1 + restarts):
            envs = [_torchrun(rank, ranks, store, attempt) for rank in range(ranks)] or [{}]
            calls = [(str(script), str(folder), f"{streams}/{rank}", env) for rank, env in enumerate(envs)]
            forks = [CONTEXT.Process(target=_be_a_script, args=call, daemon=True) for call in calls]
            for fork in forks:
                fork.start()
            if (code := _all_done(forks)) == 0:
                break
        said, complained = (
            "".join(path.read_text() for path in sorted(Path(streams).glob(f"*.{stream}"))) for stream in ("out", "err")
        )
    return subprocess.CompletedProcess(str(script), code, said, complained)


def run_code(code: str, folder, *forgotten: str) -> subprocess.CompletedProcess:
    """`python -c code` where torch is imported, but not laconic, nor those packages, which may be imported anew."""
    forgotten = ("laconic", "laconic_command", *forgotten)
    forget = f"import sys\nfor m in [m for m in sys.modules if m.split('.')[0] in {forgotten}]: del sys.modules[m]\n"
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".py") as script:
        script.write(forget + code)
        script.flush()
        return run_script(script.name, folder)


def _all_done(forks) -> int:
    """0 when all have ended well; where one fails the others are ended, as torchrun does."""
    running = {fork.sentinel: fork for fork in forks}
    while running:
        for sentinel in wait(list(running)):
            fork = running.pop(sentinel)
            fork.join()
            if fork.exitcode:
                for other in running.values():
                    other.terminate()
                    other.join()
                return abs(fork.exitcode)
    return 0


def torchrun(script, folder, ranks: int, restarts: int = 0) -> subprocess.CompletedProcess:
    """torchrun itself, which takes seconds longer."""
    options = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


TORCHRUN = [run_script, pytest.param(torchrun, marks=pytest.mark.exhaustive)]
"""How to start the ranks of a script, as the values of a parameter."""


def _torchrun(rank: int, ranks: int, store, attempt: int) -> dict[str, str]:
    """The variables that torchrun sets."""
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "GROUP_RANK": 0}
    elastic = {"RUN_ID": "forked", "RESTART_COUNT": attempt, "MAX_RESTARTS": 1, "USE_AGENT_STORE": True}
    values |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    values |= {f"TORCHELASTIC_{name}": value for name, value in elastic.items()}
    return {name: str(value) for name, value in values.items()}


def _be_a_script(script: str, folder: str, streams: str, env: dict[str, str]) -> None:
    for number, stream in enumerate(("out", "err"), 1):
        os.dup2(os.open(f"{streams}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(folder)
    os.environ.update(env)
    sys.argv = [script]
    begin()
    runpy.run_path(script, run_name="__main__")


def _be_a_rank(stdin, stdout, stderr: str, env: dict[str, str]) -> None:
    """`python -m laconic.exchange.rank` with these streams and this environment."""
    os.setsid()
    for number, stream in enumerate((stdin.fileno(), stdout.fileno(), os.open(stderr, os.O_WRONLY | os.O_APPEND))):
        os.dup2(stream, number)
    stdin.close(), stdout.close()
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    begin()
    runpy.run_module("laconic.exchange.rank", run_name="__main__", alter_sys=True)


def popen(command, **options):
    """For `start_ranks`: a fork, or a new process for a host in a network namespace."""
    if command != [sys.executable, "-m", "laconic.exchange.rank"]:
        return subprocess.Popen(command, **options)
    return Rank(options["stderr"], options["env"])


class Rank:
    """As much of `subprocess.Popen` as `start_ranks` uses."""

    def __init__(self, stderr, env: dict[str, str]) -> None:
        (reads, stdin), (stdout, writes) = CONTEXT.Pipe(duplex=False), CONTEXT.Pipe(duplex=False)
        self._fork = CONTEXT.Process(target=_be_a_rank, args=(reads, writes, stderr.name, env), daemon=True)
        self._fork.start()
        self._lock = threading.Lock()
        self.stdin, self.stdout = os.fdopen(os.dup(stdin.fileno()), "w"), os.fdopen(os.dup(stdout.fileno()))
        for end in (reads, stdin, stdout, writes):
            end.close()
        self.pid, self.terminate, self.kill = self._fork.pid, self._fork.terminate, self._fork.kill

    @property
    def returncode(self) -> int | None:
        with self._lock:  # a fork's exit code can be read once
            return self._fork.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not wait([self._fork.sentinel], timeout):
            raise subprocess.TimeoutExpired("a rank", timeout)
        return self.returncode
