"""The tables and figures of the documentation are those of the results and of the library."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKERS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*_page.py"))


@pytest.fixture
def made(monkeypatch):
    """A module of benchmarks/, by name."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_is_what_the_results_say(name, made):
    maker = made(name)
    page = maker.PAGE.read_text()
    assert maker.rendered(page) == page


def test_every_result_stands_on_a_page():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    results = sorted(path.name for path in (ROOT / "benchmarks" / "results").glob("*.json"))
    assert [name for name in results if name not in pages] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_names_results_that_are_there(path):
    for name in re.findall(r"benchmarks/results/([\w.-]+\.json)", path.read_text()):
        assert json.loads((ROOT / "benchmarks" / "results" / name).read_text())["rows"]


@pytest.mark.parametrize("name", ["levels", "scatter_reduce", "blocks"])
def test_figures_are_what_the_library_says(name, made):
    figures = made("figures")
    assert (figures.FIGURES / f"{name.replace('_', '-')}.svg").read_text() == getattr(figures, name)()
