"""Plan the runs, the most informative first, and run them in parallel processes until time is up.

A finished run is a file of its own, NAME.json, and is never run again. One that was stopped or killed has left
NAME.safetensors (tensors, and in its metadata the job and the log), from which it is resumed. Both are written
atomically.
"""

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from benchmarks.training.run import TASKS, Job, Training
from laconic.atomic_write import atomic_write
from laconic.bench.suite import Progress
from laconic.errors import InvalidOption, Option
from laconic.measure.environment import n_cores
from laconic.report.values import Row

DECIDING = {
    "cnn-sgd": ["fp32", "dithered-1", "dithered-3", "dithered-10", "nuqsgd-4/8192"],
    "lm-adamw": ["fp32", "dithered-0.1@metric", "dithered-0.277@metric", "dithered-0.5@metric", "nuqsgd-4/512"],
    "lm-sgd": [],
}
"""Members that decide defaults, run with every number of workers."""
OTHERS = {
    "cnn-sgd": ["dithered-0.5", "dithered-0.3", "rotated-2", "nuqsgd-2/512", "qsgdinf-4/512", "ef-sign",
                "nuqsgd-4/512", "bf16"],
    "lm-adamw": ["dithered-0.2@metric", "dithered-0.277/512", "qsgdinf-4/512", "nuqsgd-4/8192", "rotated-2",
                 "rotated-4", "dithered-0.277", "dithered-0.1/512", "dithered-0.277/tensor", "nuqsgd-4/512@metric",
                 "dithered-0.05@metric", "bf16", "rotated-3", "dithered-0.1", "dithered-0.1/tensor", "nuqsgd-3/512",
                 "nuqsgd-2/512"],
    "lm-sgd": ["fp32", "dithered-1", "nuqsgd-4/8192", "dithered-10", "dithered-3", "ef-sign", "rotated-2"],
}  # fmt: skip
"""Other members, run only with the first number of workers."""
SAVE_EVERY = 60.0
"""Seconds between two checkpoints of a run."""


def planned(tasks: Sequence[str], workers: Sequence[int], members: Sequence[str] | None) -> list[tuple[str, str, int]]:
    """(task, member, workers) of the runs, the most informative first; if given, only of `members`, with all workers.

    >>> planned(["cnn-sgd"], [4, 16], None)[:2]
    [('cnn-sgd', 'fp32', 4), ('cnn-sgd', 'dithered-1', 4)]
    """
    if members is not None:
        return [(task, member, n) for n, member, task in product(workers, members, tasks)]
    deciding = [(task, member, n) for n in workers for task in tasks for member in DECIDING[task]]
    return deciding + [(task, member, workers[0]) for task in tasks for member in OTHERS[task]]


def file_of(job: Job, folder: Path) -> Path:
    """The file of a job's result."""
    return folder / (re.sub(r"[^\w.]+", "-", job.label) + ".json")


def result_of(job: Job, folder: Path) -> dict[str, Any] | None:
    """A job's result, or None if it has not finished. Raises `InvalidOption` if it was run with other settings."""
    path = file_of(job, folder)
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    check_same(path, found["job"], job.settings())
    return found


def keep(runs: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write the finished runs of a document to a folder, as if they had been run there."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        path = file_of(Job(**{one.name: run["job"][one.name] for one in fields(Job) if one.name in run["job"]}), folder)
        if not path.is_file():
            _write_result(path, run)


def _write_result(path: Path, run: Mapping[str, Any]) -> None:
    with atomic_write(path) as file:
        json.dump(run, file, indent=2, allow_nan=False)


def check_same(path: Path, was: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` if a file of this name is from a job or a measurement with other settings."""
    for name, value in settings.items():
        if was.get(name) != value:
            why = f" has {path.name} with {name} = {was.get(name)}, not {value}; give another folder"
            raise InvalidOption(Option("out"), why)


def run_job(job: Job, folder: Path, until: float) -> None:
    """Run or resume a job until it is finished or time is up; write its result, or a checkpoint.

    A process of a pool whose parent was killed writes a checkpoint and ends: nobody waits for it.
    """
    if time.time() >= until:
        return
    run, path = Training(job), file_of(job, folder)
    checkpoint = path.with_suffix(".safetensors")
    if checkpoint.is_file():
        run.restore(*_read(checkpoint, job))
    saved, parent = time.time(), parent_process()
    while run.done < run.rounds and time.time() < until and (parent is None or parent.is_alive()):
        run.advance()
        if time.time() > saved + SAVE_EVERY:
            _write(checkpoint, job, run)
            saved = time.time()
    if run.done < run.rounds:
        _write(checkpoint, job, run)
        if parent is not None and not parent.is_alive():
            os._exit(1)
        return
    _write_result(path, {"job": job.settings(), "result": run.result()})
    checkpoint.unlink(missing_ok=True)


def _write(path: Path, job: Job, run: Training) -> None:
    tensors, log = run.state()
    there = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with atomic_write(path, "wb", encoding=None) as file:
        file.write(save(there, {"job": json.dumps(job.settings()), "log": json.dumps(log)}))


def _read(path: Path, job: Job) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    with safe_open(path, "pt") as file:
        said = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    check_same(path, json.loads(said["job"]), job.settings())
    return tensors, json.loads(said["log"])


def run_jobs(
    jobs: Sequence[Job], folder: Path, processes: int, seconds: float, progress: Progress
) -> list[dict[str, Any]]:
    """Run unfinished jobs, stopping after `seconds`; returns all results so far, in the jobs' order."""
    folder.mkdir(parents=True, exist_ok=True)
    until = time.time() + seconds
    missing = [job for job in jobs if result_of(job, folder) is None]
    if processes == 1:
        for job in missing:
            progress(job.label)
            run_job(job, folder, until)
    else:
        _side_by_side(missing, folder, processes, until, progress)
    return [found for job in jobs if (found := result_of(job, folder)) is not None]


def _side_by_side(jobs: Sequence[Job], folder: Path, processes: int, until: float, progress: Progress) -> None:
    """Run jobs in parallel processes; one that fails is reported and does not stop the others."""
    threads = max(1, n_cores() // processes)
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        started = {pool.submit(run_job, job, folder, until): job for job in jobs}
        for done in as_completed(started):
            progress(started[done].label)
            if error := done.exception():
                print(f"{started[done].label}: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201


def left_out(document: Row) -> list[str]:
    """A sentence on what was left out for lack of time, according to a document."""
    left = document.get("left_out")
    return [f"Not measured, as time was up: {', '.join(map(str, left))}."] if isinstance(left, list) and left else []


def job_for(task: str, member: str, workers: int, batch_size: int | None, **settings: Any) -> Job:
    """A job with the task's own batch size, unless another is given."""
    return Job(task, member, workers, batch_size=batch_size or TASKS[task].batch_size, **settings)
