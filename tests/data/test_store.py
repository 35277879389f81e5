"""Stores: whole or not at all, readable by safetensors, and read as if an enemy had written them."""

import errno
import json
import os
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from laconic import CorruptPayload
from laconic.atomic_write import NotWritten
from laconic.data import BadTable, Source, Table, describe, open_store, read, rows_of, stored, write_store

from .files import as_dense, assert_same, small_table, sparse

TABLES = {"dense": small_table(), "sparse": sparse(small_table())}


@pytest.mark.parametrize("kind", TABLES)
def test_safetensors_reads_it(kind, tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES[kind], "fp32")
    tensors = safetensors.torch.load_file(path)
    assert set(tensors) - {"y", "sample_weight", "offset"} == (
        {"X"} if kind == "dense" else {"indptr", "indices", "values"}
    )
    assert torch.equal(tensors["y"], TABLES[kind].y.double())
    if kind == "dense":
        assert torch.equal(tensors["X"], TABLES[kind].X)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["n_features"] == "7"


def test_a_column_block_is_a_view_of_the_map(tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES["dense"], "fp32")
    block = open_store(path, columns=(2, 5)).X
    assert block.stride() == (7, 1)
    before = path.read_bytes()
    block += 1
    assert path.read_bytes() == before


def test_a_stream_of_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("laconic.data.table.BLOCK_VALUES", 20)
    for table in TABLES.values():
        assert len(list(rows_of(table).blocks)) > 5
        assert_same(open_store(write_store(tmp_path / "a.safetensors", table, "fp32")), table)


def test_bf16_is_rounded_to_nearest(tmp_path):
    table = Table(torch.tensor([[1.004, -1.001]]), torch.tensor([1]))
    assert torch.equal(open_store(write_store(tmp_path / "a.safetensors", table)).X, table.X.bfloat16())


def failing(table, error):
    stream = rows_of(table)

    def blocks():
        yield from stream.blocks
        raise error

    return replace(stream, blocks=blocks())


