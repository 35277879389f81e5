"""docs/performance.md shows every result of the suite `glm` that there is."""

import json
from dataclasses import replace

from benchmarks.glm.time_to import TimeRow
from benchmarks.goals import goals_of_rows
from benchmarks.pages import common, performance
from laconic.bench.glm.suite import GLMRow
from laconic.bench.protocol import Spread
from laconic.bench.suite import document
from laconic.measure.environment import Environment

ONE = Spread(1.0, 1.0, 1.0)
ROW = GLMRow(
    "poisson-synth", "poisson", 100, 18, "ca_sgd C s=4", "ca_sgd", "C", 4, 8, 4, None, 48, ONE, ONE, ONE, 0.1, 0.0,
    0.25, 112.0, 0.5, 0.002, 0.001,
)  # fmt: skip


def test_the_page_has_a_section_once_there_are_results(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    empty = "<!-- glm -->\n<!-- end -->\n"
    assert common.filled(empty, performance.WRITERS) == empty
    here = Environment.here()
    here = replace(here, commit=here.commit or "0" * 40)
    goals = goals_of_rows("glm", [ROW])
    (tmp_path / "glm.json").write_text(json.dumps(document("glm", [ROW], here, **goals)))
    raced = TimeRow("x", "bernoulli", 1, 1, "SGDClassifier", "optimal", ONE, ONE, 1.0, 1.0)
    (tmp_path / "glm-time-to.json").write_text(json.dumps(document("glm-time-to", [raced], here, goals=[])))
    page = common.filled(empty, performance.WRITERS)
    for words in ("## Generalised linear models", "### poisson-synth", "ca_sgd C s=4", "### x: to within 1 %"):
        assert words in page
    assert common.filled(page, performance.WRITERS) == page
