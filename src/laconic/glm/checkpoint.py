"""Checkpoints: a fit that was killed continues from its last checkpoint, bit for bit as if it had not been.

For checkpoint number k of P ranks a folder holds

    000k-rank-0.safetensors … 000k-rank-(P−1).safetensors     tensors of each rank's state, for its own columns
    checkpoint.json                                           the number k of the last complete one; all but tensors

The manifest checkpoint.json is renamed into place last. Whenever a fit is killed, it names complete files.
"""

import json
import math
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic.atomic_write import atomic_write, not_written
from laconic.data import BadTable
from laconic.errors import CorruptPayload, LaconicError, Option
from laconic.exchange import Communicator
from laconic.exchange.agreement import gather_json, user_errors
from laconic.glm.model import load_tensors, save_tensors
from laconic.glm.options import FitOptions
from laconic.glm.problem import Problem
from laconic.glm.rows import SparseRows
from laconic.glm.solvers import Outcome, Progress, State, begin
from laconic.kernels.glm import Intercept, Weights

FORMAT = 3
MANIFEST = "checkpoint.json"
SAMPLED_ROWS = 16
EPOCH_SECONDS = 1.0
"""No checkpoint is written at the end of an epoch sooner than this after the last one."""
_OPTIONS = ("solver", "polish", "s", "batch_size", "seed", "alpha", "l1_ratio", "gradient", "momentum", "tol")
_TEAMS = ("teams", "average_every", "average_codec")
_WIDE = ("x", "momentum", "average", "best", "entry")
_TENSORS = {*_WIDE, *(f"intercept.{name}" for name in ("value", *_WIDE[1:]))}
_FILE = re.compile(r"\d{6}-rank-\d{1,6}\.safetensors")
_LEFT_OVER = re.compile(rf"\.({_FILE.pattern}|checkpoint\.json)\.[0-9a-f]{{8}}\.tmp")

Fingerprint = Mapping[str, Any]
"""What identifies a fit: JSON values by the names that a user knows them by."""


class OtherSettings(LaconicError, ValueError):
    """The checkpoint belongs to another fit than the one that is to continue."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The last complete checkpoint of a folder.

    number       counts the checkpoints
    fingerprint  of problem and settings
    numbers      `State.numbers()`
    files        one file of tensors per rank
    """

    number: int
    fingerprint: dict[str, Any]
    numbers: dict[str, Any]
    files: list[str]
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Where a fit saves its state, and whether it goes on from there.

    folder         created if missing; all ranks must see the same one
    every_seconds  the most work that a kill can lose; 0 saves after every segment of an epoch
    resume         go on from the checkpoint there, if there is one
    """

    folder: Path
    every_seconds: float = 300.0
    resume: bool = False


def fingerprint(problem: Problem, options: FitOptions, comm: Communicator) -> dict[str, Any]:
    """What must be the same for a fit to continue; `max_iter` need not, so that a fit can be given more epochs."""
    weights = None if problem.weights is None else problem.weights_as(torch.float64)
    vectors = (problem.y, weights, problem.offset)
    steps: dict[str, Any] = {"learning_rate": options.learning_rate, "eta0": options.eta0}
    if options.learning_rate == "invscaling":
        steps["power_t"] = options.power_t
    if options.learning_rate == "cosine":
        steps["n_iterations"] = options.max_iter * options.n_batches(problem.n_rows)
    found = {
        **({} if options.teams == 1 else {name: getattr(options, name) for name in _TEAMS}),
        "family": problem.family.name,
        **problem.family.parameters,
        **{name: getattr(options, name) for name in (*_OPTIONS, "n_iter_no_change", "standardize")},
        "order": options.sampling if options.shuffle else "cyclic",
        "intercept": options.fit_intercept,
        "average": options.average_after,
        "recipe": options.precision.short_name(),
        "features": problem.n_features,
        "classes": None if problem.classes is None else list(problem.classes),
        "X": _checksum(problem, comm),
        "rows": problem.columns.m,
        "y, weights and offset": [0 if v is None else zlib.crc32(v.cpu().contiguous().numpy().data) for v in vectors],
        **steps,  # last, since the step size may have been chosen after all of the above
    }
    teams = gather_json(comm.peers, found)
    return {
        name: values[0] if len(set(map(str, values))) == 1 else values
        for name in found
        for values in [[team[name] for team in teams]]
    }


def _checksum(problem: Problem, comm: Communicator) -> int:
    """Of a few rows, as stored: Σ bits of the value · (column + 1) · (row + 1), modulo 2⁶⁴, over all ranks' columns."""
    rows = np.unique(np.linspace(0, max(0, problem.columns.m - 1), SAMPLED_ROWS).astype(np.int64))
    taken: Any = problem.columns.take(rows, torch.float32)
    if isinstance(taken, SparseRows):
        values, j, begins = taken.matrix
        i = torch.repeat_interleave(torch.arange(len(rows)), begins.diff())
    else:
        values = taken.Y.cpu().contiguous()
        i, j = torch.from_numpy(np.indices(values.shape))
    bits = values.view(torch.int32).long()
    total = (bits * (j.long() + problem.first + 1) * (torch.from_numpy(rows)[i] + 1)).sum().reshape(1)
    comm.all_reduce(total)()
    return int(total)


