"""Law 5 on a real GPU: every width and type, sizes that fill the machine, and the interpreter's special cases."""

import pytest
import torch
from agreement import BUCKETED, DTYPES, FEW, checks, feedback, fused, gpu, gpu_payload, steps, sums

from laconic import NUQSGD, Codec, ErrorFeedback, Sign, Stream
from laconic.kernels import select

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

CASES = checks()
OTHER_BUCKETS = [(2**20, 1024), (300_001, 100), (2**20 + 1, 2**20), (100_000, 12_288)]


@pytest.mark.parametrize("quantizer", BUCKETED, ids=repr)
def test_every_scheme_and_width(quantizer):
    n, bucket_size = 2**20 + 4321, 8192
    fused("cuda", quantizer, n, bucket_size, torch.float32)
    sums("cuda", quantizer, n, bucket_size, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quantizer", FEW, ids=repr)
def test_every_type_and_odd_sizes(quantizer, dtype):
    for n, bucket_size in ((20_001, 8192), (8191, 8192), (8192, 8192), (1, 8192), (0, 8192), (23, 10)):
        fused("cuda", quantizer, n, bucket_size, dtype)


@pytest.mark.parametrize(("n", "bucket_size"), OTHER_BUCKETS)
@pytest.mark.parametrize("quantizer", FEW[::2], ids=repr)
def test_other_buckets(quantizer, n, bucket_size):
    fused("cuda", quantizer, n, bucket_size, torch.float32)
    sums("cuda", quantizer, n, bucket_size, 3)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(("fused", "sums"))])
def test_the_interpreters_table(name):
    check, *arguments = CASES[name]
    check("cuda", *arguments)


@pytest.mark.parametrize("quantizer", FEW, ids=repr)
def test_large_steps_and_feedback(quantizer):
    steps("cuda", quantizer, 2**20 + 77, 8192, torch.bfloat16)
    feedback("cuda", quantizer, 2**20 + 77, 8192)
    sums("cuda", quantizer, 2**18 + 7, 8192, 11)


def test_auto_is_triton_on_a_gpu():
    assert select("auto", torch.device("cuda")).__name__ == "laconic.kernels.gpu"


@pytest.mark.parametrize("quantizer", [NUQSGD(bits=4), ErrorFeedback(Sign())], ids=repr)
def test_a_codec_on_the_gpu_writes_the_references_bytes(quantizer):
    v = torch.randn(50_001)
    payloads = []
    for device, backend in (("cuda", "auto"), ("cpu", "reference")):
        codec, x = Codec(quantizer, backend=backend), v.to(device)
        memory = codec.new_memory(x)
        codec.encode(x, Stream(seed=1), memory)
        payloads.append(codec.encode(x, Stream(seed=2), memory).data.cpu())
    assert torch.equal(*payloads)


def test_the_same_each_time():
    v = torch.randn(2**22)
    first = gpu_payload("cuda", NUQSGD(bits=4), v, 8192)
    for _ in range(5):
        again = gpu_payload("cuda", NUQSGD(bits=4), v, 8192)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_nothing_waits_for_the_gpu():
    q, v = NUQSGD(bits=4), torch.randn(2**20, device="cuda")
    norms = torch.empty(128, device="cuda")
    data = torch.empty(2**19, dtype=torch.uint8, device="cuda")
    kernels = gpu("cuda")
    for mode in (0, 2):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            kernels.quantize_pack(v, q.norm, q.grid, 8192, 3, norms, data)
            kernels.unpack_dequantize(data[None], norms[None], q.grid, 8192, v, 0.5, False)
        finally:
            torch.cuda.set_sync_debug_mode(0)
