"""What docs/precision.md says of its results holds of every one of them."""

import json
from pathlib import Path
from statistics import median

import pytest

from laconic.glm import KNOBS

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("analyze-*.json"))


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
