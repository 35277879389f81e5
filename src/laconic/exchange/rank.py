"""One rank process, as `launch.start_ranks` starts it: `python -m laconic.exchange.rank` with a job on standard input.

What it writes on standard output, one JSON object per line: {"progress": text} any number of times, on rank 0; then
{"result": value}, or {"error": parts} if the function raised a `LaconicError`, whose parts the starter raises again.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any

import torch
import torch.distributed as dist

from laconic.errors import LaconicError

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""By device of the ranks' tensors, the backend of their process group; CPU tensors always go over Gloo."""
Progress = Callable[[str], None]
"""Called with what is being done now, for a progress bar."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank process is to do; one line of JSON on its standard input. See `launch.start_ranks`.

    store  file through which the ranks find each other; it can be reached from every namespace of this machine
    """

    function: str
    arguments: Mapping[str, Any]
    rank: int
    size: int
    store: str
    timeout_seconds: float
    device: str = "cpu"
    threads: int = 1


def use_gpu(device: str, local_rank: int) -> None:
    """Make a GPU of this machine the current one, if `device` is "cuda"; ranks share GPUs if there are fewer."""
    if device == "cuda":
        torch.cuda.set_device(local_rank % torch.cuda.device_count())


def outcome(function: str, arguments: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Call a function: {"result": value}, or {"error": parts} if it raised a `LaconicError`."""
    try:
        return {"result": resolve_name(function)(progress, **arguments)}
    except LaconicError as error:
        return {"error": error.to_json()}


def main() -> None:
    """Read the job, do it, write its outcome; end at once when the starter is gone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_starter, daemon=True).start()

    def write(event: Mapping[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    write(_run(job, lambda text: write({"progress": text}) if job.rank == 0 else None))
    sys.stderr.flush()
    os._exit(0)  # threads of process groups may still run; the result is written


def _run(job: Job, progress: Progress) -> dict[str, Any]:
    """Join the other ranks and do the job."""
    torch.set_num_threads(job.threads)
    timeout = timedelta(seconds=job.timeout_seconds)
    use_gpu(job.device, job.rank)
    dist.init_process_group(BACKENDS[job.device], f"file://{job.store}", timeout, job.size, job.rank)
    found = outcome(job.function, job.arguments, progress)
    if "result" in found:
        dist.barrier()  # so that no rank leaves while another still talks to it
        dist.destroy_process_group()
    return found


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
