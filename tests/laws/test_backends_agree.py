"""Law 5: for the same seed, reference and CPU kernels give the same symbols, bit for bit, given the same norms."""

import itertools

import pytest
import torch
from members import (
    BUCKETED,
    DTYPES,
    FIXED_WIDTH,
    SIZES_AND_BUCKETS,
    STATELESS,
    SUBTRACTING,
    inputs,
    named,
    same_bits,
    with_bucket,
)

from laconic import RANS, BackendUnavailable, Codec, Stream
from laconic.kernels import Part, Scale, select
from laconic.kernels.reference.random import random_bits

CPU = torch.device("cpu")
REFERENCE, NUMBA = select("reference", CPU), select("cpu", CPU)
KEY = Stream(seed=5, rank=2, step=9, tensor="layer.weight").key


@pytest.mark.parametrize("quantizer", **named([*BUCKETED, *SUBTRACTING]))
def test_same_symbols_values_and_bytes(quantizer):
    """In float32, and each kind of input in each other type at some of the sizes."""
    for i, (n, bucket_size) in enumerate(SIZES_AND_BUCKETS):
        for j, (name, v) in enumerate(inputs(n).items()):
            for dtype in (torch.float32, DTYPES[1 + (i + j) % 3]):
                same_kernels(quantizer, v.to(dtype), bucket_size, (n, bucket_size, name, dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("quantizer", **named(BUCKETED))
def test_same_symbols_values_and_bytes_in_every_type_at_every_size(quantizer, dtype):
    for n, bucket_size in SIZES_AND_BUCKETS:
        for name, v in inputs(n).items():
            same_kernels(quantizer, v.to(dtype), bucket_size, (n, bucket_size, name))


def same_kernels(quantizer, v, bucket_size, case):
    grid = quantizer.grid
    norms = REFERENCE.norms(v, bucket_size, quantizer.norm)
    assert torch.allclose(NUMBA.norms(v, bucket_size, quantizer.norm), norms, rtol=2.0**-23, equal_nan=True), case
    symbols = REFERENCE.quantize(v, norms, grid, bucket_size, KEY)
    assert same_bits(NUMBA.quantize(v, norms, grid, bucket_size, KEY), symbols), case
    values = REFERENCE.dequantize(symbols, norms, grid, bucket_size).nan_to_num(7.0)
    assert torch.equal(NUMBA.dequantize(symbols, norms, grid, bucket_size).nan_to_num(7.0), values), case
    if v.dtype == torch.float32:  # symbols do not say what they were made from
        data = REFERENCE.pack(symbols, grid.bits, bucket_size)
        assert same_bits(NUMBA.pack(symbols, grid.bits, bucket_size), data), case


@pytest.mark.parametrize("quantizer", **named(FIXED_WIDTH))
def test_fused_kernels_are_what_they_fuse(quantizer):
    for n, bucket_size in ((20_001, 8192), (999, 10)):
        scheme, v = with_bucket(quantizer, bucket_size), inputs(n)["heavy tail"]
        codecs = [Codec(scheme, backend=backend) for backend in ("reference", "cpu")]
        payloads = [codec.encode(v, Stream(seed=8)) for codec in codecs]
        assert same_bits(payloads[0].data, payloads[1].data), n
        for weight in (1.0, -1.0, 1 / 3):
            sums = [codec.decode_add(payloads[0], torch.ones(n), weight) for codec in codecs]
            assert torch.equal(*sums), (n, weight)


SUMMED = [*[(q, None) for q in [*STATELESS, *SUBTRACTING]], *[(q, RANS()) for q in BUCKETED[::7]]]


@pytest.mark.parametrize(("quantizer", "coder"), SUMMED, ids=str)
def test_summing_payloads_at_once_is_adding_them_one_by_one(quantizer, coder):
    """To −0, so that a sum of −0 alone is −0; with every body."""
    for (n, bucket_size), backend in itertools.product(
        [(0, 8), (1, 8), (999, 10), (20_001, 8192)], ("reference", "cpu")
    ):
        codec, v = Codec(with_bucket(quantizer, bucket_size), coder, backend=backend), inputs(n)["gaps"]
        payloads = [codec.encode(v, Stream(rank=rank)) for rank in range(3)]
        one_by_one = -torch.zeros(n)
        for payload in payloads:
            codec.decode_add(payload, one_by_one, -1 / 3)
        assert same_bits(codec.decode_sum(payloads, torch.full((n,), torch.nan), -1 / 3), one_by_one), (n, backend)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scaling_is_one_rounding_after_another(dtype, accumulate):
    for n in (0, 1, 1001, 200_000):
        for values in inputs(n).values():
            out = [torch.full((n,), 0.7) for _ in range(2)]
            for backend, result in zip((REFERENCE, NUMBA), out, strict=True):
                backend.scale(values.to(dtype), result, 1 / 3, accumulate)
            assert torch.equal(*out)


@pytest.mark.parametrize("inverse", [False, True])
def test_the_metric_s_kernels_agree(inverse):
    for n in (0, 1, 1001, 200_000):
        for values in inputs(n).values():
            squares = values.roll(1).square().clamp(max=1e30)
            results = [values.clone() for _ in range(2)]
            for backend, result in zip((REFERENCE, NUMBA), results, strict=True):
                backend.scale_by_root(result, squares, 1.7, 0.01, inverse)
            assert same_bits(*results)
            sums = [backend.total(values, inverse) for backend in (REFERENCE, NUMBA)]
            assert torch.allclose(*sums, rtol=1e-12, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("quantizer", **named([*STATELESS, *SUBTRACTING]))
def test_a_scale_is_divided_by_and_multiplied_by_on_the_way(quantizer):
    """The bytes and values of division, encoding, decoding and multiplication one after another, also in threads."""
    for n, bounds in ((0, ()), (1001, (0, 3, 3, 700, 1001)), (140_000, (0, 70_000, 70_001, 140_000))):
        v, squares = inputs(n)["heavy tail"], inputs(n)["normal"].roll(1).square()
        parts = [Part(i, j, squares[i:j] if i % 2 == 0 else None, 1.7, 0.01) for i, j in itertools.pairwise(bounds)]
        scale, codec = Scale(tuple(parts)), Codec(with_bucket(quantizer, 320))
        divided = v.clone()
        scale.divide(divided)
        expected, given = codec.encode(divided, Stream(seed=1)), v.clone()
        payload = codec.encode(given, Stream(seed=1), scale=scale)
        assert torch.equal(payload.data, expected.data)
        assert same_bits(given, divided)
        once, twice = codec.decode(payload), codec.decode_sum([payload, payload], torch.empty(n), 0.5)
        scale.multiply(once)
        scale.multiply(twice)
        assert same_bits(codec.decode(payload, scale=scale), once)
        assert same_bits(codec.decode_sum([payload, payload], torch.empty(n), 0.5, scale=scale), twice)
        first, last = n // 7, n - n // 5
        part = codec.encode(v[first:last].clone(), scale=scale.cut(first, last))
        assert torch.equal(part.data, codec.encode(divided[first:last]).data)


def test_random_bits_match_the_kernels_through_a_quantizer():
    """The 23 random bits of an element decide its rounding: recover one bit of them from the symbols."""
    quantizer = with_bucket(BUCKETED[0], 16)  # NUQSGD with 2 bits: levels 0 and 1
    v = torch.zeros(64)
    v[::16] = 3.0**0.5 / 2
    v[1::16] = 0.5
    symbols = NUMBA.quantize(v, torch.ones(4), quantizer.grid, 16, KEY)
    random23 = random_bits(KEY, 4, 16, CPU) >> 9
    assert torch.equal(symbols[1::16].long(), (random23[:, 1] >= 2**22).long())


def test_a_backend_asked_for_by_name_never_falls_back():
    with pytest.raises(BackendUnavailable, match="needs tensors on the CPU"):
        select("cpu", torch.device("cuda"))
    with pytest.raises(ValueError, match="unknown backend 'gpus'; choose one of auto, reference, cpu"):
        Codec(BUCKETED[0], backend="gpus")


def test_one_and_two_threads_agree():
    v, codec, n_threads = inputs(200_000)["normal"], Codec(BUCKETED[2]), torch.get_num_threads()
    try:
        payloads = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            payloads.append(codec.encode(v).data)
    finally:
        torch.set_num_threads(n_threads)
    assert same_bits(payloads[0], payloads[1])
    assert same_bits(payloads[0], payloads[2])
