"""The suite `lm`: a curve and the seconds of a step give the time to a loss."""

import json
import math
from dataclasses import replace

import pytest
import torch

from benchmarks import lm
from benchmarks.goals import goals_of_rows
from benchmarks.lm import CONTENDERS, LMOptions, lm_rows, on_link, random_bytes, steps_to
from benchmarks.training import data
from benchmarks.training.jobs import result_of, run_job
from benchmarks.training.networks import ByteModule, ByteTransformer
from laconic.bench.ddp import DDPRow, ddp_rows
from laconic.bench.protocol import Spread
from laconic.bench.suite import row_fields
from laconic.errors import InvalidOption

OPTIONS = LMOptions(steps=20, seeds=2)
SECONDS = {"fp32": 8.0, "bf16": 4.0, "powersgd": 0.5, "powersgd-32": 0.5, "nuqsgd-4/512": 1.0,
           "dithered-0.1@metric": 0.5, "rotated-4": 1.0, "nothing": 0.1}  # fmt: skip


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
    """Of two seeds, whose losses differ by 0.2."""
    points = [[{"step": 10 * i, "losses": [loss and loss + d]} for i, loss in enumerate(losses)] for d in (-0.1, 0.1)]
    return [{"curve": one, "source": "made up", "n": 99, "bits": bits + i} for i, one in enumerate(points)]


@pytest.fixture
def rows():
    results = {
        "fp32": curve(4.0, 2.0, 1.0),
        "bf16": curve(4.0, 2.0, 1.0),
        "powersgd-32": curve(4.0, 1.0),
        "nuqsgd-4/512": curve(4.0, 3.0, 1.5, 0.5),
        "dithered-0.1@metric": curve(4.0, 3.0, 1.5, 1.2),
        "rotated-4": curve(4.0, 3.0, None),
    }
    labels = [CONTENDERS.get(name, name) for name in SECONDS]
    every = {label: {"seconds": s, "bytes_sent": 2e6} for label, s in zip(labels, SECONDS.values(), strict=True)}
    return {row.contender: row for row in on_link("1gbit", "ddp", every, results, OPTIONS)}


