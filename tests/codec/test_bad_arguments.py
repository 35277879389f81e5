"""Bad arguments each give one clear error that names the value and what is allowed."""

import numpy as np
import pytest
import torch

from laconic import NUQSGD, QSGD, RANS, Codec, Elias, ErrorFeedback, Identity, LaconicError, Payload, Sign, codec

V = torch.ones(3)
SENT = Codec(NUQSGD()).encode(V)
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
    (lambda: NUQSGD(bits=8, p=0.3), ValueError, "p=0.3 with bits=8 .* use p of at least 0.5 or fewer bits"),
    (lambda: Identity("fp8"), ValueError, "dtype must be one of fp32, bf16, got 'fp8'"),
    (lambda: ErrorFeedback("sign"), TypeError, r"wraps a quantizer such as Sign\(\), got 'sign'"),
    (lambda: ErrorFeedback(ErrorFeedback(Sign())), ValueError, "wrap once"),
    (lambda: Elias("thick"), ValueError, "'thick'"),
    (lambda: codec("nuq"), ValueError, "unknown scheme 'nuq'; choose one of fp32, bf16, nuqsgd"),
    (lambda: codec("nuqsgd", "zip"), ValueError, "unknown coder 'zip'; choose one of fixed, elias, huffman, rans"),
    (lambda: Codec("nuqsgd"), TypeError, r"such as NUQSGD\(bits=4\), got 'nuqsgd'"),
    (lambda: Codec(NUQSGD(), "rans"), TypeError, "such as FixedWidth"),
    (lambda: Codec(Identity(), RANS()), ValueError, "symbols of 32 bits, rans codes at most 8; use FixedWidth"),
    (lambda: Codec(NUQSGD()).encode(torch.arange(3)), TypeError, "tensor of int64; give one of float32, bfloat16"),
    (lambda: Codec(NUQSGD()).encode(V.to(torch.complex64)), TypeError, "tensor of complex64"),
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
    (
        lambda: Codec(NUQSGD()).decode_add(SENT, V.half()),
        ValueError,
        "out must be a contiguous row of float32, got torch.float16",
    ),
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
