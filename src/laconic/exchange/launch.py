"""Start ranks on this machine, or join those that torchrun has started; what they return comes back as JSON."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import lru_cache
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
Outcome = dict[str, Any]
"""{"result": value} or {"error": parts}: see `rank`."""


class RankFailed(RuntimeError):
    """A rank ended without a result, or not in time."""


class RankKilled(LaconicError, RankFailed):
    """A rank was ended by a signal, without an error message."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a rank runs: its address, the interface for Gloo and NCCL, and the network namespace, if it has its own."""

    address: str = "127.0.0.1"
    interface: str = "lo"
    namespace: str | None = None

    @property
    def command(self) -> list[str]:
        """Words to put before a command to run it on this host."""
        return [shutil.which("ip") or "ip", "netns", "exec", self.namespace] if self.namespace else []

    def environment(self, rank: int, *, shared: bool = False) -> dict[str, str]:
        """Variables that make Gloo and NCCL use the host's interface.

        shared  whether ranks share GPUs: NCCL refuses two ranks on one GPU if by NCCL_HOSTID they are on one host
        """
        found = {"GLOO_SOCKET_IFNAME": self.interface}
        if shared or self.namespace is not None:
            found |= {"NCCL_HOSTID": f"laconic-{rank}", "NCCL_SOCKET_IFNAME": self.interface, "NCCL_IB_DISABLE": "1"}
        return found


def inside_torchrun() -> bool:
    """Whether this process is itself a rank, as torchrun starts them."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def n_ranks(asked: int | None, default: int = 4) -> int:
    """The number of ranks: as many as asked for, or as torchrun has started."""
    if not inside_torchrun():
        return default if asked is None else asked
    size = int(os.environ["WORLD_SIZE"])
    if asked not in (None, size):
        ranks = Option("ranks")
        raise InvalidOption(f"torchrun has started {size} ranks and ", ranks, f" says {asked}; leave ", ranks, " out")
    return size


def default_communicator() -> Communicator:
    """All ranks of the default process group; without one, this process alone.

    Under torchrun a script without a process group gets one over Gloo, destroyed at exit. So the same script runs alone
    and on many ranks. Where the default group is NCCL alone, a second group of the same ranks carries CPU tensors too.

    >>> default_communicator().size
    1
    """
    if not dist.is_initialized() and inside_torchrun() and int(os.environ["WORLD_SIZE"]) > 1:
        with yielding_threads():
            dist.init_process_group("gloo")
        atexit.register(_leave)
    world = dist.group.WORLD
    return Communicator.over() if world is None or backend_of(world) else Communicator.over(_beside(world))


@lru_cache(maxsize=1)
def _beside(world: dist.ProcessGroup) -> dist.ProcessGroup:
    """A group of the default group's ranks that carries CPU tensors too."""
    with yielding_threads():
        return dist.new_group(backend=BACKENDS["cuda"])  # type: ignore[no-any-return]


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def device_of_ranks(device: str | None, size: int, *, share_gpu: bool) -> str:
    """The `device` of `start_ranks` and `join_ranks` for a job on `device`: "cuda", or "cpu" if no GPU sends anything.

    Raises `InvalidOption` if there are no GPUs, or fewer than ranks and these may not share them (`share_gpu`).

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

    The arguments are those of `start_ranks`. If the function raises a `LaconicError`, rank 0 raises it; raises
    `ExchangeFailed` if the ranks do not find each other.
    """
    if device == "cuda" and share_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", "1"))):
        os.environ.update(Host().environment(int(os.environ["RANK"]), shared=True))
    use_gpu(device, int(os.environ.get("LOCAL_RANK", "0")))
    try:
        dist.init_process_group(BACKENDS[device], timeout=timedelta(seconds=timeout_seconds))
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        master = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        why = f"{str(error).splitlines()[0]}; is that port free for rank 0?"
        raise ExchangeFailed(f"cannot join the other ranks at {master}: {why}") from error
    try:
        comm = Communicator.over()
        outcomes = gather_json(comm, outcome(function, arguments, lambda text: None))
        return _results(outcomes) if comm.rank == 0 else None
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
    arguments  plain JSON values, as results must be. Nothing is pickled
    device     "cpu": Gloo carries all messages. "cuda": each rank has a GPU, whose tensors NCCL carries; ranks share
               GPUs where there are fewer
    threads    of each process, for torch and for our kernels
    progress   called in this process with the progress texts of rank 0

    All processes are ended before this returns or raises; they also end by themselves when this process is gone. A
    `LaconicError` of the function is raised here; for any other failure `RankFailed` shows the error output of the rank
    that failed first.
    """
    processes: list[subprocess.Popen[str]] = []
    listeners: list[Future[Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="laconic-") as folder, ThreadPoolExecutor(len(hosts)) as pool:
        try:
            for rank, host in enumerate(hosts):
                store, stderr = Path(folder, "store"), Path(folder, f"stderr-{rank}")
                job = Job(function, arguments, rank, len(hosts), str(store), timeout_seconds, device, threads)
                processes.append(_start(job, host, stderr))
                listeners.append(pool.submit(_listen, rank, processes[-1], stderr, progress))
            return _results(_outcomes(listeners, timeout_seconds))
        finally:
            _end(processes)


def _start(job: Job, host: Host, stderr: Path) -> subprocess.Popen[str]:
    """A rank process with its job; its error output goes to a file."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(job.threads))
    network = host.environment(job.rank, shared=job.device == "cuda" and share_gpus(job.size))
    with stderr.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603 (a list of our own arguments, no shell)
            [*host.command, sys.executable, "-m", "laconic.exchange.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **threads, **network},
            start_new_session=True,  # Ctrl-C is ours to handle: we end the ranks
        )
    with suppress(BrokenPipeError):  # it has ended already, which `_listen` reports
        stdin = cast(IO[str], process.stdin)
        stdin.write(json.dumps(asdict(job)) + "\n")
        stdin.flush()
    return process


