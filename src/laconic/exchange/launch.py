"""Start ranks on this machine, or join those that torchrun has started; what they return comes back as JSON."""

import atexit
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

import torch
import torch.distributed as dist

from laconic.errors import ExchangeFailed, InvalidOption, LaconicError, Option, from_json
from laconic.exchange.agreement import gather_json
from laconic.exchange.channel import backend_of, yielding_threads
from laconic.exchange.communicator import Communicator
from laconic.exchange.rank import BACKENDS, Job, Progress, outcome, use_gpu
from laconic.kernels import require_gpu

STDERR_CHARACTERS = 4000
GRACE_SECONDS = 5.0
_Events = queue.SimpleQueue[tuple[int, dict[str, Any]]]
"""What ranks write (see `rank`), and {"ended": exit status} as the last event of each."""


class RankFailed(RuntimeError):
    """A rank ended without a result, or not in time."""


class RankKilled(LaconicError, RankFailed):
    """A rank was ended by a signal, and has nothing to show."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a rank runs.

    address    of the host, as the others reach it
    interface  that Gloo and NCCL are to use
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

    def environment(self, rank: int, *, shared: bool = False) -> dict[str, str]:
        """Variables that make Gloo and NCCL use the host's interface.

        shared  whether ranks share GPUs. NCCL refuses two ranks on one GPU if they are on one host, which it takes from
                NCCL_HOSTID; ranks of one host with a GPU each keep the fast paths between them
        """
        found = {"GLOO_SOCKET_IFNAME": self.interface}
        if shared or self.namespace is not None:
            found |= {"NCCL_HOSTID": f"laconic-{rank}", "NCCL_SOCKET_IFNAME": self.interface, "NCCL_IB_DISABLE": "1"}
        return found


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


def default_communicator() -> Communicator:
    """All ranks of the default process group; without one, this process alone.

    Under torchrun (RANK and WORLD_SIZE are in the environment) a script that has set up no process group gets one over
    Gloo, once, which is left when the script ends. So the same script runs alone and on many ranks. Where the default
    group is NCCL alone, a second group of the same ranks carries data of the host, too.

    >>> default_communicator().size
    1
    """
    if not dist.is_initialized() and inside_torchrun() and int(os.environ["WORLD_SIZE"]) > 1:
        with yielding_threads():
            dist.init_process_group("gloo")
        atexit.register(_leave)
    world = dist.group.WORLD
    if world is None or backend_of(world):
        return Communicator.over()
    if _beside[:1] != [world]:
        with yielding_threads():
            _beside[:] = [world, dist.new_group(backend=BACKENDS["cuda"])]
    return Communicator.over(_beside[1])


_beside: list[dist.ProcessGroup] = []
"""The default process group if it carries no tensors of the CPU, and one of the same ranks that carries both."""


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def device_of_ranks(device: str | None, size: int, *, share_gpu: bool) -> str:
    """What ranks of a job for `device` need to send: "cuda" for tensors of GPUs; else "cpu". GPUs must be there.

    share_gpu  whether ranks may share GPUs, where this machine has fewer GPUs than ranks

    >>> device_of_ranks("cpu", 4, share_gpu=False), device_of_ranks("auto", 4, share_gpu=False)
    ('cpu', 'cpu')
    """
    if device is None or not device.startswith("cuda"):
        return "cpu"
    if size > 1 and device != "cuda":
        why = f" is one GPU, and there are {size} ranks; with "
        raise InvalidOption(Option("device", device), why, Option("device", "cuda"), " each takes its own")
    require_gpu(device)
    if size == 1:
        return "cpu"
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in os.environ else size
    if share_gpus(here) and not share_gpu:
        few = f"{here} ranks have {torch.cuda.device_count()} GPU here; give "
        raise InvalidOption(few, Option("share_gpu", True), ", or fewer ", Option("ranks"))
    return "cuda"


def share_gpus(size: int) -> bool:
    """Whether ranks of this machine must share GPUs: more ranks than GPUs."""
    return size > torch.cuda.device_count()


def join_ranks(
    function: str, arguments: Mapping[str, Any], *, device: str = "cpu", timeout_seconds: float = 600.0
) -> list[Any] | None:
    """Call `function` on this rank of torchrun; on rank 0, what each rank returned, and None on the others.

    device  "cuda" for ranks that also send tensors of their GPU, over NCCL

    If the function raises a `LaconicError`, rank 0 raises it. Raises `ExchangeFailed` if the ranks do not find each
    other.
    """
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda" and share_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))):
        os.environ.update(Host().environment(int(os.environ["RANK"]), shared=True))
    use_gpu(device, local)
    try:
        dist.init_process_group(BACKENDS[device], timeout=timedelta(seconds=timeout_seconds))
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        master = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        why = str(error).splitlines()[0]
        raise ExchangeFailed(
            f"cannot join the other ranks at {master}: {why}; is that port free for rank 0?"
        ) from error
    try:
        comm = Communicator.over()
        outcomes = gather_json(comm, outcome(function, arguments, lambda text: None))
        return _results(dict(enumerate(outcomes))) if comm.rank == 0 else None
    finally:
        dist.destroy_process_group()


def start_ranks(
    function: str,
    arguments: Mapping[str, Any],
    hosts: Sequence[Host],
    *,
    device: str = "cpu",
    threads: int = 1,
    timeout_seconds: float = 600.0,
    progress: Progress = lambda text: None,
) -> list[Any]:
    """Call `function` on one new process per host, joined in a process group; what each rank returned.

    function   "module:name" of an importable function; called as name(progress, **arguments)
    arguments  plain JSON values; results must be such, too. Nothing is pickled
    device     "cpu": Gloo carries all messages. "cuda": each rank has a GPU, whose tensors NCCL carries; ranks share
               GPUs where there are fewer
    threads    of each process, for torch and for our kernels
    progress   called here with the texts that rank 0 calls its own with

    All are ended, by their own ids, before this returns or
    raises; they also end by themselves when this process is gone. A `LaconicError` of the function is raised here; for
    any other failure `RankFailed` shows the error output of the rank that failed first.
    """
    with tempfile.TemporaryDirectory(prefix="laconic-") as folder:
        ranks: list[_Rank] = []
        events: _Events = queue.SimpleQueue()
        try:
            for rank, host in enumerate(hosts):
                job = Job(
                    function, arguments, rank, len(hosts), str(Path(folder, "store")), timeout_seconds, device, threads
                )
                ranks.append(_Rank(job, host, Path(folder, f"stderr-{rank}"), events))
            return _results(_outcomes(ranks, events, timeout_seconds, progress))
        finally:
            _end(ranks)


class _Rank:
    """A rank process and the thread that listens to it."""

    def __init__(self, job: Job, host: Host, stderr: Path, events: _Events) -> None:
        self.rank, self.stderr, self.events = job.rank, stderr, events
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(job.threads))
        network = host.environment(job.rank, shared=job.device == "cuda" and share_gpus(job.size))
        with stderr.open("w") as errors:
            self.process = subprocess.Popen(  # noqa: S603 (a list of our own arguments, no shell)
                [*host.command, sys.executable, "-m", "laconic.exchange.rank"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **threads, **network},
                start_new_session=True,  # Ctrl-C is ours to handle: we end the ranks
            )
        self.stdin, self.stdout = cast(IO[str], self.process.stdin), cast(IO[str], self.process.stdout)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        try:
            self.stdin.write(json.dumps(asdict(job)) + "\n")
            self.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; the listener tells

    def _listen(self) -> None:
        for line in self.stdout:
            self.events.put((self.rank, json.loads(line)))
        self.events.put((self.rank, {"ended": self.process.wait()}))

    def failure(self, code: int) -> RankFailed:
        """That it ended without a result; with the end of its error output, unless a signal has ended it."""
        if code < 0:
            memory = "; was there enough memory?" if -code == signal.SIGKILL else ""
            return RankKilled(f"rank {self.rank} was ended by signal {-code} ({signal.strsignal(-code)}){memory}")
        output = self.stderr.read_text(errors="replace").strip()[-STDERR_CHARACTERS:]
        return RankFailed(
            f"rank {self.rank} ended with exit status {code} and no result" + (f":\n{output}" if output else "")
        )


def _outcomes(ranks: Sequence[_Rank], events: _Events, timeout: float, progress: Progress) -> dict[int, dict[str, Any]]:
    """Listen to all ranks until each has given its outcome and ended, one has failed, or time is up.

    Ranks that do not answer soon after another's error are waited for no longer.
    """
    deadline = time.monotonic() + timeout
    outcomes: dict[int, dict[str, Any]] = {}
    running = set(range(len(ranks)))
    while running:
        try:
            rank, event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if any("error" in found for found in outcomes.values()):
                break
            raise RankFailed(f"ranks {sorted(running)} were not done after {timeout:g} s") from None
        if "progress" in event:
            progress(event["progress"])
        elif "ended" not in event:
            outcomes[rank] = event
            if "error" in event:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        elif rank not in outcomes or event["ended"] != 0:
            raise ranks[rank].failure(event["ended"])
        else:
            running.remove(rank)
    return outcomes


def _results(outcomes: Mapping[int, Mapping[str, Any]]) -> list[Any]:
    """The results in the order of ranks; the error of the first rank that had one is raised."""
    by_rank = [found for _, found in sorted(outcomes.items())]
    for found in by_rank:
        if "error" in found:
            raise LaconicError(*from_json(found["error"]))
    return [found["result"] for found in by_rank]


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
        rank.stdin.close()
        rank.stdout.close()