EXPECTED = {
    "fp32": (20.0, 160.0, 1.0, 2.0 * 20),
    "bf16": (20.0, 80.0, 2.0, 2.0 * 20),
    "nuqsgd-4/512": (25.0, 25.0, 6.4, 2.0 * 25),
    "dithered-0.1@metric": (None, None, None, None),
    "rotated-4": (None, None, None, None),
    "powersgd": (None, None, None, None),
    "powersgd-32": (10.0, 5.0, 32.0, 2.0 * 10),
    "nothing": (None, None, None, None),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_time_to_the_loss_is_steps_times_seconds(name, rows):
    row = rows[name]
    assert (row.steps_to_loss, row.seconds_to_loss, row.speedup, row.megabytes_to_loss) == EXPECTED[name]
    assert (row.seconds, row.bits) == (SECONDS[name], None if name in ("powersgd", "nothing") else 4.5)


def test_goals_are_of_the_best_codec_of_ours(rows):
    found = goals_of_rows("lm", list(rows.values()))["goals"]
    assert [(goal["value"]["median"], goal["verdict"]) for goal in found] == [(6.4, "floor"), (3.2, "floor")]
    assert goals_of_rows("lm", [replace(row, rate="10gbit") for row in rows.values()])["goals"] == []
    sharded = goals_of_rows("lm", [*rows.values(), *(replace(row, way="FSDP2") for row in rows.values())])["goals"]
    assert [goal["name"].split()[0] for goal in sharded] == ["DDP", "DDP", "FSDP2", "FSDP2"]


def test_a_curve_that_rises_first_is_reached_once():
    assert steps_to([(0, 1.0), (10, 3.0), (20, 2.0)], 2.5) == 15.0
    assert steps_to([(0, 1.0), (10, 0.5)], 2.0) == 0.0


def test_the_timed_network_is_that_of_the_curves():
    net, x = ByteTransformer(32, 2, 8), torch.randint(256, (3, 8))
    scores = net.scores({name: value[None] for name, value in net.initial(0).items()}, x[None], {})
    assert torch.equal(ByteModule(net)(x).transpose(1, 2).flatten(0, 1), scores[0])


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_steps_are_timed_on_ranks(way, monkeypatch):
    monkeypatch.setattr(lm, "BATCH_SIZE", 2)
    options = LMOptions(members=("nuqsgd-4/512", "dithered-0.1@metric"), width=32, repeats=1)
    rows = ddp_rows(replace(options.timing("1gbit", way), rate=None, ranks=2))
    n = sum(p.numel() for p in random_bytes(32).new_network().parameters())
    assert {row.n for row in rows} == {n}
    sent = {row.contender: row.bytes_sent / n for row in rows if row.bytes_sent}
    assert sent.keys() == ({"nuqsgd-4/512", "dithered-0.1@metric"} if way == "ddp" else {"nuqsgd-4/512"})
    assert max(sent.values()) < 1.0


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Options of a small run, and the links whose steps were timed."""
    links = []
    monkeypatch.setattr(data, "VALIDATED", 2)
    monkeypatch.setattr(lm, "BATCH_SIZE", 2)
    monkeypatch.setattr(lm, "ddp_rows", lambda options: links.append(options.rate) or timed(options.labels))
    return LMOptions(members=("nuqsgd-4/512",), steps=4, seeds=2, rates=("1gbit",), width=32, out=tmp_path), links


def said(options):
    """Rows, and what is left out."""
    made = lm_rows(options)
    return {name: made[name] for name in ("rows", "left_out")}


def test_curves_and_steps_are_made_once(asked, tmp_path):
    options, links = asked
    made = lm_rows(options)
    found = made["rows"]
    of_ddp = ["fp32", "bf16", "nuqsgd-4/512", "nothing"]
    assert [(row.way, row.contender) for row in found] == [("DDP", name) for name in of_ddp] + [
        ("FSDP2", name) for name in of_ddp[:3]
    ]
    assert {row.contender for row in found if row.loss} == {"fp32", "nuqsgd-4/512"}
    assert json.dumps([row_fields(row) for row in found], allow_nan=False)
    assert said(replace(options, seconds=0.0)) == {"rows": found, "left_out": []}
    (tmp_path / "lm.json").write_text(json.dumps({"runs": made["runs"], "steps": made["steps"]}))
    elsewhere = replace(options, seconds=0.0, out=tmp_path / "elsewhere", earlier=tmp_path / "lm.json")
    assert said(elsewhere) == {"rows": found, "left_out": []}
    assert links == ["1gbit"] * 2
    assert len({result_of(job, options.out)["result"]["losses"][0] for job in options.jobs()}) == 4
    with pytest.raises(InvalidOption, match=r"steps-ddp-1gbit\.json with repeats = 10, not 11"):
        lm_rows(replace(options, repeats=11))


def test_what_there_was_no_time_for_is_told_and_gone_on_with(asked):
    options, links = asked
    curves = [f"lm-large {name} x4{seed}" for name in ("fp32", "nuqsgd-4/512") for seed in ("", " seed 1")]
    missing = [*curves, "steps at 1gbit, ddp", "steps at 1gbit, fsdp"]
    nothing = said(replace(options, seconds=0.0))
    assert (nothing, lm.about(nothing)) == ({"rows": [], "left_out": missing}, "")
    run_job(options.jobs()[0], options.out, math.inf)
    lm.timed_steps(options, "1gbit", "ddp", late=False)
    assert said(replace(options, seconds=0.0)) == {"rows": [], "left_out": [*missing[1:4], missing[5]]}
    lm.timed_steps(replace(options, members=("fp32",)), "1gbit", "fsdp", late=False)
    with pytest.raises(InvalidOption, match=r"steps-fsdp-1gbit\.json with labels = .*; give another folder"):
        lm_rows(replace(options, seconds=0.0))
    assert links == ["1gbit"] * 2
