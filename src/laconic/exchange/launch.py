"""Start ranks on this machine, or join those that torchrun has started; what they return comes back as JSON."""

import importlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist

from laconic.errors import InvalidOption, Option
from laconic.exchange.agreement import gather_json
from laconic.exchange.communicator import Communicator

Tell = Callable[[str], None]
"""Called with what is being done now, for a progress bar."""
STDERR_CHARACTERS = 4000
GRACE_SECONDS = 5.0


class RankFailed(RuntimeError):
    """A rank ended without a result, or not in time."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a rank runs.

    address    of the host, as the others reach it
    interface  that Gloo is to use
    namespace  network namespace to run in; None for that of this process
    """

    address: str = "127.0.0.1"
    interface: str = "lo"
    namespace: str | None = None

    @property
    def command(self) -> list[str]:
        """What to put before a command to run it there."""
        if self.namespace is None:
            return []
        return [shutil.which("ip") or "ip", "netns", "exec", self.namespace]


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank process is told, as one line of JSON on its standard input.

    function   "module:name" of what to call, as name(tell, **arguments)
    arguments  plain JSON values
    store      file that the ranks find each other by; it can be reached from every namespace of this machine
    """

    function: str
    arguments: Mapping[str, Any]
    rank: int
    size: int
    store: str
    timeout_seconds: float


def inside_torchrun() -> bool:
    """Whether this process is itself a rank, as torchrun starts them."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def n_ranks(asked: int | None, default: int = 4) -> int:
    """How many ranks there will be: as many as asked for, or as torchrun has started."""
    if not inside_torchrun():
        return default if asked is None else asked
    size = int(os.environ["WORLD_SIZE"])
    if asked not in (None, size):
        ranks = Option("ranks")
        raise InvalidOption(f"torchrun has started {size} ranks and ", ranks, f" says {asked}; leave ", ranks, " out")
    return size


def join_ranks(function: str, arguments: Mapping[str, Any], *, timeout_seconds: float = 600.0) -> list[Any] | None:
    """Call `function` on this rank of torchrun; on rank 0, what each rank returned, and None on the others."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_seconds))
    try:
        comm = Communicator.over()
        results = gather_json(comm, _find(function)(lambda label: None, **arguments))
        return results if comm.rank == 0 else None
    finally:
        dist.destroy_process_group()


def start_ranks(
    function: str,
    arguments: Mapping[str, Any],
    hosts: Sequence[Host],
    *,
    timeout_seconds: float = 600.0,
    tell: Tell = lambda label: None,
) -> list[Any]:
    """Call `function` on one new process for each host, joined in a Gloo process group; what each rank returned.

    function   "module:name" of an importable function; called as name(tell, **arguments)
    arguments  plain JSON values; results must be such, too. Nothing is pickled
    tell       called here with whatever rank 0 tells

    Each process has one thread for torch and for our kernels. All are ended, by their own ids, before this returns or
    raises; they also end by themselves when this process is gone. `RankFailed` shows the error output of the rank that
    failed first.
    """
    with tempfile.TemporaryDirectory(prefix="laconic-") as folder:
        ranks: list[_Rank] = []
        try:
            for rank, host in enumerate(hosts):
                job = Job(function, arguments, rank, len(hosts), str(Path(folder, "store")), timeout_seconds)
                ranks.append(_Rank(job, host, Path(folder, f"stderr-{rank}")))
            return _results(ranks, timeout_seconds, tell)
        finally:
            _end(ranks)


def run_job(job: Job, tell: Tell) -> Any:
    """The work of one rank process."""
    torch.set_num_threads(1)
    timeout = timedelta(seconds=job.timeout_seconds)
    dist.init_process_group("gloo", f"file://{job.store}", timeout, job.size, job.rank)
    result = _find(job.function)(tell, **job.arguments)
    dist.barrier()  # so that no rank leaves while another still talks to it
    dist.destroy_process_group()
    return result


def _find(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


class _Rank:
    """A rank process and the thread that listens to it."""

    def __init__(self, job: Job, host: Host, stderr: Path) -> None:
        self.rank, self.stderr = job.rank, stderr
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        with stderr.open("w") as errors:
            self.process = subprocess.Popen(  # noqa: S603 (a list of our own arguments, no shell)
                [*host.command, sys.executable, "-m", "laconic.exchange.rank"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **threads, "GLOO_SOCKET_IFNAME": host.interface},
                start_new_session=True,  # Ctrl-C is ours to handle: we end the ranks
            )
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        try:
            _pipe(self.process.stdin).write(json.dumps(asdict(job)) + "\n")
            _pipe(self.process.stdin).flush()
        except BrokenPipeError:
            pass  # it has ended; the listener tells

    def _listen(self) -> None:
        for line in _pipe(self.process.stdout):
            self.events.put(json.loads(line))
        self.events.put({"ended": self.process.wait()})

    def complaint(self, code: int) -> str:
        """What a person should know about this rank's failure."""
        said = self.stderr.read_text(errors="replace").strip()[-STDERR_CHARACTERS:]
        return f"rank {self.rank} ended with exit status {code} and no result" + (f":\n{said}" if said else "")


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("the process was started without pipes")
    return stream


def _results(ranks: Sequence[_Rank], timeout_seconds: float, tell: Tell) -> list[Any]:
    """Listen to all ranks until each has given its result and ended, one has failed, or time is up."""
    deadline = time.monotonic() + timeout_seconds
    results: dict[int, Any] = {}
    running = {rank.rank: rank for rank in ranks}
    while running:
        if time.monotonic() > deadline:
            raise RankFailed(f"ranks {sorted(running)} were not done after {timeout_seconds:g} s")
        heard = False
        for number, rank in list(running.items()):
            while not rank.events.empty():
                event, heard = rank.events.get(), True
                if "result" in event:
                    results[number] = event["result"]
                elif "doing" in event:
                    tell(event["doing"])
                elif number not in results or event["ended"] != 0:
                    raise RankFailed(rank.complaint(event["ended"]))
                else:
                    del running[number]
        if not heard:
            time.sleep(0.02)
    return [results[number] for number in sorted(results)]


def _end(ranks: Sequence[_Rank]) -> None:
    """End the processes that still run, politely first."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for rank in ranks:
        try:
            rank.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.process.kill()
            rank.process.wait()
        rank.listener.join()
        for stream in (rank.process.stdin, rank.process.stdout):
            if stream is not None:
                stream.close()
