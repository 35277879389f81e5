"""The suites of several ranks: contenders, checks, goals. No test asserts a time."""

import math

import pytest
import torch

from laconic.bench.ddp import DDPOptions, ddp_rows
from laconic.bench.exchange import CONTENDERS, ExchangeOptions, error_bound, exchange_rows
from laconic.bench.fsdp import FSDPOptions
from laconic.bench.protocol import Spread, WrongResult
from laconic.bench.ranks import check_replicas
from laconic.bench.training import batch_rows, clusters, markov_chains
from laconic.codec import codec
from laconic.exchange import AllGather, AllReduce, Nothing, ScatterReduce
from laconic.kernels import Stream

TINY = {"ranks": 2, "size": 5000, "repeats": 2}


@pytest.fixture(scope="module")
def rows():
    return exchange_rows(ExchangeOptions(bucket_size=512, piece_values=2000, **TINY))


def test_every_contender_has_a_row(rows):
    assert [row.contender for row in rows] == list(CONTENDERS)
    assert len({row.contender for row in rows}) == len(rows)
    for row in rows:
        assert row.n == 5000
        assert row.ranks == 2
        assert row.seconds.p20 <= row.seconds.median <= row.seconds.p80
        assert row.bound is None or row.nmse <= row.bound * 1.001 + 1e-12


def test_baselines_are_one_against_themselves(rows):
    assert rows[0].speedup_over_fp32 == Spread(1.0, 1.0, 1.0)
    assert rows[1].speedup_over_bf16 == Spread(1.0, 1.0, 1.0)


def test_bytes_are_those_of_the_codec(rows):
    sent = {row.contender: row.bytes_sent for row in rows}
    assert sent["fp32 all_reduce"] == 2 * sent["bf16 all_reduce"] == 20000
    assert sent["nothing"] == 0
    assert sent["nuqsgd-2 scatter_reduce"] < sent["nuqsgd-4 scatter_reduce"] < sent["nuqsgd-8 scatter_reduce"]


def test_only_what_was_asked_for():
    assert ExchangeOptions(codecs=["nothing", "ef-sign"]).labels[2:] == ["ef-sign all_gather", "nothing"]
    assert ExchangeOptions(codecs=["fp32"]).labels == ["fp32 all_reduce", "bf16 all_reduce"]
    baselines = ["DDP fp32", "DDP bf16 hook"]
    for name, label in {"powersgd": "DDP PowerSGD hook", "powersgd-32": "DDP PowerSGD hook, rank 32"}.items():
        assert DDPOptions(codecs=[name]).labels == [*baselines, label]


def test_ranks_that_differ_are_found():
    same = {"x": {"digest": "a"}, "nothing": {"digest": "a"}}
    check_replicas([same, {"x": {"digest": "a"}, "nothing": {"digest": "b"}}])
    with pytest.raises(WrongResult, match="x: the ranks do not hold the same bits"):
        check_replicas([same, {"x": {"digest": "b"}, "nothing": {"digest": "a"}}])


def test_a_mean_that_is_off_is_found(monkeypatch):
    labels = ExchangeOptions(codecs=["nuqsgd-4"]).labels
    found = {"digest": "a", "seconds": [1.0], "nmse": 0.0, "bytes_sent": 1}
    found |= {"encode_seconds": 0.0, "wire_seconds": 0.0, "decode_seconds": 0.0}
    ranks = [{label: found | {"nmse": 100.0 if label == labels[2] else 0.0} for label in labels}] * 2
    monkeypatch.setattr("laconic.bench.ranks.on_ranks", lambda *arguments, **where: ranks)
    with pytest.raises(WrongResult, match=r"nuqsgd-4 scatter_reduce: the error is 100 of ‖v‖², above"):
        exchange_rows(ExchangeOptions(codecs=["nuqsgd-4"], **TINY))


def test_bounds():
    sign, nuq, half = codec("ef-sign"), codec("nuqsgd"), codec("bf16")
    assert math.isinf(error_bound(Nothing(), codec("fp32"), 100, 4))
    assert error_bound(AllGather(), nuq, 100, 4) == AllGather().variance_bound(nuq, 100, 4)
    assert error_bound(AllGather(), sign, 100, 4) == pytest.approx(sign.quantizer.variance_bound(100))
    assert error_bound(AllReduce(), half, 100, 4) == pytest.approx(16 * 2.0**-16)
    assert error_bound(ScatterReduce(), half, 100, 4) > 2.0**-16


