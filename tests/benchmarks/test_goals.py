"""Goals and claims follow from the rows of a document, those of the committed results too."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.glm.libsvm_speed import FileRow
from benchmarks.glm.time_to import PRESENTATION, TimeRow
from benchmarks.goals import CODEC, PACK, goals_of, goals_of_rows
from benchmarks.papers import ca_sgd_claims, nuqsgd_claims
from laconic.bench.codec import Row
from laconic.bench.ddp import DDPRow
from laconic.bench.exchange import ExchangeRow
from laconic.bench.glm.suite import GLMRow
from laconic.bench.protocol import Spread
from laconic.bench.suite import row_fields
from laconic.report.tables import Words

ONE = Spread(1.0, 1.0, 1.0)
RESULTS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("*.json"))
PAPERS = [path for path in RESULTS if path.stem.startswith("papers")]
JUDGED = [path for path in RESULTS if json.loads(path.read_text()).get("goals")]


MOVED = [f"1 Gbit/s: loss of {codec} ÷ fp32" for codec in ("nuqsgd-4", "nuqsgd-4/512")]
"""Goals of `ddp` that are now judged by the longer runs of `ddp-loss`."""


@pytest.mark.parametrize("path", JUDGED, ids=lambda path: path.stem)
def test_goals_of_results_are_those_that_they_were_written_with_or_higher(path):
    """What was measured stays; what is asked of it may only have become more."""
    document = json.loads(path.read_text())
    found = goals_of(document)["goals"]
    kept = [goal for goal in document["goals"] if goal["name"] not in MOVED]
    assert [goal["name"] for goal in found] == [goal["name"] for goal in kept]
    for goal, written in zip(found, kept, strict=True):
        less_is_better = written["aim"] < written["floor"] or goal["aim"] < goal["floor"]
        for asked in ("floor", "aim"):
            harder = min if less_is_better else max
            assert goal[asked] == harder(goal[asked], written[asked]), (goal["name"], asked)
        assert goal["value"] == pytest.approx(written["value"], rel=1e-12)


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_claims_of_results_have_the_figures_that_they_were_written_with(path):
    """Verdicts are made anew: what counts as holding may change, what was measured may not."""
    document = json.loads(path.read_text())
    papers = {"papers-ca-sgd": ca_sgd_claims, "papers-nuqsgd": nuqsgd_claims}
    found = {claim.what: claim.measured for claim in papers[document["suite"]].claims(document)}
    written = {claim["what"]: claim["measured"] for claim in document["published"]}
    assert {what: found.get(what) for what in written} == written


def test_every_goal_of_codec_has_an_outcome_in_the_results():
    document = json.loads(next(path for path in RESULTS if path.stem == "codec").read_text())
    assert [goal["name"] for goal in goals_of(document)["goals"]] == [name for name, *_ in CODEC]


def verdicts(suite, *rows, **more):
    return [goal["verdict"] for goal in goals_of_rows(suite, rows, **more)["goals"]]


def floors(suite, *rows):
    return [(goal["floor"], goal["verdict"]) for goal in goals_of_rows(suite, rows)["goals"]]


@pytest.mark.parametrize(("value", "verdict"), [(0.4, "missed"), (0.5, "floor"), (0.99, "floor"), (1.0, "aim")])
def test_verdicts(value, verdict):
    ratio = Spread(value, value, value)
    row = Row("normal", 1, "nuqsgd-4", "", "kernel", PACK, 1, ratio, ratio_to_copy=ratio)
    assert verdicts("codec", row) == [verdict]


def test_goals_are_those_of_the_rate():
    one = Spread(4.0, 3.9, 4.1)
    timed = {"ranks": 4, "seconds": one, "speedup_over_fp32": one, "speedup_over_bf16": one, "n": 1}
    row = ExchangeRow(
        **timed, contender="nuqsgd-4 scatter_reduce", rate="1000mbit", exchange="", codec="", bytes_sent=1, nmse=0.0,
        bound=None, encode_seconds=0, decode_seconds=0,
    )  # fmt: skip
    assert floors("exchange", row) == [(3.5, "floor"), (1.9, "aim"), (5.0, "missed")]
    assert verdicts("exchange", replace(row, rate=None)) == ["aim"]
    assert verdicts("exchange", replace(row, rate="5mbit")) == []
    assert verdicts("exchange") == []
    ddp = DDPRow(**timed, contender="nuqsgd-4", rate="1gbit", config="", n_steps=9, loss=1.03, loss_over_fp32=1.03)
    assert verdicts("ddp", ddp) == ["aim", "aim"]
    assert verdicts("ddp-loss", {"contender": "nuqsgd-4/512", "loss_over_fp32": 1.03}) == ["missed"]
    assert verdicts("ddp-loss", {"contender": "nuqsgd-4/8192", "loss_over_fp32": None}) == ["missed"]
    assert verdicts("ddp-loss", {"contender": "nuqsgd-4/512", "loss_over_fp32": 1.004}) == ["aim"]


def test_goals_of_models_are_those_of_their_problem():
    fast = Spread(7.0, 6.5, 7.5)
    row = GLMRow(
        problem="susy", family="bernoulli", n_rows=100, n_features=18, contender="ca_sgd C s=4", solver="ca_sgd",
        recipe="C", s=4, batch_size=8, ranks=4, n_iterations=48, seconds=ONE, speedup_over_fp32=fast,
        speedup_over_bf16=fast, cpu_seconds=0.1, messages=0.25, loss=0.5, loss_gap=0.002, difference=0.001,
    )  # fmt: skip
    assert floors("glm", row) == [(5.1, "floor"), (0.5, "floor")]
    epsilon = replace(row, problem="epsilon", speedup_over_fp32=Spread(16, 15, 17), loss_gap=0.01)
    assert floors("glm", epsilon) == [(6.8, "aim"), (0.5, "missed")]
    assert [floor for floor, _ in floors("glm", replace(row, rate="1gbit"))] == [0.5]
    assert verdicts("glm", replace(row, recipe="D")) == []


def test_goals_of_the_race():
    row = TimeRow("x", "bernoulli", 1, 1, "SGDClassifier", "optimal", ONE, Spread(0.5, 0.5, 0.5), 1.0, 1.0)
    file = row_fields(FileRow(10**6, 1, ONE, ONE, Spread(6, 5, 7), 200 * 10**6))
    assert verdicts("glm-time-to", row, file=file) == ["missed", "aim", "aim"]
    assert verdicts("glm-time-to", replace(row, over_ours=Spread(4, 4, 4))) == ["floor"]
    lost = replace(row, contender="laconic C", config=None, seconds=None, over_ours=None, objective=None)
    (section,) = PRESENTATION.sections({"rows": [row_fields(one) for one in (row, lost)]})
    said = [line for block in section.blocks if isinstance(block, Words) for line in block.lines]
    assert "SGDClassifier is faster than ours." in said
    assert "laconic C does not come within 1 % of the optimum." in said


def test_the_command_judges_documents(capsys):
    assert main(["goals", *(str(path) for path in JUDGED if path.stem in ("plan", "codec"))]) == 0
    out = capsys.readouterr().out
    assert "regret, median" in out
    assert "rans encode" in out
    assert main(["goals", str(JUDGED[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[JUDGED[0].stem]["goals"]
