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
    problem="poisson-synth", family="poisson", n_rows=100, n_features=18, contender="ca_sgd C s=4", solver="ca_sgd",
    recipe="C", s=4, batch_size=8, ranks=4, n_iterations=48, seconds=ONE, speedup_over_fp32=ONE, speedup_over_bf16=ONE,
    cpu_seconds=0.1, messages=0.25, loss=0.5, loss_gap=0.002, difference=0.001,
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
