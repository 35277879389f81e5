"""The suite `codec`, at a size that takes no time."""

import pytest
import torch

from laconic.bench.codec import CODERS, NAMES, CodecOptions, codec_rows, schemes
from laconic.bench.ranks import scheme_of
from laconic.quantizers import Bucketed, Rotated


@pytest.fixture(scope="module")
def rows():
    n_threads = torch.get_num_threads()
    made = codec_rows(CodecOptions(size=10_001, bucket_size=512, repeats=2))
    assert torch.get_num_threads() == n_threads
    return made


def test_every_scheme_has_its_rows(rows):
    for label, scheme in schemes(512).items():
        found = {(row.via, row.operation) for row in rows if row.contender == label}
        assert {("codec", "encode"), ("codec", "decode + add")} <= found
        assert (("kernel", "quantize + pack") in found) == isinstance(scheme, Bucketed | Rotated)


def test_bits_are_those_that_were_sent(rows):
    sent = {row.contender: row.bits_per_coordinate for row in rows if row.via == "codec"}
    assert 0.7 < sent["dithered-1"] < 1.0  # for normal values; 1 is its error
    assert 1.9 < sent["dithered-0.1"] < 2.2
    assert 4 < sent["nuqsgd-4"] < 4.2


def test_baselines_are_there(rows):
    contenders = [row.contender for row in rows]
    assert contenders[:2] == ["do nothing", "copy_ fp32"]
    assert "cast bf16" in contenders


def test_every_coder_has_its_rows_on_one_core(rows):
    coding = [row for row in rows if row.via == "coder"]
    assert {row.contender.split()[0] for row in coding} == set(CODERS)
    assert {row.operation for row in coding} == {"encode", "decode"}
    assert {row.n_threads for row in coding} == {1}


def test_no_coder_goes_below_the_entropy(rows):
    assert all(row.bits_over_entropy >= 1 for row in rows if row.via == "coder")


def test_filters():
    options, parts = CodecOptions(size=100, bucket_size=64, repeats=1, schemes=["sign"], coders=["rans"]), []
    codec_rows(options, parts.append)
    assert parts == ["baselines", "sign", "rans on nuqsgd-4", "rans on qsgdinf-8"]
    assert options.n_parts == len(parts)


@pytest.mark.parametrize("size", [1, 2])
def test_the_smallest_sizes_run(size):
    assert codec_rows(CodecOptions(size=size, repeats=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be .*at least 1"),
        ({"repeats": 0}, "repeats must be .*at least 1"),
        ({"bucket_size": -1}, "bucket_size must be .*at least 1"),
        ({"size": 2**50}, "would fit"),
        ({"schemes": ["nuqsdg"]}, "unknown scheme 'nuqsdg'; choose from fp32"),
        ({"schemes": []}, "no scheme"),
        ({"coders": ["zip"]}, "unknown coder 'zip'"),
        ({"problem": "hard"}, "unknown problem 'hard'"),
    ],
)
def test_wrong_options_are_told_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        CodecOptions(**options)


def test_names_cover_the_schemes():
    assert {scheme_of(label) for label in schemes(64)} == set(NAMES)
