"""Laws 2, 3 and 5 for subtractive dither, whose variance is an equality, and what its code promises.

With u uniform, the error e = Δ (k − u) − v is uniform on ±Δ/2 whatever v is: mean 0, variance Δ²/12, and e² has the
variance Δ⁴/180. Where the 512 values of a cell are zero, e is 0. The tests are z-tests with |z| <= 6, of fewer than
10,000 comparisons: a right quantizer fails any of them with a chance of at most 10,000 * 2e-9 = 2e-5.
"""

import math

import pytest
import torch
from members import SUBTRACTING, inputs, named, same_bits, with_bucket

from laconic import Codec, Dithered, ErrorFeedback, QSGDInf, Stream
from laconic.exchange.collectives import chunk_cuts
from laconic.kernels import dither, select
from laconic.kernels.reference import rounding
from laconic.kernels.reference.dither import dither_bits, dither_offset

CPU = torch.device("cpu")
Z, T = 6.0, 400
ANY = 1 << 40
"""A step size that covers all values."""


def decoded(v: torch.Tensor, step: float, key: int, shape: int = 0, backend: str = "cpu") -> torch.Tensor:
    kernels, steps, out = select(backend, CPU), torch.tensor([step]), torch.empty_like(v)
    blocks = kernels.dither_encode(v, steps, ANY, key, shape)
    assert kernels.dither_decode(blocks, steps, ANY, key, shape, out, 1.0, False) == -1
    return out


@pytest.mark.parametrize("step", [0.01, 0.3, 1.0, 7.0])
def test_the_error_is_uniform_and_independent_of_the_value(step):
    """At every value: far below the step, at half of it, and at many of it; digits, escapes and raw values alike."""
    v = torch.cat([torch.tensor([0.0, 1e-6, 0.4999, 0.5, -0.5, 1.5, 30.0, -126.4]) * step, torch.randn(504)])
    errors = torch.stack([decoded(v, step, Stream(seed=5, step=t).key) for t in range(T)]).double() - v
    raw = v.abs() > 126.5 * step
    assert bool((errors[:, raw] == 0).all())
    errors = errors[:, ~raw] / step
    assert float(errors.abs().max()) <= 0.5 + 1e-4
    assert float(errors.mean(0).abs().max()) <= Z * math.sqrt(1 / 12 / T)
    squares = errors.square().mean(0) - 1 / 12
    assert float(squares.abs().max()) <= Z * math.sqrt(1 / 180 / T)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_cells_of_zeros_are_exact_and_no_others(backend):
    """The least value there is makes its cell one of noise; its neighbours stay zero, also where they are added."""
    v = torch.zeros(5 * dither.CELL + 100)
    v[3 * dither.CELL - 1], v[-1] = 2.0**-149, -0.0
    key = Stream(seed=3).key
    sent = decoded(v, 0.25, key, backend=backend).split(dither.CELL)
    assert [bool((cell == 0).all()) for cell in sent] == [True, True, False, True, True, True]
    assert float(sent[2].abs().min()) > 0
    kernels, steps, out = select(backend, CPU), torch.tensor([0.25]), torch.randn(v.numel())
    expected = out + torch.cat(sent) * -2.0
    blocks = kernels.dither_encode(v, steps, ANY, key, 0)
    assert kernels.dither_decode(blocks, steps, ANY, key, 0, out, -2.0, True) == -1
    assert same_bits(out, expected)


def test_zeros_cost_next_to_nothing():
    """A gradient of which only some rows of an embedding are used: 4 bits for 512 zeros."""
    v = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0))
    v[8:] = 0.0
    member = Codec(Dithered(error=0.1))
    assert 8 * member.encode(v.view(-1)).n_bytes <= 8 * member.encode(v[:8].view(-1)).n_bytes + 56 * 8 * 4 + 4096


@pytest.mark.parametrize("value", [1e-7, 0.013, -41.37])
def test_float32_moves_the_mean_by_no_more_than_is_said(value):
    """The mean over all dithers there are, not over a sample of them."""
    step = torch.tensor(0.3)
    u = dither_offset(torch.arange(2**dither.DITHER_BITS))
    k = (torch.tensor(value) * (1 / step) + u).round()
    mean = float(((k - u) * step).double().mean())
    assert abs(mean - float(torch.tensor(value))) <= 2.0**-22 * abs(value) + 2.0**-16 * float(step)


