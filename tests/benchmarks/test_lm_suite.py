"""The suite `lm`: a curve and the seconds of a step give the time to a loss."""

import json
from dataclasses import replace

import pytest

from benchmarks import lm
from benchmarks.goals import goals_of_rows
from benchmarks.lm import CONTENDERS, LMOptions, lm_rows, on_link, steps_to
from benchmarks.training import data
from laconic.bench.ddp import DDPRow
from laconic.bench.protocol import Spread
from laconic.bench.suite import row_fields

OPTIONS = LMOptions(steps=20, seeds=2)
SECONDS = {"fp32": 8.0, "bf16": 4.0, "powersgd": 0.5, "nuqsgd-4/512": 1.0, "dithered-0.1@metric": 0.5, "rotated-4": 1.0,
           "nothing": 0.1}  # fmt: skip


def timed(labels):
    """A row for each label, in the order of `SECONDS`."""
    found = []
    for label, seconds in zip(labels, SECONDS.values(), strict=False):
        spread = Spread(seconds, seconds, seconds)
        found.append(DDPRow(
            contender=label, ranks=4, rate="1gbit", seconds=spread, speedup_over_fp32=spread, speedup_over_bf16=spread,
            bytes_sent=2e6, config="", n=100, n_steps=3, loss=1.0, loss_over_fp32=1.0,
        ))  # fmt: skip
    return found


def curve(*losses, bits=4.0):
    points = [{"step": 10 * i, "seconds": 0.0, "losses": [loss, loss]} for i, loss in enumerate(losses)]
    return {"curve": points, "source": "made up", "n": 99, "bits": bits}


@pytest.fixture
def rows():
    results = {
        "fp32": curve(4.0, 2.0, 1.0),
        "bf16": curve(4.0, 2.0, 1.0),
        "nuqsgd-4/512": curve(4.0, 3.0, 1.5, 0.5),
        "dithered-0.1@metric": curve(4.0, 3.0, 1.5, 1.2),
        "rotated-4": curve(4.0, 3.0, None),
    }
    every = {row.contender: row for row in timed([CONTENDERS.get(name, name) for name in SECONDS])}
    return {row.contender: row for row in on_link("1gbit", "ddp", every, results, OPTIONS)}


EXPECTED = {
    "fp32": (20.0, 160.0, 1.0, 2.0 * 20),
    "bf16": (20.0, 80.0, 2.0, 2.0 * 20),
    "nuqsgd-4/512": (25.0, 25.0, 6.4, 2.0 * 25),
    "dithered-0.1@metric": (None, None, None, None),
    "rotated-4": (None, None, None, None),
    "powersgd": (None, None, None, None),
    "nothing": (None, None, None, None),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_time_to_the_loss_is_steps_times_seconds(name, rows):
    row = rows[name]
    assert (row.steps_to_loss, row.seconds_to_loss, row.speedup, row.megabytes_to_loss) == EXPECTED[name]
    assert row.seconds == SECONDS[name]


def test_goals_are_of_the_best_codec_of_ours(rows):
    found = goals_of_rows("lm", list(rows.values()))["goals"]
    assert [(goal["value"]["median"], goal["verdict"]) for goal in found] == [(6.4, "floor"), (3.2, "floor")]
    for other in ({"rate": "10gbit"}, {"way": "FSDP2"}):
        assert goals_of_rows("lm", [replace(row, **other) for row in rows.values()])["goals"] == []


def test_a_curve_that_rises_first_is_reached_once():
    assert steps_to([(0, 1.0), (10, 3.0), (20, 2.0)], 2.5) == 15.0
    assert steps_to([(0, 1.0), (10, 0.5)], 2.0) == 0.0


def test_curves_are_trained_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "VALIDATED", 2)
    monkeypatch.setattr(lm, "ddp_rows", lambda options: timed(options.labels))
    options = LMOptions(members=("nuqsgd-4/512",), steps=4, seeds=1, rates=("1gbit",), width=32, out=tmp_path)
    found = lm_rows(options)
    of_ddp = ["fp32", "bf16", "nuqsgd-4/512", "nothing"]
    assert [(row.way, row.contender) for row in found] == [("DDP", name) for name in of_ddp] + [
        ("FSDP2", name) for name in of_ddp[:3]
    ]
    assert {row.contender for row in found if row.loss} == {"fp32", "nuqsgd-4/512"}
    assert json.dumps([row_fields(row) for row in found], allow_nan=False)
    assert [row_fields(row) for row in lm_rows(replace(options, seconds=0.0))] == [row_fields(row) for row in found]
