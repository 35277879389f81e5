"""Goals: which of them a run speaks to, and the verdicts."""

from dataclasses import replace

import pytest

from benchmarks.glm.files import FileRow
from benchmarks.glm.time_to import TimeRow
from benchmarks.goals.codec import GOALS, PACK, outcomes
from benchmarks.goals.glm import glm_outcomes, race_losses, time_outcomes
from benchmarks.goals.network import network_outcomes
from laconic.bench import Options, Spread, steps
from laconic.bench.codec import Row
from laconic.bench.ddp import DDPRow
from laconic.bench.exchange import ExchangeRow
from laconic.bench.glm.suite import GLMRow

ONE = Spread(1.0, 1.0, 1.0)


def test_every_goal_has_an_outcome():
    options = Options(size=1000, bucket_size=64, repeats=1, schemes=["nuqsgd", "qsgdinf"])
    rows = [row for step in steps(options) for row in step.run()]
    assert [o.name for o in outcomes(rows)] == [goal.name for goal in GOALS]


@pytest.mark.parametrize(("value", "verdict"), [(0.4, "missed"), (0.5, "floor"), (0.99, "floor"), (1.0, "aim")])
def test_verdicts(value, verdict):
    ratio = Spread(value, value, value)
    row = Row("normal", 1, "nuqsgd-4", "", "kernel", PACK, 1, ratio, ratio_to_copy=ratio)
    assert [o.verdict for o in outcomes([row])] == [verdict]


def test_goals_are_those_of_the_rate():
    one = Spread(4.0, 3.9, 4.1)
    row = ExchangeRow("nuqsgd-4 scatter_reduce", "", "", 1, 4, "1000mbit", one, one, one, 1, 0.0, None, 0, 0, 0)
    assert [(o.floor, o.verdict) for o in network_outcomes([row])] == [(3.5, "floor"), (1.9, "aim")]
    assert [o.verdict for o in network_outcomes([replace(row, rate=None)])] == ["aim"]
    assert network_outcomes([replace(row, rate="5mbit")]) == []
    assert network_outcomes([]) == []
    ddp = DDPRow("nuqsgd-4", "", 1, 4, "1gbit", 9, one, one, one, loss=1.03, loss_over_fp32=1.03)
    assert [o.verdict for o in network_outcomes([ddp])] == ["aim", "aim", "missed"]


def test_goals():
    fast = Spread(7.0, 6.5, 7.5)
    row = GLMRow(
        "susy", "bernoulli", 100, 18, "ca_sgd C s=4", "ca_sgd", "C", 4, 8, 4, None, 48, ONE, fast, fast, 0.1, 0.0, 0.25,
        112.0, 0.5, 0.002, 0.001,
    )  # fmt: skip
    assert [(o.floor, o.verdict) for o in glm_outcomes([row])] == [(5.1, "floor"), (0.5, "floor")]
    epsilon = replace(row, problem="epsilon", speedup_over_fp32=Spread(16, 15, 17), loss_gap=0.01)
    assert [(o.floor, o.verdict) for o in glm_outcomes([epsilon])] == [(6.8, "aim"), (0.5, "missed")]
    assert [o.floor for o in glm_outcomes([replace(row, rate="1gbit")])] == [0.5]
    assert glm_outcomes([replace(row, recipe="D")]) == []


def test_goals_of_the_race():
    row = TimeRow("x", "bernoulli", 1, 1, "SGDClassifier", "optimal", ONE, Spread(0.5, 0.5, 0.5), 1.0, 1.0)
    file = FileRow(10**6, 1, ONE, ONE, Spread(6, 5, 7), 200 * 10**6)
    assert [o.verdict for o in time_outcomes([row], file)] == ["missed", "aim", "aim"]
    assert [o.verdict for o in time_outcomes([replace(row, over_ours=Spread(4, 4, 4))], None)] == ["floor"]
    lost = replace(row, contender="laconic C", config=None, seconds=None, over_ours=None, objective=None)
    assert race_losses([row, lost]) == [
        "SGDClassifier is faster than ours.",
        "laconic C does not come within 1 % of the optimum.",
    ]
