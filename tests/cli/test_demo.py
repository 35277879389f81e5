"""`laconic demo`."""

import json

import pytest

from laconic.cli import main

QUICK = ["demo", "--streams", "2", "--ranks", "0"]


def test_json(capsys):
    assert main([*QUICK, "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert not err
    schemes = [row["scheme"] for row in document["rows"]]
    assert schemes[:2] == ["fp32", "bf16"]
    assert "nuqsgd-4" in schemes
    assert schemes[-1] == "ef-sign"
    for row in document["rows"]:
        assert row["variance"] <= row["bound"]
        assert row["encode_gb_per_second"] > 0
    assert document["findings"]


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_fit_the_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(QUICK) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "…" not in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= columns
    assert "nuqsgd-4 p=0.7 " in out
    assert "At 4 bits NUQSGD" in out


def test_ranks_train_a_network(capsys):
    assert main(["demo", "--streams", "1", "--ranks", "2", "--steps", "2", "--json"]) == 0
    trained = [row for row in json.loads(capsys.readouterr().out)["rows"] if "loss" in row]
    assert [row["contender"] for row in trained] == ["DDP fp32", "DDP bf16 hook", "nuqsgd-4"]
    assert all(row["ranks"] == 2 and row["n_steps"] == 5 and row["loss"] < 2.4 for row in trained)
    assert trained[2]["bytes_sent"] < 0.2 * 4 * trained[2]["n"]