@pytest.mark.parametrize("quantizer", [Dithered(error=0.02), Dithered(error=3.0), Dithered(error=0.3, bucket_size=512)])
@pytest.mark.parametrize("values", ["normal", "heavy tail", "constant", "tiny", "large", "subnormal", "gaps"])
def test_the_variance_is_the_error_asked_for(quantizer, values):
    """E‖Q(v) − v‖² = error ‖v‖², to Z standard errors of a sum of uniform squares; less where values are sent raw."""
    n = 20_000
    v = inputs(n)[values]
    n = int(torch.nn.functional.pad(v, (0, -n % 512)).view(-1, 512).any(1).sum()) * 512  # those that have an error
    codec = Codec(quantizer)
    sent = codec.decode(codec.encode(v, Stream(seed=2))).double()
    scale = float(v.abs().max())
    error = float(((sent - v) / scale).square().sum() / (v / scale).double().square().sum()) / quantizer.error
    assert error <= 1 + Z * math.sqrt(0.8 / n) * 3 + 1e-4  # buckets differ in weight: three times a single step's
    if values != "heavy tail":
        assert error >= 1 - Z * math.sqrt(0.8 / n) * 3 - 1e-4


def test_dither_is_uniform_symmetric_and_differs_between_streams():
    q = dither_bits(Stream(seed=1).key, 1 << 20, CPU)
    counts = torch.bincount(q >> (dither.DITHER_BITS - 10), minlength=1024).double()
    chi2 = float(((counts - 1024).square() / 1024).sum())
    assert abs(chi2 - 1023) <= Z * math.sqrt(2 * 1023)
    middle = 2 ** (dither.DITHER_BITS - 1)
    u = dither_offset(torch.tensor([0, 2 * middle - 1, middle - 1, middle]))
    assert float(u[0] + u[1]) == 0.0
    assert float(u[2] + u[3]) == 0.0
    assert float(u.abs().max()) < 0.5
    other = dither_bits(Stream(seed=1, rank=1).key, 1 << 20, CPU)
    correlation = float(torch.corrcoef(torch.stack([q.double(), other.double()]))[0, 1])
    assert abs(correlation) <= Z / math.sqrt((1 << 20) / dither.CELL)  # strata of a cell are turned together


@pytest.mark.parametrize("shape", range(len(dither.SHAPES)))
def test_laws_are_laws(shape):
    """Frequencies of every law sum to 2**12; the byte of all escapes and every tail symbol can be coded."""
    laws = dither.laws(shape)
    assert (laws.bytes_.sum(2) == dither.TOTAL).all()
    assert (laws.tails.sum(1) == dither.TOTAL).all()
    assert laws.scales.sum() == dither.TOTAL
    assert (laws.scales > 0).all()
    assert (laws.bytes_[:, :, 255] > 0).all()
    assert (laws.tails > 0).all()
    assert (laws.bits[:-1] <= laws.bits[1:]).all()


@pytest.mark.parametrize("n", [0, 1, 511, 512, 513, 1500, pytest.param(65536 + 700, marks=pytest.mark.exhaustive)])
def test_backends_give_the_same_bytes_and_values(n):
    g = torch.Generator().manual_seed(n)
    for values in ("normal", "heavy tail", "zeros", "gaps", "subnormal"):
        v = inputs(n)[values] if n else torch.empty(0)
        for quantizer in (Dithered(error=3.0), Dithered(error=1e-3), Dithered(bits=1.0)):
            reference, cpu = Codec(quantizer, backend="reference"), Codec(quantizer, backend="cpu")
            stream = Stream(seed=int(torch.randint(0, 100, (), generator=g)))
            steps, shape = quantizer.steps(v, "cpu")
            ours = cpu.encode(v, stream)
            if n:
                blocks = select("reference", CPU).dither_encode(v, steps, quantizer.bucket_size, stream.key, shape)
                given = select("cpu", CPU).dither_encode(v, steps, quantizer.bucket_size, stream.key, shape)
                assert all(torch.equal(a, b) for a, b in zip(blocks, given, strict=True)), (values, quantizer)
            assert same_bits(reference.decode(ours), cpu.decode(ours)), (values, quantizer)


