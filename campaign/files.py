"""Mutated files: tables of every format, models, checkpoints, and documents of runs.

A mutant must be read as a consistent table, a model that predicts or a run that can be shown, or raise an error that
its reader documents. Formats with a checksum (gzip, bzip2, xz) must give the table that was written, or an error.
"""

import bz2
import gzip
import io
import json
import lzma
import random
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from campaign.case import Broken, Case, Trial
from campaign.mutations import Pool, mutate
from laconic.data import BadTable, MalformedFile, Table, read
from laconic.errors import CorruptPayload
from laconic.glm.checkpoint import OtherSettings
from laconic.glm.fit import fit_file
from laconic.glm.model import Model
from laconic.glm.solvers import Diverged
from laconic.report import NotARun, read_run, report
from tests.data.files import FORMATS, as_dense, small_table
from tests.glm.fits import Stop, changed, small_job, write_problem
from tests.report.documents import DOCUMENTS

NUMBERS = (
    b"0",
    b"-1",
    b"1e308",
    b"1e999",
    b"nan",
    b"inf",
    b"-inf",
    b"0x10",
    b"1_0",
    b"4294967296",
    b"9" * 30,
    b"1e-400",
)
TEXT = (
    *NUMBERS,
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b'"',
    b"'",
    b"#",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
)
JSON = (
    *NUMBERS,
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b'"a"',
    b"[[",
    b"{",
    b"}",
    b"]",
    b",",
    b'"\\ud800"',
    b"[" * 3000,
)
TABLE_ERRORS = (MalformedFile, BadTable, CorruptPayload)
FIT_ERRORS = (CorruptPayload, OtherSettings, Diverged)
CHECKED = {".gz": gzip, ".bz2": bz2, ".xz": lzma}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    write   writes a valid one into a folder, and returns its path
    read    reads it; raises `Broken` if the result is not consistent
    errors  that `read` may raise
    change  mutates its bytes
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...]
    change: Callable[[bytes, random.Random], bytes]


def text(data: bytes, rng: random.Random, words: tuple[bytes, ...] = TEXT) -> bytes:
    """Mutate a text, also by inserting words of its format."""
    return mutate(data, rng, words)


def packed(data: bytes, rng: random.Random, by: Any) -> bytes:
    """Mutate compressed bytes, or the text inside them."""
    try:
        inside = by.decompress(data)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):  # a mutant of a mutant
        inside = b""
    return mutate(data, rng) if not inside or rng.random() < 0.4 else bytes(by.compress(text(inside, rng)))


def tensors(data: bytes, rng: random.Random) -> bytes:
    """Mutate a safetensors file: any bytes, the header (with its length corrected) or the data after it."""
    size = int.from_bytes(data[:8], "little")
    head, body, part = data[8 : 8 + size], data[8 + size :], rng.random()
    if part < 0.3 or size > len(data):
        return mutate(data, rng, JSON)
    head = mutate(head, rng, JSON) if part < 0.8 else head
    body = mutate(body, rng) if part > 0.7 else body
    return len(head).to_bytes(8, "little") + head + body


