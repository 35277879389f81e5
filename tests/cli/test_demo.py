"""`laconic demo`."""

import json

import pytest

from laconic.bench import demo
from laconic.bench.suite import run_document
from laconic.cli import main

QUICK = ["demo", "--repeats", "1", "--ranks", "0", "--steps", "4"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def document():
    """What one short run gives."""
    return run_document(demo.SUITE, demo.DemoOptions(repeats=1, ranks=0, steps=4), lambda label: None)


@pytest.fixture
def ran(document, monkeypatch):
    """`laconic demo` without the work: every run gives the same."""
    monkeypatch.setattr("laconic.bench.suite.run_document", lambda *arguments: document)


def test_it_ends_with_a_page_and_its_path(folder, capsys, ran):
    assert main(QUICK) == 0
    page = folder / "laconic-demo.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"Charts of all this: {page}"
    text = page.read_text(encoding="utf-8")
    assert "<title>laconic demo</title>" in text
    assert "Training with each scheme" in text


PAGES = {
    "elsewhere": (["--report", "mine.html"], ["mine.html"]),
    "none": (["--no-report"], []),
    "none with JSON": (["--json"], []),
    "with JSON, if asked for": (["--json", "--report", "mine.html"], ["mine.html"]),
}


@pytest.mark.parametrize("case", PAGES)
def test_where_the_page_goes(case, folder, capsys, ran):
    options, files = PAGES[case]
    assert main(["demo", "--repeats", "1", "--ranks", "0", "--steps", "1", *options]) == 0
    assert [path.name for path in folder.iterdir()] == files


def test_a_page_that_cannot_be_written_is_said_before_the_work(folder, capsys):
    assert main([*QUICK, "--report", "none/page.html"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "cannot write none/page.html" in err


def test_curves_are_of_the_same_start_and_fewer_bytes(document):
    curves = {row["contender"]: row["curve"] for row in document["curves"]}
    assert list(curves) == ["fp32", "qsgd-4", "nuqsgd-4", "qsgdinf-4", "ef-sign", "dithered-1"]
    assert len({curve[0]["loss"] for curve in curves.values()}) == 1
    for curve in curves.values():
        assert [point["iteration"] for point in curve] == [0, 2, 4]
        assert curve[-1]["loss"] < curve[0]["loss"]
    assert curves["nuqsgd-4"][-1]["bytes"] < 0.2 * curves["fp32"][-1]["bytes"]
    assert curves["nuqsgd-4"][-1]["variance"] < curves["qsgd-4"][-1]["variance"]
    assert curves["fp32"][-1]["variance"] is None


def test_json(capsys):
    assert main([*QUICK, "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert not err
    found = {row["contender"]: row for row in document["rows"]}
    assert list(found)[:2] == ["do nothing", "copy_ fp32"]
    assert {"nuqsgd-4", "dithered-0.1", "rans on nuqsgd-4"} <= set(found)
    for row in document["rows"]:
        assert row["bound"] is None or row["error"] <= row["bound"] * 1.01  # of one draw, in many values
        assert row["contender"] == "do nothing" or row["gb_per_second"] > 0
    assert found["nuqsgd-4"]["error"] < found["qsgd-4"]["error"]


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_fit_the_terminal(columns, printed, ran):
    out = printed([*QUICK, "--no-report"], columns)
    assert "nuqsgd-4 p=0.7 " in out
    assert "rans on nuqsgd-4" in out


def test_the_ranks_of_torchrun_are_used(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert demo.DemoOptions().ranks == 2


def test_ranks_train_a_network_and_fit_a_model(capsys):
    assert main(["demo", "--repeats", "1", "--ranks", "2", "--steps", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    trained = document["ddp"]
    assert [row["contender"] for row in trained] == ["DDP fp32", "DDP bf16 hook", "nuqsgd-4"]
    assert all(row["ranks"] == 2 and row["n_steps"] == 5 and row["loss"] < 2.4 for row in trained)
    assert trained[2]["bytes_sent"] < 0.2 * 4 * trained[2]["n"]
    fitted = {row["contender"]: row for row in document["glm"]}
    assert fitted["sgd fp32"]["messages"] == 1
    assert fitted["ca_sgd C s=32"]["messages"] == 1 / 32
    assert abs(fitted["ca_sgd C s=32"]["loss_gap"]) < 0.005
