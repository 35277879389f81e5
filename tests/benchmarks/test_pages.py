"""The tables and figures of the documentation are those of the results and of the library."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.pages import written

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("path", "text"), written().items(), ids=[path.name for path in written()])
def test_a_page_is_what_the_results_say(path, text):
    assert path.read_text() == text


def test_every_result_stands_on_a_page():
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    results = sorted(path.name for path in (ROOT / "benchmarks" / "results").glob("*.json"))
    assert [name for name in results if name not in pages] == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_a_page_names_results_that_are_there(path):
    for name in re.findall(r"benchmarks/results/([\w.-]+\.json)", path.read_text()):
        assert json.loads((ROOT / "benchmarks" / "results" / name).read_text())["rows"]