def resume(checkpointing: Checkpointing, problem: Problem, options: FitOptions, comm: Communicator) -> State:
    """The state of the last checkpoint, if there is one and it may be used; otherwise that at the beginning."""
    folder = checkpointing.folder
    with user_errors(comm.whole):
        found = latest(folder)
        if found is not None and not checkpointing.resume:
            what = f"{folder} holds a checkpoint of epoch {found.numbers['epoch']}; go on from it with "
            raise BadTable(what, Option("resume", True), ", or give another folder")
    state, now = begin(problem, options), fingerprint(problem, options, comm)
    with user_errors(comm.whole):
        if found is not None:
            columns = (problem.first, problem.first + problem.columns.n)
            state = restore(folder, found, now, state, columns=columns, comm=comm)
    return state


def latest(folder: Path) -> Manifest | None:
    """The last complete checkpoint of a folder, or None; raises CorruptPayload if the manifest is not one of ours."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = Manifest(**json.loads(path.read_bytes()))
        _check(manifest)
    except (ValueError, TypeError, OSError, RecursionError) as error:
        raise CorruptPayload(f"{path} is not a checkpoint of laconic: {error}") from error
    return manifest


def _check(manifest: Manifest) -> None:
    if manifest.format != FORMAT:
        raise ValueError(f"it is of format {manifest.format!r}; this laconic reads {FORMAT}")
    if type(manifest.number) is not int or not isinstance(manifest.fingerprint, dict):
        raise TypeError("its number or fingerprint is missing")
    files = manifest.files
    if not isinstance(files, list) or not files or not all(isinstance(f, str) and _FILE.fullmatch(f) for f in files):
        raise TypeError("its files do not have the names of checkpoint files")
    _check_numbers(manifest.numbers)


def _check_numbers(numbers: dict[str, Any]) -> None:
    none = torch.zeros(0)
    like = State(Weights(none, none, none, Intercept(none, none, none))).numbers()
    if not isinstance(numbers, dict) or set(numbers) != set(like):
        raise TypeError(f"its numbers are not {', '.join(like)}")
    numbers["best_loss"] = math.inf if numbers["best_loss"] is None else numbers["best_loss"]
    for name, value in like.items():
        found = numbers[name]
        good = type(found) is type(value) or (isinstance(value, float) and type(found) is int)
        if not good or (isinstance(value, float) and math.isnan(found)) or (type(value) is int and found < 0):
            raise TypeError(f"its {name} is {found!r}")
    if numbers["ended"] not in ("", *Outcome.__members__):
        raise TypeError(f"its ended is {numbers['ended']!r}")
    if not all(isinstance(row, dict) for row in numbers["history"]):
        raise TypeError("its history is not a list of epochs")


def restore(
    folder: Path, manifest: Manifest, now: Fingerprint, like: State, *, columns: tuple[int, int], comm: Communicator
) -> State:
    """The state that a checkpoint holds, for this rank's columns.

    now      fingerprint of the fit that is to continue; raises OtherSettings naming the first field that differs
    like     a state at its beginning: shapes and types must be those
    columns  (first, last) of this rank; a fit on another number of ranks than the checkpoint's continues as well, but
             not to the same last bits
    """
    then = manifest.fingerprint
    for name in [*(name for name in then if name not in now), *now]:
        if then.get(name) != json.loads(json.dumps(now.get(name))):
            raise OtherSettings(
                f"the checkpoint in {folder} was made with other {name}: then {then.get(name)}, now {now.get(name)}; "
                "continue with the same data and settings, or use another folder"
            )
    if len(manifest.files) == comm.whole.size:
        tensors = _rank_tensors(folder, manifest, comm.whole.rank)
    else:  # the ranks of the first team, which had all columns
        parts = [_rank_tensors(folder, manifest, rank) for rank in range(len(manifest.files) // comm.peers.size)]
        parts[0].pop("memory", None)
        wide = {name: torch.cat([part[name] for part in parts], 1) for name in _WIDE}
        tensors = parts[0] | {name: tensor[:, columns[0] : columns[1]] for name, tensor in wide.items()}
    for name, tensor in like.tensors().items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            what = f"{name} is {found.dtype} {tuple(found.shape)}, needed {tensor.dtype} {tuple(tensor.shape)}"
            raise CorruptPayload(f"the checkpoint in {folder} does not fit this problem: {what}")
        tensors[name] = found.to(tensor.device)
    return State.restore(tensors, manifest.numbers)


def _rank_tensors(folder: Path, manifest: Manifest, rank: int) -> dict[str, torch.Tensor]:
    path = folder / manifest.files[rank]
    tensors, metadata = load_tensors(path, "a checkpoint of laconic")
    if metadata.get("checkpoint") != str(manifest.number) or tensors.keys() - {"memory"} != _TENSORS:
        raise CorruptPayload(f"{path} is not part of checkpoint {manifest.number}")
    if any(tensors[name].ndim != 2 for name in _WIDE):
        raise CorruptPayload(f"{path} holds tensors of the wrong shapes")
    return tensors


class Checkpointer:
    """A callback for `solve` that saves its state at the end of an epoch and every few seconds.

    where        to save to, and how often
    fingerprint  of problem and options
    comm         the ranks: each calls this after every segment, and rank 0's clock decides
    """

    def __init__(
        self,
        where: Checkpointing,
        fingerprint: Fingerprint,
        comm: Communicator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.every_seconds = where.folder, where.every_seconds
        self.fingerprint, self.comm, self.clock = fingerprint, comm.whole, clock
        with user_errors(self.comm):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError as error:
                raise BadTable(f"{self.folder} is a file; give ", Option("checkpoint", ...), " a folder") from error
            except OSError as error:
                raise not_written(self.folder, error) from error
            before = latest(self.folder)
            self.number = 0 if before is None else before.number
        self.last = clock()

    def __call__(self, progress: Progress) -> None:
        """Save if it is time to."""
        waited = self.clock() - self.last
        least = min(EPOCH_SECONDS, self.every_seconds) if progress.fraction == 1 else self.every_seconds
        due = torch.tensor([int(self.comm.rank == 0 and waited >= least)])
        self.comm.all_reduce(due)()
        if due:
            self.save(progress.state)

    def save(self, state: State) -> None:
        """Save now:

        1. every rank writes the tensors of its columns under the next number;
        2. once all have, rank 0 writes the manifest that names them;
        3. rank 0 removes the files that it no longer names.
        """
        number = self.number + 1
        files = [f"{number:06d}-rank-{rank}.safetensors" for rank in range(self.comm.size)]
        tensors = {name: tensor.cpu().contiguous() for name, tensor in state.tensors().items()}
        with user_errors(self.comm):
            save_tensors(self.folder / files[self.comm.rank], tensors, {"checkpoint": str(number)})
        with user_errors(self.comm):
            if self.comm.rank == 0:
                manifest = Manifest(number, dict(self.fingerprint), _as_json(state.numbers()), files)
                with atomic_write(self.folder / MANIFEST) as file:
                    file.write(json.dumps(asdict(manifest), indent=1, allow_nan=False))
                _remove_others(self.folder, files)
        self.number, self.last = number, self.clock()


def _as_json(numbers: dict[str, Any]) -> dict[str, Any]:
    """With None for infinity, which JSON lacks: the best loss before there is one, or a loss on its way there."""
    return {**_finite(numbers), "history": [_finite(row) for row in numbers["history"]]}


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}


def _remove_others(folder: Path, files: list[str]) -> None:
    """Remove tensors of older checkpoints, and temporary files that a kill has left."""
    for path in folder.iterdir():
        if path.name not in files and (_FILE.fullmatch(path.name) or _LEFT_OVER.fullmatch(path.name)):
            path.unlink(missing_ok=True)
