"""`laconic report`."""

import json
import webbrowser

import pytest

from laconic.cli import main

SPREAD = {"median": 2.0, "p20": 1.5, "p80": 2.5}
ROW = {"contender": "nuqsgd-4", "seconds": SPREAD, "speedup_over_fp32": SPREAD, "loss": 0.5}


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "ddp.json"
    path.write_text(json.dumps({"suite": "ddp", "rows": [ROW]}))
    return path


def test_a_page_and_a_line_about_it(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", str(run), "-o", str(page), "--title", "Mine"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{page}: 1 run, ")
    assert len(out.splitlines()) == 1
    assert not err
    assert "<title>Mine</title>" in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ddp.json", "page.html"]


def test_by_default_report_html_in_this_folder_over_what_was_there(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").write_text("old")
    assert main(["report", "ddp.json"]) == 0
    assert "nuqsgd-4" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_json_says_what_is_on_the_page(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    (tmp_path / "other.json").write_text("{}")
    assert main(["report", str(tmp_path), "-o", str(page), "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert said["output"] == str(page)
    assert said["runs"] == [{"name": "ddp", "suite": "ddp", "rows": 1, "sections": ["Training a network on ranks"]}]
    assert said["charts"] > 0
    assert said["bytes"] == page.stat().st_size
    assert said["passed_over"] == [str(tmp_path / "other.json")]
    assert err.startswith("laconic: passed over: ")
    assert len(err.splitlines()) == 1


def test_open_shows_the_page(run, tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = tmp_path / "page.html"
    assert main(["report", str(run), "-o", str(page), "--open"]) == 0
    assert opened == [page.as_uri()]


def test_what_is_no_run_is_one_line_and_nothing_is_written(run, tmp_path, capsys):
    wrong, page = tmp_path / "wrong.json", tmp_path / "page.html"
    wrong.write_text("{")
    assert main(["report", str(run), str(wrong), "-o", str(page)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"laconic: {wrong} is not JSON: ")
    assert "expected a JSON document that `laconic bench`" in err
    assert len(err.splitlines()) == 1
    assert not page.exists()


WRONG = {
    "nothing given": ([], "RUN"),
    "no such file": (["none.json"], "cannot read none.json: No such file"),
    "a folder as output": (["ddp.json", "-o", "."], "cannot write ."),
    "over a run": (["ddp.json", "-o", "./ddp.json"], "give -o FILE.html"),
    "a run's ending": (["ddp.json", "-o", "other.json"], "give -o FILE.html"),
    "no such folder": (["ddp.json", "-o", "none/page.html"], "cannot write none"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes(case, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments, said = WRONG[case]
    assert main(["report", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ddp.json"]
    assert json.loads(run.read_text())["rows"] == [ROW]
