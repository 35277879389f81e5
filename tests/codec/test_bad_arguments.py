"""Bad arguments each give one clear error that names the value and what is allowed."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from laconic import (
    NUQSGD,
    QSGD,
    RANS,
    BackendUnavailable,
    Codec,
    Elias,
    ErrorFeedback,
    Identity,
    LaconicError,
    Payload,
    QSGDInf,
    Sign,
    TableRANS,
    codec,
)
from laconic.codec import codec_for
from laconic.kernels import Grid, Rounding


class Numbered(NUQSGD):
    wire_id = 256


V = torch.ones(3)
SENT = Codec(NUQSGD(), backend="reference").encode(V)  # the same bytes, and no kernel is compiled at collection
REMEMBERED = torch.zeros(7)

CASES = [
    (lambda: NUQSGD(bits=1), ValueError, "nuqsgd: bits must be a whole number from 2 to 8; got 1"),
    (lambda: QSGD(bits=9), ValueError, "qsgd: bits must be a whole number from 2 to 8; got 9"),
    (lambda: NUQSGD(bits=4.0), ValueError, "got 4.0"),
    (lambda: Sign(bits=2), ValueError, "sign: bits must be 1, got 2"),
    (lambda: Sign(bits=True), ValueError, "sign: bits must be .* got True"),
    (lambda: NUQSGD(bucket_size=0), ValueError, "bucket_size must be a whole number from 1 to 2147483647; got 0"),
    (lambda: QSGD(bucket_size=True), ValueError, "bucket_size must be .* got True"),
    (lambda: NUQSGD(p=0.0), ValueError, "p must lie strictly between 0 and 1, got 0.0"),
    (lambda: NUQSGD(p=1.5), ValueError, "p must lie strictly between 0 and 1, got 1.5"),
    (lambda: NUQSGD(p=float("nan")), ValueError, "got nan"),
    (lambda: NUQSGD(p="0.5"), ValueError, "p must lie strictly between 0 and 1, got '0.5'"),
    (lambda: NUQSGD(p=None), ValueError, "p must lie .* got None"),
    (lambda: NUQSGD(bits=8, p=0.3), ValueError, "p=0.3 with bits=8 .* use p of at least 0.5 or fewer bits"),
    (lambda: Identity("fp8"), ValueError, "dtype must be one of fp32, bf16, got 'fp8'"),
    (lambda: ErrorFeedback("sign"), TypeError, r"wraps a quantizer such as Sign\(\), got 'sign'"),
    (lambda: ErrorFeedback(ErrorFeedback(Sign())), ValueError, "wrap once"),
    (lambda: Elias("thick"), ValueError, "'thick'"),
    (lambda: codec("nuq"), ValueError, "unknown scheme 'nuq'; choose one of fp32, bf16, nuqsgd"),
    (lambda: codec(None), TypeError, "a scheme goes by its name, such as 'nuqsgd'; got None"),
    (lambda: codec(NUQSGD(), "rans"), TypeError, r"'nuqsgd'; got NUQSGD\(.*\); a quantizer goes to Codec\(quantizer\)"),
    (lambda: codec("nuqsgd", bit=4), TypeError, "nuqsgd has no option 'bit'; it takes bits, bucket_size, p"),
    (lambda: codec("nuqsgd-9/512"), ValueError, "nuqsgd: bits must be a whole number from 2 to 8; got 9"),
    (lambda: codec("ef-qsgd", p=0.5), TypeError, "qsgd has no option 'p'; it takes bits, bucket_size"),
    (lambda: codec("fp32", bits=4), TypeError, "fp32 has no option 'bits'; it takes none"),
    (lambda: codec_for("nuqsgd-4-zip"), ValueError, "unknown coder 'zip'; choose one of fixed, elias, huffman, rans"),
    (lambda: codec_for("nuqsgd 4"), ValueError, "unknown codec 'nuqsgd 4'; names are such as nuqsgd, nuqsgd-4"),
    (lambda: codec_for("nuqsgd-9"), ValueError, "nuqsgd: bits must be a whole number from 2 to 8; got 9"),
    (lambda: Codec(NUQSGD(), TableRANS()), ValueError, r"TableRANS\(\) codes Dithered only; got NUQSGD\("),
    (lambda: codec("nuqsgd", "zip"), ValueError, "unknown coder 'zip'; choose one of fixed, elias, huffman, rans"),
    (lambda: codec_for({"*.bias": None}), TypeError, r"one for all, got .*bias.*; others by name go to policy=Policy"),
    (lambda: Codec(Numbered()), ValueError, "nuqsgd: wire_id must be a whole number from 0 to 255; got 256"),
    (lambda: Codec("nuqsgd"), TypeError, r"such as NUQSGD\(bits=4\), got 'nuqsgd'"),
    (lambda: Codec(NUQSGD(), "rans"), TypeError, "such as FixedWidth"),
    (lambda: Codec(Identity(), RANS()), ValueError, "symbols of 32 bits, rans codes at most 8; use FixedWidth"),
    (lambda: Codec(NUQSGD(), checksum="crc32"), TypeError, "checksum must be True or False, got 'crc32'"),
    (lambda: Codec(NUQSGD()).encode(torch.arange(3)), TypeError, "tensor of int64; give one of float32, bfloat16"),
    (lambda: Codec(NUQSGD()).encode(V.to(torch.complex64)), TypeError, "tensor of complex64"),
    (lambda: Codec(NUQSGD()).encode(V.to("meta")), LaconicError, "on the device meta, which has no values"),
    (lambda: Codec(NUQSGD()).decode(Payload(SENT.data.to("meta"))), LaconicError, "on the device meta has no bytes"),
    (
        lambda: Codec(NUQSGD()).encode(V.numpy()),
        TypeError,
        r"expected a torch.Tensor, got numpy.ndarray; pass torch.from_numpy\(v\)",
    ),
    (lambda: Codec(Identity()).encode([1.0]), TypeError, r"got builtins.list; pass torch.tensor\(v\)"),
    (lambda: Codec(ErrorFeedback(Sign())).encode(V.numpy(), memory=V), TypeError, "expected a torch.Tensor, got numpy"),
    (lambda: NUQSGD().quantize(V.numpy()), TypeError, "expected a torch.Tensor, got numpy"),
    (lambda: Codec(NUQSGD()).encode(V.to_sparse()), LaconicError, r"call .to_dense\(\) first"),
    (lambda: Codec(ErrorFeedback(Sign())).encode(V), ValueError, "pass memory="),
    (
        lambda: Codec(ErrorFeedback(Sign())).encode(V, memory=torch.zeros(2)),
        ValueError,
        r"memory must be float32 of shape \(3,\) on cpu, got torch.float32 of shape \(2,\)",
    ),
    (
        lambda: Codec(ErrorFeedback(Sign())).encode(V, memory=torch.zeros(6)[::2]),
        ValueError,
        r"memory must be contiguous, got strides \(2,\)",
    ),
    (
        lambda: Codec(NUQSGD()).encode(V, memory=REMEMBERED),
        ValueError,
        r"nuqsgd keeps no memory, got one of shape \(7,\); leave it out, or wrap the quantizer in ErrorFeedback",
    ),
    (lambda: Codec(Sign(), RANS()).encode(V, memory=V), ValueError, "sign keeps no memory"),
    (lambda: Codec(Identity("bf16")).encode(V, memory=V), ValueError, "identity keeps no memory"),
    (lambda: Codec(NUQSGD()).decode(SENT, -1), ValueError, "n must be a whole number from 0 to 281474976710656; got"),
    (lambda: Codec(NUQSGD(), RANS()).decode(SENT, -1), ValueError, "n must be a whole number"),
    (lambda: Codec(NUQSGD()).decode(SENT, 2**64), ValueError, "n must be .* got 18446744073709551616"),
    (lambda: Codec(NUQSGD()).decode(SENT, 3.0), ValueError, "n must be .* got 3.0"),
    (lambda: Codec(NUQSGD()).decode(SENT, -1, out=V.clone()), ValueError, "n must be .* got -1"),
    (lambda: Codec(NUQSGD()).decode(SENT, 2, out=V.clone()), ValueError, "out has room for 3 values, n says 2"),
    (lambda: Codec(NUQSGD()).decode(SENT, 2), ValueError, "payload has n 3, this codec expects 2"),
    (lambda: Codec(NUQSGD()).max_bytes(-1), ValueError, "n must be a whole number from 0 to 281474976710656; got -1"),
    (lambda: Codec(NUQSGD()).max_bytes(2**64), ValueError, "n must be .* got 18446744073709551616"),
    (lambda: Codec(NUQSGD()).max_bytes(2.5), ValueError, "n must be .* got 2.5"),
    (lambda: Codec(NUQSGD(), RANS()).max_bytes(-1), ValueError, "n must be .* got -1"),
    (lambda: Codec(NUQSGD(), RANS()).max_bytes("7"), ValueError, "n must be .* got '7'"),
    (lambda: Codec(NUQSGD()).layout.frame(-1), ValueError, "n must be .* got -1"),
    (lambda: NUQSGD().variance_bound(-1), ValueError, "n must be a whole number, at least 0; got -1"),
    (lambda: QSGD().variance_bound(2.5), ValueError, "n must be .* got 2.5"),
    (lambda: Sign().variance_bound(-1), ValueError, "n must be .* got -1"),
    (lambda: Codec(NUQSGD()).encode(V, 7), TypeError, r"stream must be one such as Stream\(seed=0, step=7\), got int"),
    (lambda: Codec(Identity()).encode(V, None), TypeError, "stream must be .* got NoneType"),
    (lambda: Codec(ErrorFeedback(Sign())).encode(V, V), TypeError, "stream must be .* got Tensor"),
    (
        lambda: Codec(ErrorFeedback(Sign())).encode(V, memory=V.numpy()),
        TypeError,
        r"memory must be a tensor such as quantizer.new_memory\(v\), got ndarray",
    ),
    (
        lambda: Codec(ErrorFeedback(Sign())).encode(V, memory=torch.zeros(3, requires_grad=True)),
        ValueError,
        r"memory must not require grad, .* pass memory.detach\(\)",
    ),
    (lambda: Codec(NUQSGD()).decode(SENT.to_bytes()), TypeError, "expected a Payload, got bytes; pass"),
    (lambda: Codec(NUQSGD(), RANS()).decode_add(SENT.data, V.clone()), TypeError, "expected a Payload, got Tensor"),
    (lambda: Codec(NUQSGD()).decode_sum([SENT.data], V.clone()), TypeError, "expected a Payload, got Tensor"),
    (
        lambda: Codec(NUQSGD()).encode(V, out=np.zeros(46, np.uint8)),
        TypeError,
        "out must be a torch.Tensor, got ndarray",
    ),
    (lambda: Codec(NUQSGD()).decode(SENT, out=np.zeros(3)), TypeError, "out must be a torch.Tensor, got ndarray"),
    (
        lambda: Codec(NUQSGD()).decode_add(SENT, torch.zeros(3, requires_grad=True)),
        ValueError,
        r"out must not require grad, .* pass out.detach\(\)",
    ),
    (
        lambda: Codec(NUQSGD()).decode(SENT, out=torch.empty(3, device="meta")),
        ValueError,
        r"the payload is on cpu, out on meta; pass Payload\(payload.data.to\(out.device\)\)",
    ),
    (
        lambda: Codec(NUQSGD()).decode_sum([SENT], torch.empty(3, device="meta")),
        ValueError,
        "the payload is on cpu, out on meta",
    ),
    (
        lambda: NUQSGD(bucket_size=1).dequantize(NUQSGD(bucket_size=2).quantize(V)),
        ValueError,
        "bucket_size=1, p=0.5. makes 3 symbols of torch.uint8 with 3 norms, got torch.uint8 with 2",
    ),
    (lambda: NUQSGD().dequantize(Identity().quantize(V)), ValueError, "with 1 norms, got torch.int32 with 0"),
    (lambda: Identity("bf16").dequantize(Sign().quantize(V)), ValueError, "symbols of torch.int16, got torch.uint8"),
    (
        lambda: Codec(NUQSGD()).decode_add(SENT, V.half()),
        ValueError,
        "out must be a contiguous row of float32, got torch.float16",
    ),
    (
        lambda: Codec(QSGDInf(subtract=True), RANS()),
        ValueError,
        "subtract=True. is coded by FixedWidth.., and by no oth",
    ),
    (lambda: QSGDInf(subtract=1), ValueError, "qsgdinf: subtract must be True or False; got 1"),
    (
        lambda: QSGDInf(subtract=True).quantize(V, backend="gpu"),
        BackendUnavailable,
        "no GPU kernels for QSGDInf.bits=4",
    ),
    (lambda: Grid(Rounding.TABLE, 3, (0.0, 0.2, 0.5)), ValueError, "a grid of 3 bits has 4 levels, got 3"),
    (lambda: Grid(Rounding.TABLE, 2, (0.0, 0.5, 1.0)), ValueError, "a grid of 2 bits has 2 levels, got 3"),
    (lambda: Grid(Rounding.TABLE, 2, (0.0, 0.5)), ValueError, r"levels must increase from 0 to 1, got \(0.0, 0.5\)"),
    (lambda: Grid(Rounding.TABLE, 3, (0.0, 0.5, 0.2, 1.0)), ValueError, "levels must increase from 0 to 1"),
    (lambda: Payload(b"lcnc"), TypeError, r"row of uint8, got bytes; use Payload.from_bytes"),
    (lambda: Payload(V), ValueError, "a payload is a row of uint8, got torch.float32"),
]


@pytest.mark.parametrize(("call", "error", "message"), CASES, ids=[message for _, _, message in CASES])
def test_one_clear_line(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_any_integer_type_is_one():
    """And becomes an int: what a codec prints is what ranks compare."""
    assert repr(NUQSGD(bits=np.int64(4), bucket_size=np.uint16(512))) == repr(NUQSGD(bits=4, bucket_size=512))
    assert repr(NUQSGD(p=np.float64(0.5))) == repr(NUQSGD(p=Fraction(1, 2))) == repr(NUQSGD())
    decoded = Codec(NUQSGD()).decode(SENT, np.int32(3), out=torch.empty(3))
    assert torch.equal(decoded, Codec(NUQSGD()).decode(SENT))


def test_memory_that_is_empty_is_none():
    for member in (Codec(NUQSGD()), Codec(Identity())):
        assert torch.equal(member.encode(V, memory=member.new_memory(V)).data, member.encode(V).data)


def test_any_shape_and_gradient_tensors_are_accepted():
    v = torch.randn(3, 4, 5, requires_grad=True)
    member = codec("nuqsgd")
    assert member.decode(member.encode(v)).shape == (60,)
    assert torch.equal(member.encode(v.detach().transpose(0, 2)).data, member.encode(v.detach().permute(2, 1, 0)).data)
    assert member.encode(torch.tensor(2.0)).header.n == 1
