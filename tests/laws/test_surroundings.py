"""What surrounds a call changes none of its bytes; what a quantizer returns is its own; no folder is a clear error."""

import os
import signal
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from members import CODERS, QUANTIZERS, inputs, named, same_bits

from forking import forked, run_code
from laconic import NUQSGD, QSGD, Codec, Dithered, ErrorFeedback, FixedWidth, Identity, Payload, Rotated, Sign, Stream

CPU = torch.device("cpu")
N = 1001
MEMBERS = [
    *(Codec(NUQSGD(bits=4, bucket_size=64), coder, "reference") for coder in CODERS),
    *(Codec(NUQSGD(bits=4, bucket_size=64), coder) for coder in CODERS),
    *(Codec(QSGD(bits=3, bucket_size=64), FixedWidth(), backend) for backend in ("reference", "cpu")),
    *(Codec(ErrorFeedback(Sign(bucket_size=64)), FixedWidth(), backend) for backend in ("reference", "cpu")),
    *(Codec(Rotated(bits=3, bucket_size=64), FixedWidth(), backend) for backend in ("reference", "cpu")),
    *(Codec(Dithered(error=0.3), backend=backend) for backend in ("reference", "cpu")),
    *(Codec(Identity("bf16"), FixedWidth(), backend) for backend in ("reference", "cpu")),
]


@contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SURROUNDINGS = {
    "default float16": lambda: default_dtype(torch.float16),
    "default bfloat16": lambda: default_dtype(torch.bfloat16),
    "default float64": lambda: default_dtype(torch.float64),
    "default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
}


VALUES = [inputs(N)[name] for name in ("normal", "tiny", "large", "zeros")]


def everything(codec: Codec) -> list[torch.Tensor]:
    """All that a codec and its quantizer make of values from tiny to large."""
    made = []
    for v in VALUES:
        memory = torch.zeros(N, dtype=torch.float32, device=CPU) if codec.new_memory(v).numel() else None
        payload = codec.encode(v, Stream(seed=1), memory)
        room = torch.empty(N, dtype=torch.float32, device=CPU)
        made += [payload.data, codec.decode(Payload.from_bytes(payload.to_bytes()))]
        made += [codec.decode_sum([payload, payload], room, 0.5), *([] if memory is None else [memory])]
        core = codec.quantizer.core
        quantized = core.quantize(v, Stream(seed=1), backend=codec.backend)
        made += [quantized.norms, core.dequantize(quantized, backend=codec.backend)]
    return made


@pytest.mark.parametrize("codec", **named(MEMBERS))
def test_surroundings_change_nothing(codec):
    expected = everything(codec)
    for name, surroundings in SURROUNDINGS.items():
        with surroundings():
            got = everything(codec)
        assert all(same_bits(a, b) for a, b in zip(expected, got, strict=True)), name


@pytest.mark.parametrize("quantizer", **named(QUANTIZERS))
def test_results_are_nobody_elses_memory(quantizer):
    """Values are left as they were, and may be overwritten afterwards; so may what comes out."""
    v = inputs(100)["normal"]
    memory = {"memory": quantizer.new_memory(v)} if quantizer.core is not quantizer else {}
    given = v.clone()
    quantized = quantizer.quantize(v, **memory)
    first = quantizer.dequantize(quantized)
    kept = first.clone()
    v.zero_()
    first.zero_()
    assert torch.equal(quantizer.dequantize(quantized), kept)
    codec = Codec(quantizer)
    payload = codec.encode(given, memory=codec.new_memory(given))
    decoded = codec.decode(payload)
    kept = decoded.clone()
    decoded.zero_()
    assert torch.equal(given, inputs(100)["normal"])
    assert torch.equal(codec.decode(payload), kept)


def test_a_negative_view_is_its_values():
    """The imaginary part of a conjugate keeps its sign beside the memory that NumPy sees."""
    v = torch.complex(torch.zeros(1), torch.ones(1)).conj().imag
    assert v.is_neg()
    assert Codec(NUQSGD()).decode(Codec(NUQSGD()).encode(v)).tolist() == [-1.0]


MANY = 300_000


def digests(codec: Codec) -> list[int]:
    """Checksums of what a codec makes of many values, with and without a number of them that is known."""
    v = torch.linspace(-1.0, 1.0, MANY)
    payload = codec.encode(v, Stream(seed=1), codec.new_memory(v))
    made = [codec.decode(payload), codec.decode(payload, MANY), codec.decode_sum([payload] * 2, torch.empty(MANY))]
    return [zlib.crc32(x.numpy()) for x in (payload.data, *made)]


def fork_and_code(rank: int, pipe) -> None:
    """Code here on two threads of torch, then in a forked child, for each member; an alarm ends a child that hangs."""
    torch.set_num_threads(2)
    found = []
    for codec in MEMBERS_OF_THREADS:
        expected, child = digests(codec), os.fork()
        if child == 0:
            signal.alarm(120)
            os._exit(0 if digests(codec) == expected else 3)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    pipe.send(found)
    os._exit(0)


MEMBERS_OF_THREADS = [codec for codec in MEMBERS if codec.backend == "auto"] + [
    Codec(ErrorFeedback(Sign())),
    Codec(Rotated(bits=4)),
    Codec(Identity("bf16")),
    Codec(NUQSGD(), checksum=True),
]


def test_a_forked_child_codes_as_its_parent_does():
    with forked(fork_and_code, 1) as (_, pipes):
        assert pipes[0].recv() == [0] * len(MEMBERS_OF_THREADS)


@pytest.mark.parametrize("codec", **named(MEMBERS_OF_THREADS))
def test_several_threads_may_code_at_once(codec):
    expected = digests(codec)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digests, [codec] * 8)) == [expected] * 8


NO_FOLDER = """
import numba.core.caching, torch, laconic
numba.core.caching.CacheImpl._locator_classes = []
try:
    laconic.Codec(laconic.NUQSGD()).encode(torch.ones(3))
except laconic.BackendUnavailable as error:
    print(error)
"""


def test_where_numba_may_write_nowhere_it_says_what_to_set(tmp_path):
    found = run_code(NO_FOLDER, tmp_path)
    assert "set NUMBA_CACHE_DIR to one that can" in found.stdout