def _listen(rank: int, process: subprocess.Popen[str], stderr: Path, progress: Progress) -> Outcome:
    """The outcome that a rank writes (see `rank`), once its process has ended; raises `RankFailed` if there is none.

    The error shows the end of the rank's error output, unless a signal has ended it.
    """
    found: Outcome = {}
    with cast(IO[str], process.stdout) as lines:
        for line in lines:
            event = json.loads(line)
            if "progress" in event:
                progress(event["progress"])
            else:
                found = event
    code = process.wait()
    if code < 0:
        memory = "; was there enough memory?" if -code == signal.SIGKILL else ""
        raise RankKilled(f"rank {rank} was ended by signal {-code} ({signal.strsignal(-code)}){memory}")
    if code or not found:
        output = stderr.read_text(errors="replace").strip()[-STDERR_CHARACTERS:]
        raise RankFailed(f"rank {rank} ended with exit status {code} and no result{output and ':'}\n{output}".strip())
    return found


def _outcomes(listeners: Sequence[Future[Outcome]], timeout: float) -> list[Outcome]:
    """The outcomes of ranks, once all have ended or one has failed; raises `RankFailed` after `timeout` seconds.

    Ranks that do not end within `GRACE_SECONDS` of another's error are left out.
    """
    done: set[Future[Outcome]] = set()
    try:
        for listener in as_completed(listeners, timeout):
            done.add(listener)
            if "error" in listener.result():
                done, _ = wait(listeners, GRACE_SECONDS)
                break
    except TimeoutError:
        late = [rank for rank, listener in enumerate(listeners) if listener not in done]
        raise RankFailed(f"ranks {late} were not done after {timeout:g} s") from None
    return [listener.result() for listener in listeners if listener in done]


def _results(outcomes: Sequence[Outcome]) -> list[Any]:
    """The results of ranks; raises the error of the first rank that had one."""
    for found in outcomes:
        if "error" in found:
            raise LaconicError(*from_json(found["error"]))
    return [found["result"] for found in outcomes]


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End the processes that still run: SIGTERM, then SIGKILL."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        cast(IO[str], process.stdin).close()
