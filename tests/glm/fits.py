"""A small problem as a file, tasks on it, and rank functions that stop in the middle of a fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from laconic.data import Table, write_store
from laconic.glm.job import Source, Task, run


def write_problem(path: Path, m: int = 203, n: int = 7, seed: int = 0) -> Path:
    """A logistic problem, as a store of float64."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    y = rng.random(m) < 1 / (1 + np.exp(-X @ rng.standard_normal(n)))
    write_store(path, Table(torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))), "fp64")
    return path


def small_task(path: Path, output: Path, **changes) -> Task:
    """Four batches share a message, and an epoch has seven segments."""
    fixed = Task(Source(str(path)), str(output), recipe="fp64", s=4, solver="ca_sgd", batch_size=8, max_iter=4, seed=3)
    return replace(fixed, **changes)


class Stop:
    """A callback that stops a fit after so many segments."""

    def __init__(self, n_segments: int) -> None:
        self.left = n_segments

    def __call__(self, progress) -> bool:
        self.left -= 1
        return self.left == 0


def stop_and_go_on(tell, *, task: dict, n_segments: int) -> dict:
    """On each rank: stop there, then resume to the end."""
    task = Task.from_json(task)
    run(task, callbacks=[Stop(n_segments)])
    return run(replace(task, resume=True))
