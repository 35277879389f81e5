"""The tables of docs/precision.md are those of the results."""

import importlib.util
import json
from pathlib import Path
from statistics import median

import pytest

from laconic.glm import KNOBS

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("analyze-*.json"))


def test_the_page_is_what_the_results_say():
    spec = importlib.util.spec_from_file_location("precision_page", ROOT / "benchmarks" / "precision_page.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    page = maker.PAGE.read_text()
    assert maker.rendered(page) == page


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_bounds_of_the_results_hold_and_are_near(path):
    made = json.loads(path.read_text())
    assert {row["knob"] for row in made["rows"]} == set(KNOBS)
    assert all(row["holds"] for row in made["rows"])
    assert median(row["ratio"] for row in made["rows"] if row["ratio"] is not None) <= 100
    for row in made["recipes"]:
        assert row["predicted"] / 4 <= row["measured"] <= 1.5 * row["predicted"]
    assert all(row["measured"] <= row["tolerance"] for row in made["choices"])


def test_there_are_results():
    assert {"analyze-a9a", "analyze-bike", "analyze-fremtpl2"} <= {path.stem for path in RESULTS}
