"""`python -m benchmarks codec-error`: the gradients, the rivals, and the comparison at equal bytes."""

import numpy as np
import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

from benchmarks import gradients
from benchmarks.codec_error import (
    COMPARED,
    ERRORS,
    MEMBERS,
    PRESENTATION,
    ErrorOptions,
    at_equal_bytes,
    error_at,
    error_rows,
)
from benchmarks.codec_rivals import blocks, hadamard, rivals, uint8
from laconic.bench.protocol import relative_error

NORMAL = torch.randn(2**16 + 300, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("gradients") / "mine.npy"
    np.save(path, NORMAL[:20_000].view(100, 200).numpy())
    options, parts = ErrorOptions(gradient=[str(path)], size=10_000), []
    made = error_rows(options, parts.append)
    assert len(parts) == options.n_parts
    return made


def test_every_member_is_measured_by_what_it_encodes(rows):
    ours = [row for row in rows if row.ours]
    for scheme in MEMBERS:
        assert any(scheme.name in row.contender for row in ours), scheme
    assert {row.coded for row in ours} == {"bytes"}
    assert {row.n for row in rows} == {10_000}
    assert [row.contender for row in ours if not row.unbiased] == ["ef-sign/8192", "ef-sign/512"]


def test_dither_has_the_error_it_was_asked_for(rows):
    (dithered,) = (row for row in rows if row.contender == "dithered")
    for point, error in zip(dithered.curve, ERRORS, strict=True):
        assert point["error"] == pytest.approx(error, rel=0.1)


def test_fixed_width_and_rans_have_the_same_error(rows):
    found = {row.contender: [point["error"] for point in row.curve] for row in rows}
    for name in ("nuqsgd/512", "qsgd/8192", "qsgdinf/512"):
        assert found[name] == found[f"{name} rans"]


EDEN = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}
"""Mean squared errors D of Lloyd and Max's levels for a normal value; EDEN's is 1 / (1 − D) − 1."""


def test_rivals_have_the_errors_and_bits_that_their_papers_say():
    sent = {(one.curve, one.config): one for one in rivals(NORMAL, seed=0)}
    error = {key: relative_error(one.values, NORMAL) for key, one in sent.items()}
    for bits, d in EDEN.items():
        assert error["EDEN", f"{bits} bits"] == pytest.approx(1 / (1 - d) - 1, rel=0.02)
        assert bits <= sent["EDEN", f"{bits} bits"].bits < 1.01 * bits
        assert sent["EDEN, entropy", f"{bits} bits"].bits < sent["EDEN", f"{bits} bits"].bits + 0.01
    assert error["natural", "sign and exponent"] < 1 / 8
    assert set(np.unique(np.frexp(sent["natural", "sign and exponent"].values.numpy())[0])) == {-0.5, 0.5}
    assert error["fp8 by rows", "rows of 512"] < 2.0**-8 / 3
    assert error["16-bit cast", "bfloat16"] < 2.0**-16


@pytest.mark.parametrize("curve", ["EDEN", "natural"])
def test_unbiased_rivals_are(curve):
    v = NORMAL[:512]
    draws = [next(one.values for one in rivals(v, seed) if one.curve == curve) for seed in range(400)]
    mean = relative_error(torch.stack(draws).mean(0), v)
    assert mean < 2 * relative_error(draws[0], v) / len(draws)


def test_uint8_is_what_pytorch_computes():
    v = NORMAL[:1000]
    observer = torch.ao.quantization.MinMaxObserver()
    scale, zero = (x.float() for x in (observer(v), observer.calculate_qparams())[1])
    theirs = quantization_hooks._quantize_per_tensor_backend(v, scale, zero)
    values = quantization_hooks._dequantize_per_tensor_backend(theirs, scale, zero)
    torch.testing.assert_close(uint8(v[None])[0], values)


@pytest.mark.parametrize("n", [1, 255, 256, 1000, 2**17 + 3])
def test_a_rotation_keeps_all_values(n):
    v = torch.randn(n, generator=torch.Generator().manual_seed(n))
    assert torch.equal(torch.cat(list(blocks(v)))[:n], v)
    for part in blocks(v):
        torch.testing.assert_close(hadamard(hadamard(part)), part, atol=1e-5, rtol=1e-5)


def test_errors_on_gradients_of_ones_own(tmp_path_factory, published, printed):
    folder = tmp_path_factory.mktemp("gradients")
    asked = ["codec-error"]
    for name in "ab":
        np.save(folder / f"{name}.npy", np.linspace(-1, 1, 3000).reshape(3, -1))
        asked += ["--gradient", str(folder / f"{name}.npy")]
    document = published(asked)
    assert document["suite"] == "codec-error"
    assert {row["gradient"] for row in document["rows"]} == {"a.npy", "b.npy"}
    out = printed(asked, columns=100)
    for word in ("a.npy", "dithered", "EDEN", "best rival"):
        assert word in out


def _curve(contender, *points, ours=False, unbiased=True, gradient="g"):
    curve = [{"config": "c", "bits": bits, "error": error} for bits, error in points]
    return {"gradient": gradient, "contender": contender, "ours": ours, "unbiased": unbiased, "curve": curve}


def test_errors_between_points_are_interpolated_in_their_logarithm():
    row = _curve("a", (4.0, 0.01), (2.0, 1.0), (5.0, 0.02))
    found = {1.0: None, 1.99: 1.0, 2.0: 1.0, 3.0: 0.1, 4.0: 0.01, 5.0: 0.01, 9.0: 0.01}
    for bits, error in found.items():
        assert error_at(row, bits) == (None if error is None else pytest.approx(error))


def test_a_rival_that_wins_is_printed():
    rows = [
        _curve("ours", (1.0, 0.5), (4.0, 0.5), ours=True),
        _curve("biased", (1.0, 1e-9), ours=True, unbiased=False),
        _curve("theirs", (1.0, 1.0), (2.0, 0.1)),
    ]
    compared = at_equal_bytes(rows)
    assert [row["bits"] for row in compared] == list(COMPARED)
    assert [row["member"] for row in compared] == ["ours"] * 5
    assert [row["ratio"] > 1 for row in compared] == [True, False, False, False, False]
    (section,) = PRESENTATION.sections({"rows": rows})
    assert "theirs wins on g at 2 bits." in section.blocks[0].lines


@pytest.mark.parametrize("kind", gradients.KINDS, ids=lambda kind: kind.name)
def test_gradients_repeat_bit_for_bit_and_leave_the_generator_alone(kind, monkeypatch):
    monkeypatch.setattr(gradients, "IMAGE_STEPS", 1)
    make = (lambda: gradients.language_model(1)) if "trained" in kind.name else kind.make
    made = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        made.append(make())
        assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(*made)
    assert made[0].isfinite().all()
    assert 200_000 < made[0].numel() < 1_000_000
