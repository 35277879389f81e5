"""Bad arguments each give one clear error that names the value and what is allowed."""

import pytest
import torch

from laconic import NUQSGD, QSGD, RANS, Codec, Elias, ErrorFeedback, Identity, LaconicError, Payload, Sign, codec

V = torch.ones(3)

CASES = [
    (lambda: NUQSGD(bits=1), ValueError, "nuqsgd: bits must be an integer from 2 to 8, got 1"),
    (lambda: QSGD(bits=9), ValueError, "qsgd: bits must be an integer from 2 to 8, got 9"),
    (lambda: NUQSGD(bits=4.0), ValueError, "got 4.0"),
    (lambda: Sign(bits=2), ValueError, "sign: bits must be 1, got 2"),
    (lambda: NUQSGD(bucket_size=0), ValueError, "bucket_size must be an integer from 1 to 2147483647, got 0"),
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
        lambda: Codec(NUQSGD()).decode_add(Codec(NUQSGD()).encode(V), V.half()),
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


def test_any_shape_and_gradient_tensors_are_accepted():
    v = torch.randn(3, 4, 5, requires_grad=True)
    member = codec("nuqsgd")
    assert member.decode(member.encode(v)).shape == (60,)
    assert torch.equal(member.encode(v.detach().transpose(0, 2)).data, member.encode(v.detach().permute(2, 1, 0)).data)
    assert member.encode(torch.tensor(2.0)).header.n == 1
