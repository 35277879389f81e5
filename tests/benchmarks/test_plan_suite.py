"""The suite `plan`: regrets and goals by hand, and the smallest grid there is."""

import json
from dataclasses import asdict

import pytest

from benchmarks import plan
from benchmarks.__main__ import main
from benchmarks.goals import goals_of_rows
from benchmarks.plan import PlanOptions, PlanRow, regrets
from laconic.bench.protocol import Spread
from laconic.planner.network import NETWORK_OPTIONS


def row(option, predicted, measured, *, recommended=False, compressed=False):
    spread = Spread(measured, measured, measured)
    return PlanRow("network", "10 gradients", 4, "1gbit", option, predicted, spread, recommended, compressed)


def rows(chosen, nuqsgd=1.2, bf16=1.0):
    return [
        row("fp32 all_reduce", 1.5, 2.0, recommended=chosen == "fp32"),
        row("bf16 all_reduce", 1.0, bf16, recommended=chosen == "bf16"),
        row("nuqsgd-4 scatter_reduce", 1.3, nuqsgd, recommended=chosen == "nuqsgd", compressed=True),
    ]


@pytest.mark.parametrize(
    ("chosen", "nuqsgd", "regret", "against", "should_not", "wrongly"),
    [
        ("bf16", 1.2, 1.0, 1.0, True, False),
        ("nuqsgd", 1.2, 1.2, 1.2, True, True),
        ("nuqsgd", 1.04, 1.04, 1.04, False, False),
        ("fp32", 0.5, 4.0, 2.0, False, False),
        ("nuqsgd", 0.5, 1.0, 0.5, False, False),
    ],
)
def test_regret_by_hand(chosen, nuqsgd, regret, against, should_not, wrongly):
    (found,) = regrets(rows(chosen, nuqsgd))
    assert found.regret == pytest.approx(regret)
    assert found.against_bf16 == pytest.approx(against)
    assert (found.should_not, found.wrongly) == (should_not, wrongly)


def test_goals_by_hand():
    some = rows("nuqsgd")
    said = goals_of_rows("plan", some, regrets=[asdict(one) for one in regrets(some)])
    verdicts = {goal["name"]: goal["verdict"] for goal in said["goals"]}
    assert verdicts == {
        "regret, median": "missed",
        "regret, worst": "aim",
        "predictions within 30 %": "aim",
        "compression recommended, yet 5 % slower than bf16": "missed",
    }
    assert some[0].error == pytest.approx(-0.25)


def test_a_single_rank_is_run_once():
    options = PlanOptions()
    assert options.cells[0] == (1, None)
    assert len(options.cells) == 7
    assert options.n_parts == 5 + 6 * 8


def test_the_smallest_grid(monkeypatch, capsys, tmp_path):
    for name, value in {"shapes": ((16, 4),), "sizes": (2000,), "rounds": 1}.items():
        monkeypatch.setattr(PlanOptions, name, property(lambda self, value=value: value))
    monkeypatch.setattr(plan, "ROUND_SECONDS", 1e-3)
    target = tmp_path / "plan.json"
    grid = ["--ranks", "2", "--rates", "loopback", "--s", "1,4"]
    assert main(["plan", *grid, "--json", "--quiet", "--output", str(target)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(target.read_text())
    assert document["suite"] == "plan"
    assert {one["kind"] for one in document["regrets"]} == {"glm", "network"}
    assert all(one["regret"] >= 1 for one in document["regrets"])
    assert sum(r["recommended"] for r in document["rows"]) == 2
    assert len(document["rows"]) == 2 + 3 * 2 + len(NETWORK_OPTIONS)
    assert len(document["goals"]) == 4
    assert document["calibrations"][0]["cluster"]["n_ranks"] == 2


WRONG = {
    "ranks": (["--ranks", "x"], "expected a whole number"),
    "no ranks": (["--ranks", ","], "--ranks must not be empty"),
    "too many": (["--ranks", "1000"], "ranks must be from 1 to 64"),
    "rate": (["--rates", "fast"], "such as 1gbit"),
    "no rate": (["--rates", ","], "rates must not be empty"),
    "s": (["--s", "0"], "expected a whole number"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, capsys):
    assert main(["plan", *arguments]) == 2
    _, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert said in err
