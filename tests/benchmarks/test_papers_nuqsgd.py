"""The suite `papers nuqsgd`: a run for each method and seed, variance at the same gradients, verdicts both ways."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.goals import goals_of_rows
from benchmarks.papers import nuqsgd_claims
from benchmarks.papers.nuqsgd import gradients
from benchmarks.papers.nuqsgd.suite import NUQSGDOptions, nuqsgd_rows
from benchmarks.training.jobs import keep
from benchmarks.training.run import PAPER, TASKS, Job, rate, train
from laconic.bench.suite import document, row_fields
from laconic.errors import LaconicError
from laconic.measure.environment import Environment
from laconic.quantizers import NUQSGD, QSGD, QSGDInf, Sign

TINY = {"model": "resnet-8", "images": 32, "workers": 2, "batch_size": 4, "epochs": 2}
NAMES = ["nuqsgd-4/8192", "qsgd-4/8192", "qsgdinf-4/8192"]


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return NUQSGDOptions(**TINY, seeds=2, methods=NAMES, out=str(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def rows(options):
    return nuqsgd_rows(options)


def test_every_method_has_a_row_over_its_seeds_and_a_curve(rows):
    assert [row.contender for row in rows] == ["fp32", *NAMES]
    for row in rows:
        assert (row.n, row.workers, row.n_iterations, row.seeds) == (75_290, 2, 8, [0, 1])
        assert [point["iteration"] for point in row.curve] == [0, 4, 8]
        assert row.curve[0]["loss"] == rows[0].curve[0]["loss"]
        assert row.accuracy == pytest.approx(sum(row.accuracies) / 2)
    assert len({row.loss for row in rows}) == len(rows)
    assert rows[0].below_fp32 == 0
    assert rows[0].variance is rows[0].variance_at_fp32 is rows[0].bits_by_coder is None


def test_variances_are_under_their_bounds_and_coders_above_the_entropy(rows):
    for row in rows[1:]:
        assert 0 < row.variance_at_fp32 < row.bound
        assert row.bits_by_coder["rans"] > row.entropy > 0
        assert 4 <= row.bits_by_coder["fixed"] == row.bits < 4.1
    by = {row.contender: row for row in rows}
    assert by[NAMES[0]].variance_at_fp32 < by[NAMES[1]].variance_at_fp32


def test_runs_are_kept_and_rows_can_be_published(rows, options):
    assert nuqsgd_rows(replace(options, seconds=0)) == rows
    said = {"options": options.published(), "published": [row_fields(c) for c in claims(rows)]}
    made = json.loads(json.dumps(document("papers-nuqsgd", rows, Environment.here(), **said), allow_nan=False))
    assert all(claim["source"] and claim["what"] for claim in made["published"])
    assert not {"out", "data"} & set(made["options"])


def test_runs_of_an_earlier_document_are_not_run_again(rows, options, tmp_path):
    earlier = tmp_path / "earlier.json"
    made = [replace(row, environment={"cpu": "another"} if row.contender == "fp32" else None) for row in rows]
    earlier.write_text(json.dumps({"rows": [row_fields(row) for row in made]}))
    elsewhere = replace(options, out=str(tmp_path / "runs"), seconds=0, earlier=str(earlier))
    assert nuqsgd_rows(elsewhere) == made
    said = document("papers-nuqsgd", made, Environment.here())["rows"]
    assert [row["environment"]["cpu"] == "another" for row in said] == [True, False, False, False]


def test_a_method_without_a_seed_of_full_precision_waits(rows, options, tmp_path):
    kept = [run for row in rows for run in row.runs if (run["job"]["member"], run["job"]["seed"]) != ("fp32", 1)]
    keep([run for run in kept if (run["job"]["member"], run["job"]["seed"]) != (NAMES[0], 0)], tmp_path)
    found = nuqsgd_rows(replace(options, out=str(tmp_path), seconds=0))
    assert [(row.contender, row.seeds) for row in found] == [("fp32", [0]), (NAMES[1], [0, 1]), (NAMES[2], [0, 1])]


def test_the_most_telling_runs_come_first():
    pairs = [(job.member, job.seed) for job in NUQSGDOptions(**TINY, seeds=3).jobs()]
    assert pairs[:4] == [("fp32", 0), *((name, 0) for name in PAPER[:3])]
    assert pairs[12:] == [(name, 0) for name in PAPER[3:]]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("member", PAPER)
def test_every_method_of_the_paper_trains(member):
    found = train(Job("resnet-8", member, 2, 1, None, 4, epochs=1, images=16))
    assert found["losses"][0] is not None
    assert 0 < found["bits"] < 5


EXACT = {
    "qsgdinf on its levels": (QSGDInf(bits=4, bucket_size=8), torch.tensor([7.0, -3.0, 0.0, 1.0]), 0.0),
    "nuqsgd on one value": (NUQSGD(bits=4, bucket_size=1), torch.tensor([5.0, -0.25]), 0.0),
    "sign": (Sign(bucket_size=2), torch.tensor([3.0, -1.0]), 2 / 10),
    "qsgd, one level": (QSGD(bits=2, bucket_size=4), torch.zeros(4), 0.0),
}


@pytest.mark.parametrize(("quantizer", "v", "expected"), EXACT.values(), ids=EXACT)
def test_the_normalised_variance_where_it_is_known(quantizer, v, expected):
    assert gradients.normalised_variance([v, v], quantizer) == pytest.approx(expected)


def test_the_normalised_variance_is_the_mean_of_many_roundings():
    """With two levels, 0 and 1, r is rounded to 1 with probability r: its variance is r (1 − r)."""
    v = torch.tensor([3.0, 1.0])
    r = v / v.norm()
    known = float((r * (1 - r)).sum())
    found = gradients.normalised_variance([v], QSGD(bits=2, bucket_size=2), draws=2000)
    assert found == pytest.approx(known, rel=0.15)  # six standard deviations of the mean


def test_the_rate_rises_and_falls():
    rates = [rate(t, 200, *TASKS["resnet-20"].schedule) for t in range(200)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert (rates[99], rates[100], rates[150]) == (1.0, 0.1, 0.01)
    (job,) = NUQSGDOptions(**{**TINY, "epochs": 160}, seeds=1, methods=["fp32"], lr=0.4, warmup=5).jobs()
    rates = [round(job.rate(97 * epoch, 97 * 160), 5) for epoch in (1, 4, 5, 79, 80, 120)]
    assert rates == [0.08082, 0.32082, 0.4, 0.4, 0.04, 0.004]
    assert job.label == "resnet-8 fp32 x2 lr 0.4 fp32 seed 0"


def claims(rows):
    return nuqsgd_claims.claims({"rows": [row_fields(row) for row in rows]})


def losses(rows):
    return nuqsgd_claims.losses({"rows": [row_fields(row) for row in rows]})


def changed(rows, accuracies, **more):
    """With these accuracies for both seeds, and variances 0.2, 4 and 0.1 of NUQSGD, QSGD and QSGDInf."""
    full, variances = accuracies[0], (None, 0.2, 4.0, 0.1)
    return [
        replace(row, accuracy=a, accuracies=[a, a], below_fp32=100 * (full - a), variance_at_fp32=v, loss=0.1, **more)
        for row, a, v in zip(rows, accuracies, variances, strict=True)
    ]


VERDICTS = {
    "as published": ((0.92, 0.916, 0.88, 0.917), ["holds", "no", "holds", "holds", "holds", "holds", None]),
    "worse": ((0.92, 0.90, 0.91, 0.917), ["holds", "no", "holds", "no", "no", "no", None]),
    "30 points better than full precision": ((0.62, 0.92, 0.5, 0.92), ["holds", "no", "holds", "holds", "holds", "no",
                                                                        None]),
}  # fmt: skip


@pytest.mark.parametrize(("accuracies", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts_cut_both_ways(accuracies, expected, rows):
    assert [claim.verdict for claim in claims(changed(rows, accuracies))] == expected


def test_goals_and_losses_follow_the_rows(rows):
    made = changed(rows, (0.92, 0.916, 0.88, 0.919))
    found = {
        o["name"]: (round(o["value"]["median"], 6), o["verdict"]) for o in goals_of_rows("papers-nuqsgd", made)["goals"]
    }
    assert list(found.values()) == [(0.4, "floor"), (0.1, "aim"), (20.0, "aim")]
    said = " ".join(losses(made))
    assert "NUQSGD's is 2 times that of qsgdinf-4/8192" in said
    assert "qsgdinf-4/8192: test accuracy 0.3 points above" in said
    assert "qsgd-4/8192: test accuracy 4 points below full precision" in said
    assert "training has diverged" in " ".join(losses([made[0], replace(made[1], loss=None)]))


WRONG = {
    "no folder": ({"data": "/nowhere"}, "there is no folder /nowhere"),
    "model": ({"model": "vgg"}, "unknown model 'vgg'"),
    "method": ({"methods": ["topk"]}, "unknown method 'topk'"),
    "workers": ({"workers": 0}, "workers must be at least 1"),
    "batch": ({"batch_size": 1}, "batch_size must be at least 2"),
    "epochs": ({"epochs": 0}, "epochs must be at least 1"),
    "precision": ({"precision": "fp8"}, "unknown precision 'fp8'"),
    "no document": ({"earlier": "/nowhere.json"}, "there is no file /nowhere.json"),
    "rate": ({"lr": -1.0}, "lr must be at least 0, got -1.0"),
    "device": ({"device": "tpu"}, "must be cpu or cuda, got 'tpu'"),
}


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_told_before_any_work(options, said):
    with pytest.raises(ValueError, match=said):
        NUQSGDOptions(**{**TINY, **options})


def test_batches_larger_than_the_set_are_told(tmp_path):
    with pytest.raises(LaconicError, match="2 batches of 40 are more than the examples"):
        nuqsgd_rows(NUQSGDOptions(**{**TINY, "batch_size": 40}, out=str(tmp_path)))
