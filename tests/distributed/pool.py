"""Pools of rank processes for the distributed tests, forked from a process that has imported torch.

They share Python's seed of hashes; `test_readme.py` starts ranks under torchrun, which do not.

`pool.run(function, size, **kwargs)` calls `function(group, **kwargs)` on ranks 0 to size - 1, in a process group of
just those ranks, and returns what each rank returned. An exception on any rank is raised here, with the rank's name.

With `device="cuda"` the ranks share one GPU, the default process group is NCCL, and `models` makes tensors there.
"""

import os
import pickle
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

from forking import CONTEXT, begin

N_RANKS = 4
SECONDS = 120
"""For which ranks wait for each other: kernels may have to be compiled, on a machine that has other work."""


@contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """Variables for processes that share a GPU: with an MPS server of their own, where this machine has one.

    By time slices the ranks of a collective would wait for each other's, some milliseconds for every step of it.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        found = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder} if control else {}
        if control:
            subprocess.run([control, "-d"], env=os.environ | found, check=False)
        try:
            yield found
        finally:
            if control:
                subprocess.run([control], input="quit", text=True, env=os.environ | found, check=False, timeout=30)


def _serve(rank: int, store: str, device: str, environment: dict[str, str], pipe: Connection) -> None:
    import models
    import torch
    import torch.distributed as dist

    from laconic.exchange.launch import Host
    from laconic.exchange.rank import use_gpu

    begin()
    os.environ.update(Host().environment(rank, shared=device == "cuda") | environment)
    use_gpu(device, rank)
    models.device = torch.device(device)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, f"file://{store}", timedelta(seconds=SECONDS), N_RANKS, rank)
    groups = {size: dist.new_group(list(range(size))) for size in range(1, N_RANKS + 1)}
    while (job := pipe.recv()) is not None:
        function, size, kwargs = job
        try:
            found = function(groups[size], **kwargs)
            found = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, found)
            outcome = pickle.dumps((True, found))  # `pipe.send` would open shared memory for every tensor
        except BaseException as error:  # noqa: BLE001 (reported to the test)
            outcome = pickle.dumps((False, (type(error).__name__, str(error), traceback.format_exc())))
        pipe.send_bytes(outcome)
    os._exit(0)  # rank processes hold many process groups; taking them down in order brings nothing


class RankError(AssertionError):
    """An exception on a rank."""

    def __init__(self, rank: int, kind: str, message: str, trace: str) -> None:
        super().__init__(f"rank {rank}: {kind}: {message}\n{trace}")
        self.rank, self.kind, self.message = rank, kind, message


class RankPool:
    """The processes, and a pipe to each."""

    def __init__(self, device: str = "cpu") -> None:
        self.open = ExitStack()
        folder = self.open.enter_context(tempfile.TemporaryDirectory())
        environment = self.open.enter_context(shared_gpu()) if device == "cuda" else {}
        self.pipes, self.processes = [], []
        for rank in range(N_RANKS):
            ours, theirs = CONTEXT.Pipe()
            args = (rank, f"{folder}/store", device, environment, theirs)
            process = CONTEXT.Process(target=_serve, args=args, daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def outcomes(self, function: Callable[..., Any], size: int, **kwargs: Any) -> list[tuple[bool, Any]]:
        """(True, result) or (False, (kind, message, trace)) for each rank."""
        for pipe in self.pipes[:size]:
            pipe.send((function, size, kwargs))
        waiting, results = dict(enumerate(self.pipes[:size])), {}
        while waiting:
            ready = wait(list(waiting.values()), timeout=2 * SECONDS)
            if not ready:
                raise TimeoutError(f"ranks {sorted(waiting)} did not answer")
            for rank in [r for r, pipe in waiting.items() if pipe in ready]:
                results[rank] = pickle.loads(waiting.pop(rank).recv_bytes())  # noqa: S301 (of our own fork)
        return [results[rank] for rank in range(size)]

    def run(self, function: Callable[..., Any], size: int, **kwargs: Any) -> list[Any]:
        """What each rank returned."""
        outcomes = self.outcomes(function, size, **kwargs)
        for rank, (good, result) in enumerate(outcomes):
            if not good:
                raise RankError(rank, *result)
        return [result for _, result in outcomes]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(10)
        self.open.close()
