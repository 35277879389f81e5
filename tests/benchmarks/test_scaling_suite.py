"""The suite `scaling`: its grid, what it keeps, and the curve on paper; cells are made up."""

import json

import pytest

from benchmarks import scaling
from benchmarks.scaling import FP32, ScalingOptions, column_of, paper, problems, scaling_rows
from laconic.bench.suite import document
from laconic.errors import InvalidOption
from laconic.measure.calibrate import Calibration
from laconic.measure.environment import Environment
from laconic.planner import DEFAULT

OPTIONS = {"ranks": (1, 4), "rates": ("1gbit", "loopback"), "race": False}


@pytest.fixture
def cells(monkeypatch):
    """Cells that were asked for; a batch takes 8 µs over the ranks, and twice that on every next column."""
    asked = []

    def cell(options, ranks, rate):
        asked.append((ranks, rate))
        runs = {
            one.label: {"seconds": [8e-6 * 2**i / ranks] * 3, "losses": [1.0 + i / 100]}
            for i, one in enumerate(options.contenders(ranks))
        }
        return [[{"runs": runs} for _ in problems(ranks)]] * ranks

    monkeypatch.setattr(scaling, "_cell", cell)
    monkeypatch.setattr(scaling, "calibration", lambda: Calibration(DEFAULT).to_json())
    return asked


def test_rows_are_speeds_over_sgd_and_over_one_rank(cells):
    found = scaling_rows(ScalingOptions(**OPTIONS))
    assert cells == [(1, None), (4, "1gbit"), (4, None)]
    rows = {(row["kind"], row["ranks"], row["rate"], row["column"]): row for row in found["rows"]}
    assert len(rows) == 2 * (4 + 5 + 5)
    row = rows["weak", 4, "1gbit", "C"]
    assert (row["n_features"], row["over_sgd"], row["over_one"]) == (4 * scaling.WEAK_COLUMNS, 0.25, 16.0)
    assert row["loss_gap"] == pytest.approx(0.02)
    assert rows["strong", 4, None, "2-D"]["contender"] == "ca_sgd C s=32, 2 teams"
    assert rows["strong", 1, None, FP32]["predicted"] is None
    assert rows["strong", 4, "1gbit", "D"]["predicted"] < rows["strong", 4, "1gbit", FP32]["predicted"]


def test_a_later_run_measures_what_is_missing(cells, tmp_path):
    first = scaling_rows(ScalingOptions(**OPTIONS, kept=tmp_path, seconds=-1.0))
    assert (cells, first["left_out"]) == ([], ["1 ranks, loopback", "4 ranks, 1gbit", "4 ranks, loopback"])
    scaling_rows(ScalingOptions(**OPTIONS | {"ranks": (4,)}, kept=tmp_path))
    again = scaling_rows(ScalingOptions(**OPTIONS, kept=tmp_path))
    assert cells == [(4, "1gbit"), (4, None), (1, None)]
    assert again["left_out"] == []


def test_rows_of_an_earlier_document_stay_with_where_they_were_measured(cells, tmp_path):
    path, there = tmp_path / "earlier.json", Environment.here("abc")
    first = scaling_rows(ScalingOptions(**OPTIONS))
    made = document("scaling", first["rows"], there, race=[{"problem": "higgs"}], calibration=first["calibration"])
    path.write_text(json.dumps(made))
    again = scaling_rows(ScalingOptions(**OPTIONS | {"rates": ("1gbit", "25gbit"), "race": True}, earlier=path))
    assert cells[3:] == [(4, "25gbit")]
    rows = document("scaling", again["rows"], Environment.here("def"), race=again["race"])["rows"]
    commits = {(row["ranks"], row["rate"]): row["environment"]["commit"] for row in rows}
    assert commits == {(1, None): "abc", (4, "1gbit"): "abc", (4, None): "abc", (4, "25gbit"): "def"}
    assert again["race"] == [{"problem": "higgs"}]
    assert all(row["over_one"] for row in rows)


def test_on_paper_fewer_messages_scale_further():
    curves = {one["contender"]: one["curve"] for one in paper(ScalingOptions(), DEFAULT)}
    assert {len(curve) for curve in curves.values()} == {17}
    assert curves[FP32][-1]["ranks"] == 10_000
    ends = [curves[name][-1]["seconds"] for name in ("2-D", "C", FP32)]
    assert ends == sorted(ends)


@pytest.mark.parametrize("given", [{"iterations": 100}, {"rates": ("fast",)}])
def test_grids_that_cannot_be_are_refused(given):
    with pytest.raises((InvalidOption, ValueError)):
        ScalingOptions(**given)


def test_columns_are_what_s_precision_and_teams_bring():
    assert [column_of(one) for one in ScalingOptions().contenders(8)] == [*scaling.NAMES]
