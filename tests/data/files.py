"""The same small table in every format."""

import bz2
import gzip
import lzma
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from laconic.data import Table, write_store

OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def small_table(m: int = 37, n: int = 7, seed: int = 0) -> Table:
    """About half zeros, one column of them all zero, and every number exact in bfloat16."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 9, (m, n)) / 4 * (rng.random((m, n)) < 0.5)
    X[:, 2:3] = 0
    X[:1, :1], X[:1, n - 1 :] = 1.25, 1.5
    names = tuple(f"x{j}" for j in range(n))
    weight, offset = rng.integers(0, 5, m) / 2, rng.integers(-4, 5, m) / 8
    return Table(
        torch.from_numpy(X).float(),
        torch.from_numpy(rng.integers(0, 2, m)),
        torch.from_numpy(weight),
        torch.from_numpy(offset),
        names,
    )


def sparse(table: Table) -> Table:
    from scipy.sparse import csr_array

    return Table(csr_array(table.X.numpy()), table.y, table.sample_weight, table.offset, table.feature_names)


def dump_libsvm(path: Path, table: Table, *, base: int = 1) -> Path:
    """Values that are zero are left out; numbers as repr writes them."""
    X = table.X.numpy() if isinstance(table.X, torch.Tensor) else table.X.toarray()
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "wt") as file:
        for row, label in zip(X, table.y.tolist(), strict=True):
            pairs = [f"{j + base}:{float(row[j])!r}" for j in np.flatnonzero(row)]
            file.write(" ".join([repr(label), *pairs]) + "\n")
    return path


def columns_of(table: Table) -> dict[str, np.ndarray]:
    columns = {name: table.X[:, j].numpy() for j, name in enumerate(table.feature_names)}
    return {**columns, "label": table.y.numpy(), "w": table.sample_weight.numpy(), "o": table.offset.numpy()}


def dump_csv(path: Path, table: Table, delimiter: str = ",") -> Path:
    columns = columns_of(table)
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "wt") as file:
        file.write(delimiter.join(columns) + "\n")
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            file.write(delimiter.join(map(repr, row)) + "\n")
    return path


def dump_arff(path: Path, table: Table) -> Path:
    columns = columns_of(table)
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "wt") as file:
        file.write("% a comment\n@RELATION small\n\n")
        file.writelines(f"@attribute '{name}' NUMERIC\n" for name in columns)
        file.write("@data\n")
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            file.write(", ".join(map(repr, row)) + "\n")
    return path


def dump_parquet(path: Path, table: Table) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns_of(table)), path, row_group_size=10)
    return path


def dump_npy(path: Path, table: Table) -> Path:
    np.save(path, table.X.numpy())
    for name, values in (("y", table.y), ("w", table.sample_weight), ("o", table.offset)):
        np.save(path.with_name(f"{name}.npy"), values.numpy())
    return path


def dump_npz(path: Path, table: Table) -> Path:
    np.savez(path, X=table.X.numpy(), y=table.y.numpy(), w=table.sample_weight.numpy(), o=table.offset.numpy())
    return path


@dataclass(frozen=True)
class Format:
    """How to write a format, and what `read` must be told to get everything back.

    keeps  what the format holds beside X and y
    """

    file: str
    dump: object
    options: dict = field(default_factory=dict)
    is_sparse: bool = False
    keeps: tuple[str, ...] = ("sample_weight", "offset")


NAMED = {"target": "label", "sample_weight": "w", "offset": "o"}
BESIDE = {"sample_weight": "w.npy", "offset": "o.npy"}
FORMATS = {
    "libsvm": Format("a.svm", dump_libsvm, {"n_features": 7}, True, ()),
    "libsvm no suffix": Format("a9a", dump_libsvm, {"n_features": 7}, True, ()),
    "libsvm zero-based": Format("a.txt", lambda p, t: dump_libsvm(p, t, base=0), {"n_features": 7}, True, ()),
    "libsvm gz": Format("a.libsvm.gz", dump_libsvm, {"n_features": 7}, True, ()),
    "libsvm bz2": Format("a.bz2", dump_libsvm, {"n_features": 7}, True, ()),
    "libsvm xz": Format("a9a.xz", dump_libsvm, {"n_features": 7}, True, ()),
    "libsvm dense": Format("a.svm", dump_libsvm, {"n_features": 7, "dense": True}, False, ()),
    "csv": Format("a.csv", dump_csv, NAMED),
    "csv by number": Format("a.csv", dump_csv, {"target": -3, "sample_weight": 8, "offset": "o"}),
    "csv xz": Format("a.csv.xz", dump_csv, NAMED),
    "csv by content": Format("rows.gz", dump_csv, NAMED),
    "csv no suffix": Format("rows", dump_csv, NAMED),
    "csv ;": Format("rows.data", lambda p, t: dump_csv(p, t, ";"), NAMED | {"delimiter": ";"}),
    "arff": Format("a.arff", lambda p, t: dump_arff(p, t), NAMED),
    "arff xz": Format("a.arff.xz", lambda p, t: dump_arff(p, t), NAMED),
    "parquet": Format("a.parquet", dump_parquet, NAMED),
    "npy": Format("X.npy", dump_npy, BESIDE),
    "npz": Format("a.npz", dump_npz, {"sample_weight": "w", "offset": "o"}),
    "store fp32": Format("a.safetensors", lambda p, t: write_store(p, t, "fp32")),
    "store bf16": Format("a.safetensors", lambda p, t: write_store(p, t, "bf16")),
    "store fp64": Format("a.safetensors", lambda p, t: write_store(p, t, "fp64")),
    "sparse store fp32": Format("a.safetensors", lambda p, t: write_store(p, sparse(t), "fp32"), {}, True),
    "sparse store bf16": Format("a.safetensors", lambda p, t: write_store(p, sparse(t), "bf16"), {}, True),
}


def as_dense(X) -> torch.Tensor:
    return X.double() if isinstance(X, torch.Tensor) else torch.from_numpy(X.toarray()).double()


def assert_same(found: Table, expected: Table, keeps: tuple[str, ...] = ("sample_weight", "offset")) -> None:
    assert torch.equal(as_dense(found.X), as_dense(expected.X))
    assert found.y.dtype == expected.y.dtype
    assert torch.equal(found.y, expected.y)
    assert found.columns == expected.columns
    assert found.n_features == expected.n_features
    for name in ("sample_weight", "offset"):
        assert (getattr(found, name) is not None) == (name in keeps)
        if name in keeps:
            assert torch.equal(getattr(found, name), getattr(expected, name))
