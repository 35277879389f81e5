"""docs/performance.md shows every result of the suite `glm` that there is."""

import json
from dataclasses import asdict, replace

from benchmarks.glm.time_to import TimeRow
from benchmarks.goals.glm import glm_outcomes
from benchmarks.pages import performance as maker
from laconic.bench import Environment, Spread, document
from laconic.bench.glm.suite import GLMRow

ONE = Spread(1.0, 1.0, 1.0)
ROW = GLMRow(
    "poisson-synth", "poisson", 100, 18, "ca_sgd C s=4", "ca_sgd", "C", 4, 8, 4, None, 48, ONE, ONE, ONE, 0.1, 0.0,
    0.25, 112.0, 0.5, 0.002, 0.001,
)  # fmt: skip


def test_the_page_has_a_section_once_there_are_results(tmp_path, monkeypatch):
    monkeypatch.setattr(maker, "RESULTS", tmp_path)
    empty = "<!-- glm -->\n<!-- end -->\n"
    assert maker.rendered(empty) == empty
    here = Environment.here()
    here = replace(here, commit=here.commit or "0" * 40)
    goals = [asdict(o) for o in glm_outcomes([ROW])]
    (tmp_path / "glm.json").write_text(json.dumps(document("glm", [ROW], here, goals=goals)))
    raced = TimeRow("x", "bernoulli", 1, 1, "SGDClassifier", "optimal", ONE, ONE, 1.0, 1.0)
    (tmp_path / "glm-time-to.json").write_text(json.dumps(document("glm-time-to", [raced], here, goals=[])))
    page = maker.rendered(empty)
    for words in ("## Generalised linear models", "### poisson-synth", "ca_sgd C s=4", "### x: to within 1 %"):
        assert words in page
    assert maker.rendered(page) == page