@pytest.mark.parametrize("error", [RuntimeError("died"), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", TABLES)
def test_interrupted_leaves_the_old_store(kind, error, tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES[kind])
    before = path.read_bytes()
    with pytest.raises(type(error)):
        write_store(path, failing(small_table(50, 3), error))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


@pytest.mark.parametrize("call", ["pwrite", "posix_fallocate", "fsync"])
def test_disk_full(call, tmp_path, monkeypatch):
    path = write_store(tmp_path / "a.safetensors", TABLES["dense"])
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(NotWritten) as caught:
        write_store(path, small_table(50, 3))
    assert "no room for the" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: pwrite(handle, bytes(data[:5]), at))
    assert_same(open_store(write_store(tmp_path / "a.safetensors", TABLES["sparse"])), TABLES["sparse"])


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_stream_that_lies_about_its_size(kind, change, tmp_path):
    stream = rows_of(TABLES[kind])
    lies = [replace(stream, n_rows=stream.n_rows + change)]
    if kind == "sparse":
        lies.append(replace(rows_of(TABLES[kind]), n_nonzero=stream.n_nonzero + change))
    for lie in lies:
        with pytest.raises(BadTable, match=r"the stream (announced|brought)"):
            write_store(tmp_path / "a.safetensors", lie)
    assert os.listdir(tmp_path) == []


def test_what_a_store_refuses(tmp_path):
    table = small_table()
    bad = table.X.clone()
    bad[3, 4] = torch.nan
    with pytest.raises(BadTable, match=r"X is nan in row 4, column 5 \('x4'\)"):
        write_store(tmp_path / "a.safetensors", replace(table, X=bad))
    with pytest.raises(BadTable, match="a store holds all 7 columns"):
        write_store(tmp_path / "a.safetensors", Table(table.X[:, 2:5], table.y, columns=(2, 5), n_features=7))
    with pytest.raises(BadTable, match="a sparse store holds fp32 or bf16"):
        write_store(tmp_path / "a.safetensors", sparse(table), "fp64")
    assert os.listdir(tmp_path) == []


def parts(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def assemble(path, header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text = text.ljust(-(-(len(text) + 8) // 64) * 64 - 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def set_in(header, *keys):
    *way, last, value = keys
    for key in way:
        header = header[key]
    header[last] = value


def shifted(header, name, by):
    header[name]["data_offsets"] = [n + by for n in header[name]["data_offsets"]]


LIES = {
    "dense": {
        "dtype unknown": lambda h: set_in(h, "X", "dtype", "F8"),
        "dtype a list": lambda h: set_in(h, "X", "dtype", []),
        "dtype other": lambda h: set_in(h, "X", "dtype", "I32"),
        "dtype wider": lambda h: set_in(h, "X", "dtype", "F64"),
        "shape longer": lambda h: set_in(h, "X", "shape", [38, 7]),
        "shape turned": lambda h: set_in(h, "X", "shape", [7, 37]),
        "shape flat": lambda h: set_in(h, "X", "shape", [37 * 7]),
        "shape huge": lambda h: set_in(h, "X", "shape", [2**61, 2**61]),
        "shape negative": lambda h: set_in(h, "X", "shape", [-37, -7]),
        "shape text": lambda h: set_in(h, "X", "shape", "37"),
        "shape bool": lambda h: set_in(h, "X", "shape", [True, 7]),
        "shape float": lambda h: set_in(h, "X", "shape", [37.0, 7]),
        "offsets one": lambda h: set_in(h, "X", "data_offsets", [0]),
        "offsets swapped": lambda h: h["X"]["data_offsets"].reverse(),
        "overlap": lambda h: shifted(h, "X", -8),
        "gap": lambda h: shifted(h, "X", 8),
        "same place": lambda h: set_in(h, "y", "data_offsets", h["offset"]["data_offsets"]),
        "no X": lambda h: h.pop("X"),
        "both kinds": lambda h: set_in(h, "values", {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
        "extra key": lambda h: set_in(h, "X", "more", 1),
        "entry a list": lambda h: set_in(h, "X", []),
        "version": lambda h: set_in(h, "__metadata__", "laconic_store", "2"),
        "no version": lambda h: h["__metadata__"].pop("laconic_store"),
        "no metadata": lambda h: h.pop("__metadata__"),
        "metadata number": lambda h: set_in(h, "__metadata__", "n_features", 7),
        "n_features other": lambda h: set_in(h, "__metadata__", "n_features", "8"),
        "n_features text": lambda h: set_in(h, "__metadata__", "n_features", "-1"),
        "n_features long": lambda h: set_in(h, "__metadata__", "n_features", "9" * 5000),
        "names few": lambda h: set_in(h, "__metadata__", "feature_names", '["a"]'),
        "names no JSON": lambda h: set_in(h, "__metadata__", "feature_names", "["),
        "names numbers": lambda h: set_in(h, "__metadata__", "feature_names", "[1,2,3,4,5,6,7]"),
        "classes": lambda h: set_in(h, "__metadata__", "classes", '{"a": 1}'),
    },
    "sparse": {
        "indptr gone": lambda h: h.pop("indptr"),
        "indices wide": lambda h: set_in(h, "indices", "dtype", "F32"),
        "n_features few": lambda h: set_in(h, "__metadata__", "n_features", "6"),
        "n_features huge": lambda h: set_in(h, "__metadata__", "n_features", "9999999999"),
    },
}


@pytest.mark.parametrize(("kind", "lie"), [(kind, lie) for kind, lies in LIES.items() for lie in lies])
def test_headers_that_lie(kind, lie, tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES[kind], "fp32")
    header, body = parts(path)
    LIES[kind][lie](header)
    with pytest.raises(CorruptPayload, match=str(path)):
        open_store(assemble(path, header, body))


TEXTS = {
    "empty": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "twice": b'{"X":1,"X":1}',
    "not text": b"\xff\xfe",
}


@pytest.mark.parametrize("name", TEXTS)
def test_headers_that_are_none(name, tmp_path):
    with pytest.raises(CorruptPayload):
        open_store(assemble(tmp_path / "a.safetensors", TEXTS[name], b""))


@pytest.mark.parametrize("kind", TABLES)
def test_truncated_or_longer(kind, tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES[kind])
    data = path.read_bytes()
    for length in [*range(20), *range(20, len(data), 61), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(CorruptPayload):
            open_store(path)
        with pytest.raises(CorruptPayload):
            describe(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(CorruptPayload):
        open_store(path)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 10**9, 0])
def test_header_length(length, tmp_path):
    path = write_store(tmp_path / "a.safetensors", TABLES["dense"])
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    with pytest.raises(CorruptPayload):
        open_store(path)


@pytest.mark.parametrize("kind", TABLES)
def test_mutated_bytes(kind, tmp_path):
    """Whatever opens can be used: every index is inside, every row pointer in order."""
    path, rng = write_store(tmp_path / "a.safetensors", TABLES[kind]), random.Random(kind)
    data = path.read_bytes()
    for _ in range(300):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            mutated[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(mutated)
        try:
            table = open_store(path)
        except CorruptPayload:
            continue
        assert as_dense(table.X).shape == (table.n_rows, table.n_features)


def test_a_store_in_the_cache_is_made_once(tmp_path):
    """Until the file, what its columns are or the type of X changes; and again where the store is damaged."""
    path, folder = tmp_path / "rows.csv", tmp_path / "cache" / "laconic"
    path.write_text("a,y\n1,0\n2,1\n")
    source = Source(str(path), target="y", limit=("memory_bytes=1",), cache=str(folder))
    assert stored(replace(source, limit=()), "fp32").n_rows == 2  # small enough: a stream of rows
    assert not folder.exists()
    kept = stored(source, "fp32")
    store = Path(kept.path)

    def made():
        assert stored(source, "fp32") == kept
        assert (read(kept).X.tolist(), read(kept).y.tolist()) == ([[1], [2]], [0, 1])
        return store.stat().st_ino, store.stat().st_mtime_ns

    first = made()
    assert made() == first
    os.utime(path, ns=(5, 5))
    second = made()
    assert second != first
    store.write_bytes(store.read_bytes()[:-1])
    assert made() != second
    for other, dtype in ((source, "fp64"), (replace(source, target="a"), "fp32")):
        assert stored(other, dtype) != kept
    assert len(list(folder.glob("*.safetensors"))) == 3
    assert not list(folder.glob(".*.tmp"))
    with pytest.raises(BadTable, match=r"there can be no folder .*; give cache=\.\.\., or more memory with limit="):
        stored(replace(source, cache=str(path / "x")), "fp32")
