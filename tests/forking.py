"""Processes as forks of one that has imported torch and compiled kernels: importing them takes seconds, each time.

`forked(function, n)` runs a function in several of them. `popen` stands in for `subprocess.Popen` in `start_ranks`
(fixture `forked_ranks`). All forks share Python's seed of hashes; what must hold for processes that do not is tested by
the pool of `tests/distributed` and under torchrun.
"""

import os
import runpy
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import wait

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "laconic.training", "laconic.kernels.cpu", "laconic.glm.job"])


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