def test_ddp_trains_every_contender():
    options = DDPOptions(batch_size=4, codecs=["powersgd", "powersgd-32", "nuqsgd-4", "ef-sign", "nothing"], **TINY)
    rows = ddp_rows(options)
    assert [r.contender for r in rows][:3] == ["DDP fp32", "DDP bf16 hook", "DDP PowerSGD hook"]
    assert rows[0].loss_over_fp32 == 1.0
    for row in rows:
        assert row.n >= 5000
        assert row.n_steps == 5
        assert math.isfinite(row.loss)
        assert (row.bytes_sent is None) == row.contender.startswith("DDP")


@pytest.mark.parametrize("problem", ["clusters", pytest.param("text", marks=pytest.mark.exhaustive)])
def test_fsdp_trains_every_contender(problem):
    weights = ["nuqsgd-4/512+bf16", "nuqsgd-4/512+differences-8"]
    rows = ddp_rows(FSDPOptions(batch_size=4, problem=problem, codecs=["nuqsgd-4/512", "ef-sign", *weights], **TINY))
    assert [row.contender for row in rows] == ["FSDP2 fp32", "FSDP2 bf16", "nuqsgd-4/512", "ef-sign", *weights]
    assert len({row.n for row in rows}) == 1
    for row in rows:
        assert row.loss_over_fp32 == pytest.approx(1.0, abs=0.1)
        assert (row.bytes_sent is None) == row.contender.startswith("FSDP2")
    plain, _, bf16, differences = (row.weight_bytes_sent for row in rows[2:])
    assert plain > bf16 > differences


def test_more_seeds_are_more_trials():
    once, twice = (ddp_rows(DDPOptions(batch_size=4, codecs=["nuqsgd-4/512"], seeds=seeds, **TINY)) for seeds in (1, 2))
    assert [row.contender for row in twice] == ["DDP fp32", "DDP bf16 hook", "nuqsgd-4/512"]
    assert [row.n_seeds for row in twice] == [2, 2, 2]
    assert [row.n for row in twice] == [row.n for row in once]
    assert all(two.loss != one.loss for one, two in zip(once, twice, strict=True))
    assert twice[2].bytes_sent == once[2].bytes_sent


@pytest.mark.parametrize("size", [1, 10_000, 2**22, 2**26])
def test_the_network_is_as_large_as_asked(size):
    made = clusters(size)
    with torch.device("meta"):
        width = made.network()[0].out_features
    assert width % 16 == 0
    assert (1024 + 16 + width) * width >= size
    assert width == 16 or (1024 + 16 + width - 16) * (width - 16) < size


@pytest.mark.parametrize("size", [1, 10_000, 2**22, 20_000_000])
def test_the_transformer_is_as_large_as_asked(size):
    made = markov_chains(size)
    with torch.device("meta"):
        assert sum(p.numel() for p in made.network().parameters()) >= size


@pytest.mark.parametrize("kind", [ExchangeOptions, DDPOptions, FSDPOptions])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 1}, "ranks must be from 2 to 250, got 1"),
        ({"ranks": 1000}, "ranks must be from 2"),
        ({"rate": "fast"}, "got 'fast'"),
        ({"size": 0}, "size must be .*at least 1"),
        ({"repeats": 0}, "repeats must be .*at least 1"),
        ({"codecs": ["zip"]}, "unknown codec 'zip'; choose from fp32"),
        ({"codecs": []}, "no codec"),
    ],
)
def test_wrong_options_are_told_before_any_work(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_batches_of_other_seeds_steps_and_ranks_are_others():
    places = [(seed, step, rank) for seed in (0, 1) for step in (0, 1) for rank in (0, 1)]
    drawn = [batch_rows(10**6, 8, Stream(seed, rank, step)).tolist() for seed, step, rank in places]
    assert len({tuple(rows) for rows in drawn}) == len(places)
    assert drawn[0] == batch_rows(10**6, 8, Stream()).tolist()
