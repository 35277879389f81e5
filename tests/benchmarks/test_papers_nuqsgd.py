"""The suite `papers nuqsgd`: the same batches for every method, variance at the same gradients, goals, claims."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch

from benchmarks.goals import goals_of_rows
from benchmarks.papers import nuqsgd_claims
from benchmarks.papers.nuqsgd import gradients
from benchmarks.papers.nuqsgd.methods import METHODS, methods
from benchmarks.papers.nuqsgd.networks import network
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.suite import nuqsgd_rows
from benchmarks.papers.nuqsgd.training import Schedule, finite
from laconic.bench.protocol import Spread, WrongResult
from laconic.bench.suite import document, row_fields
from laconic.errors import LaconicError
from laconic.measure.environment import Environment
from laconic.quantizers import NUQSGD, QSGD, Identity, QSGDInf, Sign
from laconic.training import SimulatedWorkers
from laconic.training.groups import Policy, make_groups

TINY = {
    "model": "resnet-8",
    "images": 32,
    "workers": 2,
    "batch_size": 4,
    "iterations": 4,
    "points": 3,
    "bucket_size": 512,
}


@pytest.fixture(scope="module")
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as ranks have it: sums then run in the same order
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rows(threads):
    return nuqsgd_rows(NUQSGDOptions(**TINY))


def test_every_method_has_a_row_and_a_curve(rows):
    assert [row.contender for row in rows] == ["fp32", "nuqsgd-4", "qsgd-4", "qsgdinf-4", "ef-sign"]
    for row in rows:
        assert (row.n, row.ranks, row.simulated, row.n_iterations) == (75_290, 2, True, 4)
        assert [point["iteration"] for point in row.curve] == [0, 2, 4]
        assert row.curve[0]["loss"] == rows[0].curve[0]["loss"]
        assert 0 <= row.accuracy <= 1
        assert [point["bytes"] for point in row.curve] == [0, 2 * row.bytes_sent, 4 * row.bytes_sent]
    assert len({row.loss for row in rows}) == len(rows)
    assert rows[0].baseline
    assert rows[0].loss_gap == 0
    assert rows[0].speedup_over_fp32 == Spread(1.0, 1.0, 1.0)
    assert rows[0].variance is rows[0].variance_at_fp32 is rows[0].bits_by_coder is None


def test_variances_are_under_their_bounds_and_in_the_papers_order(rows):
    by = {row.method: row for row in rows}
    for row in rows[1:]:
        assert 0 < row.variance_at_fp32 < row.bound
        assert row.variance == pytest.approx(row.variance_at_fp32, rel=0.5)
        start, *later = row.curve
        assert start["variance"] == start["variance_at_fp32"]  # the same weights
        assert all(point["variance"] != point["variance_at_fp32"] for point in later)
    assert by["nuqsgd"].variance_at_fp32 < by["qsgd"].variance_at_fp32


def test_coders_give_bits_above_the_entropy_and_fixed_width_what_is_sent(rows):
    for row in rows[1:]:
        assert list(row.bits_by_coder) == list(gradients.CODERS)
        assert row.bits_by_coder["rans"] > row.entropy > 0
        assert row.bits_by_coder["fixed"] == row.bits_per_coordinate
        assert row.bits == (1 if row.method == "ef-sign" else 4)
        assert row.bits <= row.bits_per_coordinate < row.bits + 0.1


def test_ranks_give_what_simulated_workers_give(rows, threads):
    """Bit for bit: variances of gradients have all digits in common. Running statistics are a rank's own."""
    names = ["nuqsgd", "ef-sign"]
    found = nuqsgd_rows(NUQSGDOptions(**{**TINY, "ranks": 2, "methods": names}))
    by = {row.method: row for row in rows}
    for row in found:
        assert (row.ranks, row.simulated) == (2, False)
        if row.method in names:
            ours = [point["variance"] for point in row.curve]
            assert ours == [point["variance"] for point in by[row.method].curve]
            assert row.bytes_sent == pytest.approx(by[row.method].bytes_sent, rel=0.01)


def test_rows_can_be_published(rows):
    said = {"options": NUQSGDOptions(**TINY).published(), "published": [asdict(c) for c in claims(rows)]}
    made = json.loads(json.dumps(document("papers-nuqsgd", rows, Environment.here(), **said), allow_nan=False))
    assert made["rows"][1]["curve"][-1]["variance"] > 0
    assert all(claim["source"] and claim["what"] for claim in made["published"])
    hidden = NUQSGDOptions("cifar10", "/home/me/sets").published()
    assert hidden["data"] == "sets"


def test_a_run_that_diverges_is_told(threads):
    with pytest.raises(WrongResult, match="smaller --learning-rate"):
        nuqsgd_rows(NUQSGDOptions(**{**TINY, "learning_rate": 1e30, "methods": ["nuqsgd"], "points": 2}))
    assert finite(math.nan) is finite(math.inf) is None


def test_looking_at_a_gradient_changes_nothing():
    torch.manual_seed(0)
    net = network("resnet-8", 10, (3, 8, 8))
    groups = make_groups(net.named_parameters(), Policy())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x, y = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    parts = gradients.gradient(net, groups, x, y)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    torch.nn.functional.cross_entropy(net(x), y).backward()
    flat = torch.cat([p.grad.reshape(-1) for p in net.parameters() if p.dim() > 1 and p.numel() >= 1024])
    assert sum(float(part.square().sum()) for part in parts) == pytest.approx(float(flat.square().sum()), rel=1e-4)