def zipped(data: bytes, rng: random.Random) -> bytes:
    """Mutate an archive's bytes, or one of its members, repacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # noqa: BLE001 (a mutant of a mutant)
        members = {}
    if not members or rng.random() < 0.4:
        return mutate(data, rng)
    chosen, made = rng.choice(list(members)), io.BytesIO()
    with zipfile.ZipFile(made, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, member in members.items():
            if name != chosen or rng.random() < 0.9:
                archive.writestr(name, mutate(member, rng, TEXT) if name == chosen else member)
    return made.getvalue()


def read_table(path: Path, options: dict[str, Any], expected: Table | None) -> None:
    """Read a table; check that its parts have one entry per row, and that numbers are finite if its reader checks."""
    found = read(path, **options)
    m, n = found.X.shape
    others = [part for part in (found.y, found.sample_weight, found.offset) if part is not None]
    if any(len(part) != m for part in others) or found.columns != (0, n):
        raise Broken(f"{m} rows of {n} columns, parts of {[len(part) for part in others]}, columns {found.columns}")
    if path.suffix != ".safetensors" and not bool(torch.isfinite(as_dense(found.X)).all()):
        raise Broken("numbers that are not finite")
    if expected is not None and not torch.equal(as_dense(found.X), as_dense(expected.X)):
        raise Broken("another table than was written, behind a checksum")


def table(name: str) -> Kind:
    """The `Kind` of a table format."""
    form, written = FORMATS[name], small_table()
    suffix = Path(form.file).suffix
    change: Callable[[bytes, random.Random], bytes] = text
    if suffix in CHECKED:
        change = partial(packed, by=CHECKED[suffix])
    elif suffix in (".safetensors", ".npz"):
        change = tensors if suffix == ".safetensors" else zipped
    return Kind(
        lambda folder: Path(form.dump(folder / form.file, written) or folder / form.file),
        lambda path: read_table(path, form.options, None),
        TABLE_ERRORS,
        change,
    )


def predict(path: Path) -> None:
    """Load a model and predict with it; coefficients of 1e308 may give infinite margins."""
    model = Model.load(path)
    with np.errstate(all="ignore"):
        if len(model.predict(torch.zeros(3, model.n_features, dtype=model.coef.dtype))) != 3:
            raise Broken("as many predictions as there are not rows")


def write_model(folder: Path) -> Path:
    """Write a small logistic model."""
    path = folder / "model.safetensors"
    names = tuple(f"x{i}" for i in range(5))
    Model(torch.ones(1, 5), torch.zeros(1), "logistic", ("no", "yes"), names).save(path)
    return path


def write_checkpoint(folder: Path, which: str) -> Path:
    """Write a checkpoint of a stopped fit; the path of its manifest, or of the tensors of rank 0."""
    job = small_job(write_problem(folder / "rows.safetensors"), folder / "model.safetensors")
    fit_file(changed(job, checkpoint=str(folder / "kept"), checkpoint_every=0.0), callbacks=[Stop(9)])
    (found,) = (folder / "kept").glob(which)
    return found


def resume(path: Path) -> None:
    """Resume a fit from a checkpoint."""
    folder = path.parent.parent
    job = small_job(folder / "rows.safetensors", folder / "model.safetensors")
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path.parent, copy)
    fit_file(changed(job, checkpoint=str(copy), checkpoint_every=1e9, resume=True))


def write_run(folder: Path, rng: random.Random | None = None) -> Path:
    """Write a document of a suite."""
    path = folder / "run.json"
    path.write_text(json.dumps(DOCUMENTS["glm"]))
    return path


def show(path: Path) -> None:
    """Read a run and make its page."""
    page, _ = report("a run", [read_run(path)])
    if "</html>" not in page:
        raise Broken("no page")


KINDS: dict[str, tuple[str, ...]] = {
    "LIBSVM": ("libsvm", "libsvm zero-based", "libsvm dense", "libsvm gz", "libsvm bz2", "libsvm xz"),
    "CSV": ("csv", "csv by number", "csv xz", "csv by content", "csv ;", "arff", "arff xz"),
    "Parquet": ("parquet",),
    "NPY and NPZ": ("npy", "npz"),
    "store": ("store fp32", "store bf16", "sparse store fp32", "sparse store bf16"),
}
OTHERS: dict[str, tuple[Kind, ...]] = {
    "model": (Kind(write_model, predict, (CorruptPayload,), tensors),),
    "checkpoint": (
        Kind(
            partial(write_checkpoint, which="checkpoint.json"),
            resume,
            FIT_ERRORS,
            partial(text, words=JSON),
        ),
        Kind(partial(write_checkpoint, which="*.safetensors"), resume, FIT_ERRORS, tensors),
    ),
    "run": (Kind(write_run, show, (NotARun,), partial(text, words=JSON)),),
}


def prepare(name: str) -> Trial:
    """Write a valid file of each kind; a trial overwrites one with a mutant and reads it."""
    torch.set_num_threads(1)
    kinds = OTHERS.get(name) or tuple(table(form) for form in KINDS[name])
    base = Path(tempfile.mkdtemp())
    paths, pools = [], []
    for number, kind in enumerate(kinds):
        (base / str(number)).mkdir()
        paths.append(kind.write(base / str(number)))
        pools.append(Pool([paths[-1].read_bytes()]))
        kind.read(paths[-1])

    def trial(rng: random.Random) -> str:
        chosen = rng.randrange(len(kinds))
        kind, path, pool = kinds[chosen], paths[chosen], pools[chosen]
        data = kind.change(pool.draw(rng), rng)
        path.write_bytes(data)
        try:
            kind.read(path)
        except kind.errors as error:
            pool.learn(data, f"{type(error).__name__}: {str(error).replace(str(path), '')}")
            return "refused"
        except Exception as error:
            raise Broken(f"{path.name}: {data[:1500].hex()}") from error
        pool.learn(data, "read")
        return "read"

    return trial


COUNTS = {
    "LIBSVM": 300,
    "CSV": 200,
    "Parquet": 100,
    "NPY and NPZ": 100,
    "store": 150,
    "model": 100,
    "checkpoint": 10,
    "run": 40,
}
"""Thousands of mutants in the full campaign."""
CASES = [
    Case(f"files, {name}", 10 * count, 1000 * count, partial(prepare, name), 50 * count, 60.0, memory=2**31)
    for name, count in COUNTS.items()
]
