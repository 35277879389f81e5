"""`laconic bench codec`, at a size that takes no time."""

import json

import numpy as np
import pytest

from laconic.bench import protocol
from laconic.cli import main

TINY = ["bench", "codec", "--size", "5000", "--bucket-size", "512", "--repeats", "1"]
FEW = [*TINY, "--schemes", "nuqsgd,bf16", "--coders", "rans"]


def test_json(published):
    document = published(TINY)
    assert document["suite"] == "codec"
    assert {row["via"] for row in document["rows"]} == {"torch", "codec", "kernel", "coder"}
    for row in document["rows"]:
        assert row["environment"]["cpu"]
        assert row["seconds"]["p20"] <= row["seconds"]["median"] <= row["seconds"]["p80"]


def test_tables(printed):
    out = printed(TINY, columns=100)
    for word in ("copy_ fp32", "nuqsgd-4 p=0.7", "ef-sign", "rans on qsgdinf-8"):
        assert word in out


def test_digits_problem(capsys):
    assert main([*FEW, "--problem", "digits", "--json"]) == 0
    assert {row["problem"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"digits"}


def test_a_wrong_result_is_not_the_users_mistake(tmp_path, monkeypatch):
    target = tmp_path / "rows.json"
    target.write_text("old")
    monkeypatch.setattr(protocol.torch, "equal", lambda a, b: False)
    with pytest.raises(protocol.WrongResult, match="rans"):
        main([*FEW, "--output", str(target)])
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def saved(path, values):
    np.save(path, values, allow_pickle=True)
    return path


def test_a_gradient_of_ones_own(tmp_path_factory, published, printed):
    path = saved(tmp_path_factory.mktemp("gradients") / "mine.npy", np.linspace(-1, 1, 3000).reshape(3, -1))
    asked = [*FEW, "--gradient", str(path)]
    rows = published(asked)["rows"]
    assert {(row["problem"], row["n"]) for row in rows} == {("mine.npy", 3000)}
    assert "error" in printed(asked, columns=100)


NO_GRADIENTS = {
    "ints": (np.arange(9), "a gradient is an array of floats, this is one of int64"),
    "objects": (np.array([None, {}]), "not an .npy file of plain numbers"),
    "nan": (np.array([1.0, np.nan, np.inf]), "2 of 3 values are not finite"),
    "zeros": (np.zeros(5, np.float16), "none of 5 values is other than zero"),
    "empty": (np.zeros(0), "none of 0 values is other than zero"),
    "missing": (None, "there is no such file"),
}


@pytest.mark.parametrize("name", NO_GRADIENTS)
def test_files_that_hold_no_gradient(name, tmp_path, capsys):
    values, message = NO_GRADIENTS[name]
    path = tmp_path / f"{name}.npy"
    if values is not None:
        saved(path, values)
    assert main(["bench", "codec", "--gradient", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}: {message}" in said.replace("\n", " ")
    assert "Traceback" not in said
