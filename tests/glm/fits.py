"""A small problem as a file, tasks on it, and rank functions that stop in the middle of a fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from laconic.data import Source, Table, write_store
from laconic.glm.fit import fit_file
from laconic.glm.options import FileFit, FitOptions


def write_problem(path: Path, m: int = 203, n: int = 7, seed: int = 0) -> Path:
    """A logistic problem, as a store of float64."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n))
    y = rng.random(m) < 1 / (1 + np.exp(-X @ rng.standard_normal(n)))
    write_store(path, Table(torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))), "fp64")
    return path


def small_job(path: Path, output: Path, **changes) -> FileFit:
    """Four batches share a message, and an epoch has seven segments."""
    options = FitOptions(recipe="fp64", s=4, solver="ca_sgd", batch_size=8, max_iter=4, seed=3)
    return changed(FileFit(Source(str(path)), str(output), options), **changes)


def changed(job: FileFit, **changes) -> FileFit:
    """The job with other fields, or other fields of its options."""
    own = {name: value for name, value in changes.items() if name in FitOptions.__dataclass_fields__}
    rest = {name: value for name, value in changes.items() if name not in own}
    return replace(job, options=replace(job.options, **own), **rest)


class Stop:
    """A callback that stops a fit after so many segments."""

    def __init__(self, n_segments: int) -> None:
        self.left = n_segments

    def __call__(self, progress) -> bool:
        self.left -= 1
        return self.left == 0


def stop_and_go_on(progress, *, job: dict, n_segments: int) -> dict:
    """On each rank: stop there, then resume to the end."""
    job = FileFit(**{**job, "data": Source(**job["data"]), "options": FitOptions(**job["options"])})
    fit_file(job, callbacks=[Stop(n_segments)])
    return fit_file(replace(job, resume=True))
