"""Law 5 on a real GPU: every width and type, sizes that fill the machine, and the interpreter's special cases."""

import sys
from pathlib import Path
from types import FunctionType

import pytest
import torch
from agreement import compiled, gpu, gpu_payload
from members import CODERS, ENDS, WITH_MEMORY, same_bits
from running import n_processes, run

from laconic import NUQSGD, RANS, Codec, Dithered, ErrorFeedback, Payload, Policy, Rotated, Sign, Stream
from laconic.coders import SymbolCoder
from laconic.kernels import select
from laconic.training.choices import metric_for
from laconic.training.groups import make_groups

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),  # said once per process
]


@pytest.fixture(scope="module")
def outcomes():
    return run(Path(__file__).with_name("agreement.py"), "cuda", n_processes())


@pytest.mark.parametrize("name", compiled())
def test_kernels_agree_with_the_reference(name, outcomes):
    assert outcomes.get(name, "its process ended before it") == "ok"


@pytest.mark.parametrize("quantizer", [Dithered(error=0.1), Rotated()], ids=repr)
def test_payloads_are_those_of_the_cpu(quantizer):
    v, codec, stream = torch.randn(70_000), Codec(quantizer), Stream(step=3)
    there, here = codec.encode(v.cuda(), stream), codec.encode(v, stream)
    assert torch.equal(there.data.cpu(), here.data)
    total = codec.decode_add(there, torch.ones(70_000, device="cuda"), weight=0.5)
    assert torch.equal(total.cpu(), codec.decode_add(here, torch.ones(70_000), weight=0.5))


@pytest.fixture
def without_reference(monkeypatch):
    """No function of `kernels.reference` takes a tensor on a GPU, by whatever name it is called."""

    def guarded(function):
        def call(*args, **kwargs):
            given = [*args, *kwargs.values()]
            assert not any(isinstance(a, torch.Tensor) and a.is_cuda for a in given), function.__qualname__
            return function(*args, **kwargs)

        return call

    for module in [module for name, module in sys.modules.items() if name.startswith("laconic.")]:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value.__module__.startswith("laconic.kernels.reference"):
                monkeypatch.setattr(module, name, guarded(value))


CODED = [Codec(NUQSGD(bits=4), coder) for coder in CODERS if isinstance(coder, SymbolCoder)]


@pytest.mark.parametrize("codec", [*map(Codec, ENDS), *map(Codec, WITH_MEMORY), *CODED], ids=repr)
def test_no_codec_runs_the_reference_unless_asked_to(codec, without_reference):
    v = torch.randn(70_000)
    there = codec.encode(v.cuda(), Stream(step=3), codec.new_memory(v.cuda()))
    here = Payload(there.data.cpu())
    assert same_bits(codec.decode(there).cpu(), codec.decode(here))
    total = codec.decode_sum([there, there], torch.ones(70_000, device="cuda"), 0.5)
    assert same_bits(total.cpu(), codec.decode_sum([here, here], torch.ones(70_000), 0.5))


@pytest.mark.parametrize("quantizer", [Dithered(error=0.1), ErrorFeedback(Dithered(bucket_size=512))], ids=repr)
def test_no_slot_makes_the_host_wait(quantizer):
    codec, v = Codec(quantizer), torch.randn(300_001, device="cuda")
    memory, out, verdict = codec.new_memory(v), torch.empty_like(v), torch.zeros(1, dtype=torch.int32, device="cuda")
    slots = torch.empty(2, -(-codec.max_bytes(v.numel()) // 64) * 64, dtype=torch.uint8, device="cuda")
    for step in range(3):
        torch.cuda.set_sync_debug_mode(2 if step else 0)
        try:
            for slot in slots:
                codec.encode_slot(v, Stream(step=step), memory, slot)
            codec.decode_slots(slots, out, 0.5, verdict)
        finally:
            torch.cuda.set_sync_debug_mode(0)
    assert int(verdict) == 0


def test_auto_is_triton_on_a_gpu():
    assert select("auto", torch.device("cuda")).__name__ == "laconic.kernels.gpu"


def test_the_same_each_time():
    v = torch.randn(2**22)
    first = gpu_payload("cuda", NUQSGD(bits=4), v, 8192)
    for _ in range(5):
        again = gpu_payload("cuda", NUQSGD(bits=4), v, 8192)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_no_kernel_makes_the_host_wait():
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


@pytest.mark.parametrize("quantizer", [NUQSGD(bits=4), ErrorFeedback(Sign()), Rotated()], ids=repr)
def test_no_codec_makes_the_host_wait_or_asks_for_memory(quantizer):
    """Into memory that is there, from a sender who is trusted: 50 001 values, whose bytes fill no whole word."""
    codec, v = Codec(quantizer), torch.randn(50_001, device="cuda")
    memory, out = codec.new_memory(v), torch.empty_like(v)
    n_bytes = codec.max_bytes(v.numel())
    rows = torch.empty(2, -(-n_bytes // 64) * 64, dtype=torch.uint8, device="cuda")
    allocated = []
    for step in range(4):
        torch.cuda.set_sync_debug_mode(2 if step > 1 else 0)
        try:
            for row in rows:
                codec.encode(v, Stream(step=step), memory, out=row[:n_bytes])
            codec.decode_sum([Payload(row[:n_bytes], trusted=True) for row in rows], out, 0.5)
        finally:
            torch.cuda.set_sync_debug_mode(0)
        allocated.append(torch.cuda.memory_stats()["allocation.all.allocated"])
    assert allocated[1:] == [allocated[1]] * 3 or isinstance(quantizer, Rotated)  # whose short bucket takes some


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}, {"capturable": True}], ids=str)
@pytest.mark.parametrize("metric", ["auto", "tensor"])
def test_the_metric_is_that_of_the_cpu_and_makes_nobody_wait(metric, options):
    codec, found = Codec(NUQSGD(bits=4)), []
    for device in ("cpu", "cuda"):
        ps = {name: torch.nn.Parameter(torch.ones(90, 70, device=device)) for name in ("a", "b")}
        gradients = torch.randn(2, 90, 70, generator=torch.Generator().manual_seed(1)).to(device)
        optimizer = torch.optim.AdamW(ps.values(), **options if device == "cuda" else {})
        chosen, (group,) = metric_for(metric, optimizer, ps, codec), make_groups(ps.items(), Policy())
        for step in range(3):
            for p, gradient in zip(ps.values(), gradients, strict=True):
                p.grad = gradient / (step + 1)
            optimizer.step()
            flat, ones = gradients.reshape(-1).clone(), torch.ones(12_600, device=device)
            torch.cuda.set_sync_debug_mode(2 if step > 1 and device == "cuda" else 0)
            try:
                chosen.observe(group, flat)
                scale = chosen.scale(group)
                scale.divide(flat)
                scale.multiply(ones)
            finally:
                torch.cuda.set_sync_debug_mode(0)
        found.append((flat.cpu(), ones.cpu()))
    for here, there in zip(*found, strict=True):
        assert torch.allclose(here, there, rtol=1e-4)


def test_a_coded_stream_on_the_gpu_decodes_on_the_cpu():
    codec, v = Codec(NUQSGD(bits=4), RANS()), torch.randn(501)
    payload = codec.encode(v.cuda(), Stream(seed=1))
    assert torch.equal(codec.decode(payload).cpu(), codec.decode(codec.encode(v, Stream(seed=1))))