def averaged(method, given, order):
    """The average of known gradients (k, 16, 8, 3, 3), weights and gradients laid out in this order."""
    net = torch.nn.Conv2d(8, 16, 3, bias=False).to(memory_format=order)
    workers = SimulatedWorkers(net, method.codec, len(given))
    for _ in range(2):  # at the second, error memories are full
        workers.backward([lambda g=g: (net.weight * g.contiguous(memory_format=order)).sum() for g in given])
    return net.weight.grad, workers.last.bytes_sent, workers.last.nmse


@pytest.mark.parametrize("method", methods(METHODS, 4, 64), ids=lambda method: method.label)
def test_what_is_quantised_does_not_depend_on_how_weights_lie_in_memory(method):
    given = torch.randn(2, 16, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    ours, theirs = (averaged(method, given, order) for order in (torch.contiguous_format, torch.channels_last))
    assert torch.equal(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


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


def test_methods_begin_with_full_precision():
    assert [m.name for m in methods(["qsgd", "nuqsgd"], 4, 64)] == ["fp32", "nuqsgd", "qsgd"]
    assert methods(METHODS, 2, 64)[0].quantizer == Identity("fp32")
    with pytest.raises(ValueError, match="unknown method 'topk'"):
        methods(["topk"], 4, 64)


def test_the_rate_rises_and_falls_and_points_include_both_ends():
    schedule = Schedule(iterations=40, points=5)
    rates = [schedule.rate(t) for t in range(40)]
    assert rates[:3] == [0.05, 0.1, 0.1]
    assert (rates[19], rates[20], rates[30]) == (0.1, 0.01, 0.001)
    assert schedule.log_iterations == [0, 10, 20, 30, 40]
    assert Schedule(iterations=2, points=9).log_iterations == [0, 1, 2]


@pytest.mark.parametrize(("iterations", "epochs", "expected"), [(None, 2.0, 8), (None, 0.01, 1), (5, 2.0, 5)])
def test_epochs_become_iterations(iterations, epochs, expected):
    options = NUQSGDOptions(workers=2, batch_size=5, iterations=iterations, epochs=epochs)
    assert options.schedule(49).iterations == expected


def claims(rows):
    return nuqsgd_claims.claims({"rows": [row_fields(row) for row in rows]})


def losses(rows):
    return nuqsgd_claims.losses({"rows": [row_fields(row) for row in rows]})


def goals(rows):
    return goals_of_rows("papers-nuqsgd", rows)["goals"]


def changed(rows, **by_method):
    return [replace(row, **by_method.get(row.method.replace("-", "_"), {})) for row in rows]


def test_goals_and_claims_follow_the_rows(rows):
    made = changed(
        rows,
        fp32={"accuracy": 0.92, "loss": 0.1},
        nuqsgd={"accuracy": 0.915, "loss": 0.1, "variance_at_fp32": 0.2},
        qsgd={"accuracy": 0.88, "loss": 0.2, "variance_at_fp32": 4.0},
        qsgdinf={"accuracy": 0.917, "loss": 0.1, "variance_at_fp32": 0.1},
    )
    verdicts = {o["name"]: (round(o["value"]["median"], 6), o["verdict"]) for o in goals(made)}
    assert list(verdicts.values()) == [(20.0, "aim"), (2.0, "missed"), (2.0, "aim"), (0.5, "floor"), (0.2, "aim")]
    found = claims(made)
    assert [claim.holds for claim in found] == [True, False, True, True, True, True, None]
    assert found[3].measured == pytest.approx(3.5)
    said = " ".join(losses(made))
    assert "NUQSGD's is 2 times qsgdinf-4's" in said
    assert "qsgdinf-4: test accuracy 0.2 points above" in said
    assert "fp32: an iteration" not in said


def test_slow_and_diverged_methods_are_named(rows):
    slow = Spread(0.8, 0.8, 0.8)
    said = losses(changed(rows, nuqsgd={"speedup_over_fp32": slow, "loss": None, "accuracy": 0.1}))
    assert "nuqsgd-4: training has diverged." in said
    assert any(sentence.startswith("nuqsgd-4: an iteration takes 25 % longer") for sentence in said)
    alone = [row for row in rows if row.method in ("fp32", "ef-sign")]
    assert goals(alone) == []
    assert [claim.measured for claim in claims(alone)[:-1]] == [None] * 6


WRONG = {
    "data set": ({"dataset": "mnist"}, "unknown data set 'mnist'"),
    "no folder": ({"dataset": "cifar10"}, "give their folder with data=..."),
    "folder of nothing": ({"data": "/sets"}, "say which set is in data with dataset"),
    "model": ({"model": "vgg"}, "unknown model 'vgg'"),
    "method": ({"methods": ["topk"]}, "unknown method 'topk'"),
    "bits": ({"bits": 9}, "bits must be a whole number from 2 to 8"),
    "workers": ({"workers": 0}, "workers must be at least 1"),
    "batch": ({"batch_size": 1}, "batch_size must be at least 2"),
    "points": ({"points": 1}, "points must be at least 2"),
    "epochs": ({"epochs": 0.0}, "epochs must be above 0"),
    "rate": ({"learning_rate": -1.0}, "learning_rate must be above 0"),
    "seed": ({"seed": -1}, "seed must be an integer"),
    "ranks": ({"ranks": 1}, "ranks must be from 2"),
    "device": ({"device": "tpu"}, "must be cpu or cuda, got 'tpu'"),
    "exchange": ({"exchange": "pigeon"}, "unknown exchange 'pigeon'"),
}


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_told_before_any_work(options, said):
    with pytest.raises(ValueError, match=said):
        NUQSGDOptions(**{**TINY, **options})


def test_batches_larger_than_the_set_are_told():
    with pytest.raises(LaconicError, match="2 mini-batches of 40 are more than the 32 training images"):
        nuqsgd_rows(NUQSGDOptions(**{**TINY, "batch_size": 40}))