@pytest.mark.parametrize("quantizer", **named(SUBTRACTING))
def test_subtracting_at_fixed_width_has_the_same_law(quantizer):
    """Δ = 2 ‖v‖∞ / (2^bits − 1) per bucket; the largest values, of either sign, and zeros are no exception."""
    scheme = with_bucket(quantizer, 512)
    v = torch.cat([torch.tensor([0.0, 1e-7, 1.0, -1.0, 0.5, -0.9999]), torch.rand(506) - 0.5, torch.zeros(512)])
    sent = torch.stack([scheme.dequantize(scheme.quantize(v, Stream(seed=9, step=t))) for t in range(T)])
    assert bool((sent[:, 512:] == 0).all())
    errors = (sent[:, :512].double() - v[:512]) / (2 / (2**scheme.bits - 1))
    assert float(errors.abs().max()) <= 0.5 + 1e-4
    assert float(errors.mean(0).abs().max()) <= Z * math.sqrt(1 / 12 / T)
    assert float((errors.square().mean(0) - 1 / 12).abs().max()) <= Z * math.sqrt(1 / 180 / T)
    bound = scheme.variance_bound(512) * float(v.double().square().sum())
    assert 512 / 12 * (2 / (2**scheme.bits - 1)) ** 2 <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("bits", "value"), [(2, 1.0), (4, 1e-6), (8, -0.3)])
def test_float32_moves_the_mean_at_fixed_width_by_no_more_than_is_said(bits, value, monkeypatch):
    """The mean over all 2²³ offsets: within 2⁻²¹ of the value and 2⁻²² of a step, at the ends of the grid as well."""
    n, grid, norms = 2**23, QSGDInf(bits=bits, subtract=True).grid, torch.ones(1)
    monkeypatch.setattr(rounding, "random_bits", lambda *_: torch.arange(n)[None] << 9)
    symbols = rounding.quantize(torch.full((n,), value), norms, grid, n, key=0)
    mean = float(rounding.dequantize(symbols, norms, grid, n).double().mean())
    given = float(torch.tensor(value))
    assert abs(mean - given) <= 2.0**-21 * abs(given) + 2.0**-22 * 2 / (2**bits - 1)


@pytest.mark.parametrize("bits", [0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("values", ["normal", "laplace", "log-normal", "rows"])
def test_bits_asked_for_are_the_bits_sent(bits, values):
    g = torch.Generator().manual_seed(3)
    n = 1 << 18
    v = torch.randn(n, generator=g)
    if values == "laplace":
        v = v * torch.empty(n).exponential_(generator=g).sqrt()
    elif values == "log-normal":
        v = v * torch.randn(n, generator=g).exp()
    elif values == "rows":
        v = v * torch.randn(n // 1024, 1, generator=g).mul(2).exp().expand(-1, 1024).reshape(-1)
    sent = Codec(Dithered(bits=bits)).encode(v).bits_per_coordinate
    assert abs(sent - bits) <= 0.05 + 0.03 * bits


def test_values_far_beyond_the_step_arrive_as_they_are():
    v = torch.randn(3000)
    v[7], v[2999] = 1e30, -3e29
    sent = Codec(Dithered(error=1e-9)).decode(Codec(Dithered(error=1e-9)).encode(v))
    assert sent[7] == v[7]
    assert sent[2999] == v[2999]


def test_ranks_share_values_that_have_one_step():
    """Chunks of a scatter-reduce are cut between cells, not at the end of the one bucket that a payload is."""
    members = {Dithered(): 512, ErrorFeedback(Dithered()): 512, Dithered(bucket_size=1024): 1024}
    for quantizer, cut_size in members.items():
        assert quantizer.cut_size == cut_size
        assert chunk_cuts(4096, quantizer.cut_size, 4) == [0, 1024, 2048, 3072, 4096]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_marks_its_bucket_alone(bad):
    codec, v = Codec(Dithered(error=0.1, bucket_size=512)), torch.randn(2000)
    v[600] = bad
    sent = codec.decode(codec.encode(v))
    finite = torch.isfinite(sent)
    assert not finite[512:1024].any()
    assert finite[:512].all()
    assert finite[1024:].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error": 0.1, "bits": 2}, "give error or bits, not both"),
        ({"error": 0}, "error must be a number from 1e-09 to 1e.06; got 0"),
        ({"bits": 9}, "bits must be a number from 0.01 to 8; got 9"),
        ({"bits": True}, "bits must be a number"),
        ({"bucket_size": 100}, "bucket_size must be a whole number from 512"),
        ({"bucket_size": 1000}, "bucket_size must be a multiple of 512; got 1000"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Dithered(**options)
