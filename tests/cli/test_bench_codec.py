"""`laconic bench codec`, at a size that takes no time."""

import json

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
