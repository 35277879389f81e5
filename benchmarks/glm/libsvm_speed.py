"""Reading LIBSVM: speed beside scikit-learn's reader, and peak memory of converting a file."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.glm import sklearn_rivals as rivals
from laconic.bench.protocol import Spread, WrongResult, compare
from laconic.bench.suite import Progress, no_progress
from laconic.data import convert, read_libsvm
from laconic.exchange.launch import Host, start_ranks

N_FEATURES, N_PER_ROW = 1000, 30
BLOCK_ROWS = 2000
MEMORY_FUNCTION = "benchmarks.glm.libsvm_speed:convert_on_rank"
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class FileRow:
    """Measurements of reading and converting a LIBSVM file of random numbers, 30 values per row in 1000 columns.

    read_seconds       of `laconic.data.read_libsvm`
    sklearn_seconds    of `sklearn.datasets.load_svmlight_file`, run just before in every round
    ratio_to_sklearn   speedup over scikit-learn, round by round
    peak_bytes         peak memory of `laconic.data.convert` beyond that of importing laconic; None where it
                       cannot be measured
    """

    n_bytes: int
    n_rows: int
    read_seconds: Spread
    sklearn_seconds: Spread
    ratio_to_sklearn: Spread
    peak_bytes: int | None

    @property
    def mb_per_second(self) -> float:
        """MB of text read per second."""
        return self.n_bytes / 1e6 / self.read_seconds.median


def file_row(n_bytes: int, repeats: int, progress: Progress = no_progress) -> FileRow:
    """Write a file, read it by both readers in turn, then convert it in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="laconic-") as folder:
        path = Path(folder, "rows.svm")
        progress("writing a LIBSVM file")
        n_rows = write_libsvm(path, n_bytes)
        progress("reading it")
        check_same(path)
        times = compare(lambda: read_libsvm(path), lambda: rivals.read_libsvm(path), repeats=repeats)
        progress("converting it")
        peak = start_ranks(MEMORY_FUNCTION, {"folder": folder, "name": path.name}, [Host()])[0]
        return FileRow(path.stat().st_size, n_rows, times.seconds, times.baseline, times.ratio, peak)


def write_libsvm(path: Path, n_bytes: int, seed: int = 0) -> int:
    """Write blocks of random rows until the file has `n_bytes`; returns the number of rows."""
    generator = np.random.default_rng(seed)
    n_rows = 0
    with path.open("w", encoding="ascii") as file:
        while file.tell() < n_bytes:
            columns = np.sort(generator.random((BLOCK_ROWS, N_FEATURES)).argpartition(N_PER_ROW, 1)[:, :N_PER_ROW]) + 1
            values = generator.standard_normal((BLOCK_ROWS, N_PER_ROW))
            labels = generator.integers(0, 2, BLOCK_ROWS)
            for label, row, numbers in zip(labels.tolist(), columns.tolist(), values.tolist(), strict=True):
                file.write(f"{label} {' '.join(f'{j}:{x:.6g}' for j, x in zip(row, numbers, strict=True))}\n")
            n_rows += BLOCK_ROWS
    return n_rows


def check_same(path: Path) -> None:
    """Raise an error unless both readers return the same numbers."""
    X, y = rivals.read_libsvm(path)
    ours = read_libsvm(path)
    same = np.array_equal(ours.X.indices, X.indices) and np.array_equal(ours.X.indptr, X.indptr)
    close = same and np.allclose(ours.X.data, X.data, rtol=1e-6, atol=0) and np.array_equal(ours.y.numpy(), y)
    if not close:
        raise WrongResult("the two readers of LIBSVM files do not find the same numbers")


def convert_on_rank(progress: Progress, *, folder: str, name: str) -> int | None:
    """Peak bytes of memory for converting a file, after everything is imported and compiled."""
    small, large = Path(folder, "small.svm"), Path(folder, name)
    small.write_text("1 1:0.5 3:2\n0 2:1\n", encoding="ascii")
    convert(small, small.with_suffix(".safetensors"))
    before = resident("VmRSS")
    if before is None:
        return None
    CLEAR.write_text("5")  # reset the peak
    convert(large, large.with_suffix(".safetensors"))
    return max(0, (resident("VmHWM") or before) - before)


def resident(name: str) -> int | None:
    """A figure of this process's memory in bytes, where the system tells it."""
    if not STATUS.exists() or not CLEAR.exists():
        return None
    fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    return 1024 * int(fields[name].split()[0]) if name in fields else None
