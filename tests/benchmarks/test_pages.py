"""The tables and figures of the documentation are those of the results and of the library."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.__main__ import main
from benchmarks.goals import goals_of
from benchmarks.pages import common, quantizers, written

ROOT = Path(__file__).parents[2]


def test_pages_and_figures_are_what_the_results_say():
    assert [path.name for path, text in written().items() if path.read_text() != text] == []


def test_every_result_stands_on_a_page():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    results = sorted(path.name for path in (ROOT / "benchmarks" / "results").glob("*.json"))
    assert [name for name in results if name not in pages] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_names_results_that_are_there(path):
    for name in re.findall(r"benchmarks/results/([\w.-]+\.json)", path.read_text()):
        assert json.loads((ROOT / "benchmarks" / "results" / name).read_text())["rows"]


def test_a_stale_page_is_reported_and_written(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("old")
    monkeypatch.setattr(pages, "written", lambda: {page: "new"})
    monkeypatch.setattr(common, "ROOT", tmp_path)
    assert main(["pages", "--check"]) == 1
    assert capsys.readouterr().out == "out of date: page.md\n"
    assert page.read_text() == "old"
    assert main(["pages"]) == 0
    assert page.read_text() == "new"
    assert main(["pages", "--check"]) == 0


def _error_row(gradient, contender, scale):
    curve = [{"config": f"bits={bits}", "bits": bits, "error": scale * 4.0**-bits} for bits in (1, 2, 4)]
    here = dict.fromkeys(("cpu", "n_cores", "torch", "numba", "commit", "date"), "some")
    about = {"n": 9, "kurtosis": 3.0, "ours": contender == "dithered", "unbiased": True}
    return {"gradient": gradient, "contender": contender, **about, "curve": curve, "environment": here}


def test_the_chart_of_errors_is_drawn_where_there_is_a_result(tmp_path, monkeypatch):
    for module in (common, quantizers):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert not quantizers.error()
    assert not quantizers.figures()
    rows = [_error_row(name, *one) for name in ("rows", "byte LM, trained") for one in (("dithered", 1), ("EDEN", 2))]
    document = {"suite": "codec-error", "rows": rows}
    (tmp_path / "codec-error.json").write_text(json.dumps(document | goals_of(document)))
    drawn = quantizers.figures()
    assert list(drawn) == ["error-rows.svg", "error-byte-lm-trained.svg"]
    assert all(drawing.count("<polyline") == 3 for drawing in drawn.values())
    for words in ("(figures/error-rows.svg)", "| dithered |", "worst over gradients and bits | 2 | 1 | 1.5 | aim |"):
        assert words in quantizers.error()
