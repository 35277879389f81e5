"""Law 5 for Triton kernels: what must hold between `gpu` and `reference`, on whatever device the kernels run.

`python agreement.py cpu 0 1` runs the checks of `interpreted` under Triton's interpreter, at small sizes, and prints a
line for each; the environment must say TRITON_INTERPRET=1. `python agreement.py cuda 3 8` runs every eighth check of
`compiled`, from number 3 on, on a GPU: compiling takes most of the time, so several such processes share the table.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))

from members import BUCKETED, inputs, same_bits
from running import main

from laconic import NUQSGD, QSGD, Codec, Dithered, ErrorFeedback, QSGDInf, Sign, Stream
from laconic.coders.rans import allocate
from laconic.kernels import Rounding, select
from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.quantizers.dithered import WHOLE

CPU = torch.device("cpu")
REFERENCE = select("reference", CPU)
KEY = Stream(seed=5, rank=2, step=9, tensor="layer.weight").key
FEW = [NUQSGD(bits=4), NUQSGD(bits=8), NUQSGD(bits=3, p=0.7), QSGD(bits=3), QSGDInf(bits=8), Sign()]

HELD = (75, 32)
"""Two buckets that a program holds, and a short last one."""
ODD = [(23, 10), (31, 32), (1, 8), (32, 32), (9, 1), (44, 24)]
"""A bucket no word fits; a short bucket; one value; one bucket; buckets of one; a held one that is no power of two."""
ROTATED = [(4, 1100, 1024), (3, 600, 512), (2, 2100, 2048), (3, 23, 10), (4, 31, 32), (2, 1, 8), (4, 9, 1)]
"""Widths, sizes and buckets of rotations: three that threads hold, and any others."""
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def gpu(device):
    return select("gpu", torch.device(device))


def reference_payload(quantizer, v, bucket_size, key=KEY, norms=None):
    """Norms, symbols and bytes of the specification, on the CPU."""
    norms = REFERENCE.norms(v, bucket_size, quantizer.norm) if norms is None else norms
    symbols = REFERENCE.quantize(v, norms, quantizer.grid, bucket_size, key)
    return norms, symbols, REFERENCE.pack(symbols, quantizer.bits, bucket_size)


def gpu_payload(device, quantizer, v, bucket_size, key=KEY, memory=None):
    """Norms and bytes of the fused kernel, back on the CPU; every byte was written, for it began as another."""
    n, bits = v.numel(), quantizer.bits
    norms = torch.full((n_buckets(n, bucket_size),), -7.0, device=device)
    data = torch.full((packed_bytes(n, bits, bucket_size),), 0xA5, dtype=torch.uint8, device=device)
    rule = (quantizer.norm, quantizer.grid, bucket_size, key, norms, data)
    gpu(device).quantize_pack(v.to(device), *rule, memory=memory)
    return norms.cpu(), data.cpu()


def fused(device, quantizer, n, bucket_size, dtype, v=None):
    """The bytes are those of the reference given the kernel's norms, and the norms are its own to the last place."""
    v = inputs(n)["heavy tail"].to(dtype) if v is None else v
    norms, data = gpu_payload(device, quantizer, v, bucket_size)
    expected = REFERENCE.norms(v, bucket_size, quantizer.norm)
    assert torch.allclose(norms, expected, rtol=2.0**-23, atol=0.0, equal_nan=True), "norms"
    assert same_bits(norms[~torch.isfinite(norms)], expected[~torch.isfinite(norms)]), "non-finite norms"
    assert torch.equal(data, reference_payload(quantizer, v, bucket_size, norms=norms)[2]), "bytes"
    return norms, data


def sums(device, quantizer, n, bucket_size, n_payloads, v=None):
    """Adding up payloads gives the reference's values, bit for bit, written or added to what is there."""
    v = inputs(n)["normal"] if v is None else v
    rows = [reference_payload(quantizer, v, bucket_size, KEY + p) for p in range(n_payloads)]
    norms, data = torch.stack([row[0] for row in rows]), torch.stack([row[2] for row in rows])
    norms[:, :1] = 0.0  # no encoder writes that where there are signs; the values are 0 and −0
    apart = torch.zeros(n_payloads, -(-data.shape[1] // 4) * 4 + 8, dtype=torch.uint8, device=device)
    apart[:, : data.shape[1]] = data.to(device)
    for accumulate in (False, True):
        ours, theirs = torch.full((n,), 0.7), torch.full((n,), 0.7, device=device)
        rule = (quantizer.grid, bucket_size)
        REFERENCE.unpack_dequantize(data, norms, *rule, ours, 1 / 3, accumulate)
        gpu(device).unpack_dequantize(apart[:, : data.shape[1]], norms.to(device), *rule, theirs, 1 / 3, accumulate)
        assert same_bits(theirs.cpu().nan_to_num(7.0), ours.nan_to_num(7.0)), f"values, accumulate={accumulate}"


def rotations(device, bits, n, bucket_size, n_payloads, dtype=torch.float32, kind="heavy tail", off=0):
    """Bytes and values of rotated buckets are the reference's; scales, summed in another order, to the last place.

    off  places by which values begin behind a multiple of 16 bytes
    """

    def moved(row):
        return torch.cat([row[:off], row]).to(device)[off:]

    v, kernels, keys = inputs(n)[kind].to(dtype), gpu(device), [KEY + p for p in range(n_payloads)]
    scales = torch.full((n_payloads, n_buckets(n, bucket_size)), -7.0)
    data = torch.full((n_payloads, -(-packed_bytes(n, bits, bucket_size) // 4) * 4 + 4), 0xA5, dtype=torch.uint8)
    data = data[:, : packed_bytes(n, bits, bucket_size)]
    there = data.to(device)
    for p, key in enumerate(keys):
        found = torch.full_like(scales[p], -7.0, device=device)
        REFERENCE.rotate_pack(v, bits, bucket_size, key, scales[p], data[p])
        kernels.rotate_pack(moved(v), bits, bucket_size, key, found, there[p])
        assert torch.equal(there[p].cpu(), data[p]), "bytes"
        assert torch.allclose(found.cpu(), scales[p], rtol=2.0**-22, atol=0.0, equal_nan=True), "scales"
    halves = torch.tensor([[key - 2**64 * (key >= 2**63)] for key in keys]).view(torch.int32)
    for accumulate in (False, True):
        ours, theirs = torch.full((n,), 0.7), moved(torch.full((n,), 0.7))
        REFERENCE.unpack_rotate(data, scales, halves, bits, bucket_size, ours, 1 / 3, accumulate)
        rows = (there, scales.to(device), halves.to(device))
        kernels.unpack_rotate(*rows, bits, bucket_size, theirs, 1 / 3, accumulate)
        assert same_bits(theirs.cpu(), ours), f"values, accumulate={accumulate}"
    symbols, sizes = kernels.rotate_quantize(v.to(device), bits, bucket_size, KEY)
    values = kernels.rotate_dequantize(symbols, sizes, bits, bucket_size, KEY).cpu()
    assert same_bits(values, REFERENCE.rotate_dequantize(symbols.cpu(), sizes.cpu(), bits, bucket_size, KEY)), "alone"


def steps(device, quantizer, n, bucket_size, dtype):
    """The kernels that do one step each agree with the reference one by one."""
    v, kernels, grid = inputs(n)["normal"].to(dtype), gpu(device), quantizer.grid
    norms, symbols, data = reference_payload(quantizer, v, bucket_size)
    there = kernels.norms(v.to(device), bucket_size, quantizer.norm).cpu()
    assert torch.allclose(there, norms, rtol=2.0**-23, atol=0.0, equal_nan=True), "norms"
    found = kernels.quantize(v.to(device), norms.to(device), grid, bucket_size, KEY)
    assert torch.equal(found.cpu(), symbols), "symbols"
    assert torch.equal(kernels.pack(found, grid.bits, bucket_size).cpu(), data), "bytes"
    assert torch.equal(kernels.unpack(data.to(device), n, grid.bits, bucket_size).cpu(), symbols), "unpacked"
    values = kernels.dequantize(found, norms.to(device), grid, bucket_size).cpu()
    assert torch.equal(values, REFERENCE.dequantize(symbols, norms, grid, bucket_size)), "values"


def wrong_norms(device, quantizer):
    """`quantize` follows the reference even where values pass the norm they are given."""
    v, norms = inputs(40)["heavy tail"], torch.tensor([1e-42, 1.0, 1e30, torch.inf, 0.0])
    v[3], v[12] = torch.inf, torch.nan
    ours = REFERENCE.quantize(v, norms, quantizer.grid, 8, KEY)
    theirs = gpu(device).quantize(v.to(device), norms.to(device), quantizer.grid, 8, KEY)
    assert torch.equal(theirs.cpu(), ours)


def nasty(device, quantizer, bucket_size=32):
    """Zeros, spikes, subnormal and huge values; infinity and NaN mark their bucket, with the reference's bits."""
    table = inputs(bucket_size + 5)
    for bad in (torch.inf, -torch.inf, torch.nan):
        v = table["normal"].clone()
        v[1] = v[-1] = bad
        table[str(bad)] = v
    table["overflow"] = torch.full_like(table["zeros"], 3e38)
    for name, v in table.items():
        try:
            fused(device, quantizer, v.numel(), bucket_size, v.dtype, v)
            sums(device, quantizer, v.numel(), bucket_size, 1, v)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def feedback(device, quantizer, n, bucket_size, dtype=torch.float32):
    """Sent + memory' == input + memory, with the reference's bits; a non-finite bucket leaves its memory alone."""
    v, memory = inputs(n)["normal"].to(dtype), torch.zeros(n, device=device)
    for step in range(2):
        before = memory.cpu()
        given = v.clone()
        if step and n:
            given[0] = torch.nan
        total = given.float() + before
        norms, data = gpu_payload(device, quantizer, given, bucket_size, KEY + step, memory)
        _, symbols, expected = reference_payload(quantizer, total, bucket_size, KEY + step, norms)
        assert torch.equal(data, expected), "bytes"
        sent = REFERENCE.dequantize(symbols, norms, quantizer.grid, bucket_size)
        finite = torch.isfinite(norms).repeat_interleave(bucket_size)[:n]
        assert torch.equal(memory.cpu(), torch.where(finite, total - sent, before)), "memory"


def codec_feedback(device, quantizer, n, bucket_size):
    """A codec with error feedback writes the reference's bytes and leaves the reference's memory, in one kernel."""
    scheme = ErrorFeedback(replace(quantizer, bucket_size=bucket_size))
    ours, theirs = Codec(scheme, backend="reference"), Codec(scheme, backend="gpu")
    v, memories = inputs(n)["normal"], (torch.zeros(n), torch.zeros(n, device=device))
    room = torch.empty(-(-theirs.max_bytes(n) // 4) * 4, dtype=torch.uint8, device=device)[: theirs.max_bytes(n)]
    for step in range(3):
        given = v.clone()
        given[: step // 2] = torch.inf
        expected = ours.encode(given, Stream(step=step), memories[0]).data
        found = theirs.encode(given.to(device), Stream(step=step), memories[1], out=room).data
        assert torch.equal(found.cpu(), expected), "bytes"
        assert torch.equal(memories[1].cpu(), memories[0]), "memory"


def scaling(device, n):
    """out = weight * values and out += weight * values, one rounding after another."""
    for dtype in (torch.float32, torch.bfloat16):
        for accumulate in (False, True):
            values = inputs(n)["normal"].to(dtype)
            ours, theirs = torch.full((n,), 0.7), torch.full((n,), 0.7, device=device)
            REFERENCE.scale(values, ours, 1 / 3, accumulate)
            gpu(device).scale(values.to(device), theirs, 1 / 3, accumulate)
            assert torch.equal(theirs.cpu(), ours)


def large_buckets(device, quantizer):
    """Buckets shared by several programs, whose norms are put together from parts."""
    from laconic.kernels.gpu.launch import TUNING as tuning

    before = dict(tuning)
    tuning.update(held=16, tile=32, programs=8)
    try:
        steps(device, quantizer, 150, 128, torch.float32)
        fused(device, quantizer, 150, 128, torch.float32)
        feedback(device, quantizer, 150, 128)
        sums(device, quantizer, 150, 128, 1)
    finally:
        tuning.update(before)


def damaged(blocks):
    """The blocks, the same with a bit turned in the first, the middle and the last word, and with a wrong size."""
    sizes, words = blocks
    found = [blocks, (sizes + 1, words)]
    for at in (0, words.numel() // 2, words.numel() - 1):
        wrong = words.clone()
        wrong[at] ^= 4096
        found.append((sizes, wrong))
    return found


def on_device(blocks, device):
    return blocks[0].to(device), blocks[1].to(device)


def same_blocks(ours, theirs):
    return all(torch.equal(a, b.cpu()) for a, b in zip(ours, theirs, strict=True))


def dithered(device, n, error, power, dtype=torch.float32, bucket_size=WHOLE):
    """Dither and its coder: the reference's words, values and verdicts; cells of zeros among the others."""
    v = (torch.randn(n, generator=torch.Generator().manual_seed(n)) ** power).to(dtype)
    v[512:1024] = v[1536:2048] = -0.0
    specified = REFERENCE if n < 5000 else select("cpu", CPU)
    steps, shape = Dithered(error=error, bucket_size=bucket_size).steps(v)
    assert torch.allclose(gpu(device).cell_moments(v.to(device)).cpu(), REFERENCE.cell_moments(v)), "moments"
    rule, there = (bucket_size, KEY, shape), steps.to(device)
    blocks = specified.dither_encode(v, steps, *rule)
    assert same_blocks(blocks, gpu(device).dither_encode(v.to(device), there, *rule)), "words"
    for accumulate in (False, True):
        ours, theirs = torch.full((n,), 0.7), torch.full((n,), 0.7, device=device)
        assert specified.dither_decode(blocks, steps, *rule, ours, 1 / 3, accumulate) == -1
        assert gpu(device).dither_decode(on_device(blocks, device), there, *rule, theirs, 1 / 3, accumulate) == -1
        assert same_bits(theirs.cpu(), ours), f"values, accumulate={accumulate}"
    for wrong in damaged(blocks)[1:] if n < 520 or device == "cuda" else []:
        found = gpu(device).dither_decode(on_device(wrong, device), there, *rule, theirs, 1.0, False)
        assert found == specified.dither_decode(wrong, steps, *rule, ours, 1.0, False), "verdict"


def slots(device, quantizer, n):
    """Bounded slots hold the bytes of `encode` and are summed as `decode_sum` does; what does not fit is reported."""
    ours, theirs = Codec(quantizer, backend="cpu"), Codec(quantizer, backend="gpu")
    assert theirs.has_slots(torch.device(device))
    v, streams = inputs(n)["normal"], [Stream(step=step) for step in range(2)]
    v[:512] = 0.0  # a cell of zeros, whose sum is −0
    here, there = ours.new_memory(v), theirs.new_memory(v.to(device))
    expected = [ours.encode(v, stream, here) for stream in streams]
    room = -(-max(payload.n_bytes for payload in expected) // 4) * 4
    rows = torch.zeros(2, room + 64, dtype=torch.uint8, device=device)
    for row, stream, payload in zip(rows, streams, expected, strict=True):
        theirs.encode_slot(v.to(device), stream, there, row[:room])
        assert torch.equal(row[: payload.n_bytes].cpu(), payload.data), "bytes"
        assert not row[room:].any(), "written past the slot"
    assert torch.equal(there.cpu(), here), "memory"
    out, verdict = torch.empty(n, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    theirs.decode_slots(rows[:, :room], out, -0.5, verdict)
    assert same_bits(out.cpu(), ours.decode_sum(expected, torch.empty(n), -0.5)), "sum"
    assert int(verdict) == 0, "verdict"
    theirs.encode_slot(v.to(device), streams[0], theirs.new_memory(v.to(device)), rows[0, : room - 4])
    short = min(payload.n_bytes for payload in expected) - 4
    theirs.decode_slots(rows[:, :short], out, -0.5, verdict)
    assert int(verdict) == 2 * (n > 0), "overflow"


def coded(device, n, n_symbols):
    """rANS: the reference's counts, words, symbols and verdicts."""
    symbols = torch.randn(n, generator=torch.Generator().manual_seed(n)).abs() * n_symbols / 4
    symbols = symbols.clamp(max=n_symbols - 1).to(torch.uint8)
    specified = REFERENCE if n < 5000 else select("cpu", CPU)
    counts = gpu(device).histogram(symbols.to(device), 8).cpu()
    assert torch.equal(counts, REFERENCE.histogram(symbols, 8)), "counts"
    frequencies = allocate(counts, 2**14)
    blocks = specified.rans_encode(symbols, frequencies)
    assert same_blocks(blocks, gpu(device).rans_encode(symbols.to(device), frequencies)), "words"
    for given in damaged(blocks):
        ours, bad = specified.rans_decode(given, n, frequencies)
        theirs, found = gpu(device).rans_decode(on_device(given, device), n, frequencies)
        assert found == bad, "verdict"
        assert bad >= 0 or torch.equal(theirs.cpu(), ours), "symbols"


def special():
    """Name to check, for any device: the kernels of one step each, feedback, nasty values, shared buckets."""
    found = {}
    for i, q in enumerate(FEW):
        found[f"steps {q}"] = (steps, q, 23, 10, DTYPES[i % len(DTYPES)])
        found[f"wrong norms {q}"] = (wrong_norms, q)
        found[f"feedback {q} held"] = (feedback, q, 43, 32)
        found[f"feedback {q} loose"] = (feedback, q, 12, 10, torch.bfloat16)
        found[f"codec with feedback {q}"] = (codec_feedback, q, 43, 32)
    for q in FEW[::2]:  # the interpreter takes long to search a table of levels
        found[f"nasty {q}"] = (nasty, q, 8 if q.grid.rounding is Rounding.TABLE else 32)
    for q in (NUQSGD(bits=4, p=0.7), NUQSGD(bits=5, p=0.8), NUQSGD(bits=6, p=0.8), NUQSGD(bits=7, p=0.9), QSGD(bits=3)):
        found[f"tables of {q}"] = (sums, q, 1100, 1024, 2)
    found[f"few payloads, {QSGD(bits=4)}"] = (sums, QSGD(bits=4), 600, 512, 2)
    found[f"many payloads, {QSGD(bits=4)}"] = (sums, QSGD(bits=4), 600, 512, 6)
    for q in (NUQSGD(bits=4, p=0.7), NUQSGD(bits=3, p=0.7), NUQSGD(bits=5, p=0.9), NUQSGD(bits=8, p=0.9)):
        found[f"cells of {q}"] = (fused, q, 1100, 1024, torch.float32)
    found["a value that is the norm"] = (fused, NUQSGD(bits=4, p=0.7), 256, 256, torch.float32, torch.eye(256)[3])
    found["more payloads than a launch takes"] = (sums, NUQSGD(bits=2), 20, 16, 9)
    found["no values"] = (sums, Sign(), 0, 8, 2)
    found["nothing to send"] = (fused, NUQSGD(bits=4), 0, 8, torch.float32)
    found["scaling"] = (scaling, 1001)
    for i, (bits, n, bucket_size) in enumerate(ROTATED):
        found[f"rotated {bits} {(n, bucket_size)}"] = (rotations, bits, n, bucket_size, 1 + i % 2, DTYPES[i % 4])
    for q in (NUQSGD(bits=3), Sign()):
        found[f"large buckets {q}"] = (large_buckets, q)
    return found


def interpreted():
    """For the interpreter: also every member on held buckets, and in turn on odd sizes and other types."""
    found = {}
    for i, q in enumerate(BUCKETED):
        n, bucket_size = ODD[i % len(ODD)]
        found[f"fused {q} {HELD}"] = (fused, q, *HELD, DTYPES[i % len(DTYPES)])
        found[f"fused {q} {(n, bucket_size)}"] = (fused, q, n, bucket_size, DTYPES[-i % len(DTYPES)])
        found[f"sums {q} {HELD}"] = (sums, q, *HELD, 2)
        found[f"sums {q} {(n, bucket_size)}"] = (sums, q, n, bucket_size, 1)
    for n, error, power in ((1, 0.1, 1), (511, 1e-3, 1), (600, 0.25, 1), (1100, 1e-5, 3), (520, 2.0, 5)):
        found[f"dithered {n} error={error}"] = (dithered, n, error, power)
    found["dithered bfloat16 in buckets"] = (dithered, 530, 0.05, 3, torch.bfloat16, 512)
    for n, n_symbols in ((1, 2), (9, 1), (200, 256)):
        found[f"rans {n} of {n_symbols}"] = (coded, n, n_symbols)
    found["slots"] = (slots, Dithered(error=0.1), 600)
    found["slots of none"] = (slots, Dithered(error=0.1), 0)
    found["slots with feedback in buckets"] = (slots, ErrorFeedback(Dithered(error=0.1, bucket_size=512)), 700)
    return found | special()


def odd_sizes(device, quantizer, dtype):
    """Short, whole and few: all of them by the kernel that `every` compiled for float32."""
    for n in (20_001, 8191, 8192, 1, 0):
        fused(device, quantizer, n, 8192, dtype)


def every(device, quantizer):
    """One width of one scheme, at sizes that fill the machine."""
    n, bucket_size = 2**19 + 4321, 8192
    fused(device, quantizer, n, bucket_size, torch.float32)
    sums(device, quantizer, n, bucket_size, 3)


def compiled():
    """For a GPU: every scheme and width in the default bucket, then types, sizes and buckets for a few of them."""
    found = {f"every {q}": (every, q) for q in BUCKETED}
    for i, q in enumerate(FEW):
        found[f"odd sizes {q} float32"] = (odd_sizes, q, torch.float32)
        found[f"odd sizes {q} {DTYPES[1 + i % 3]}"] = (odd_sizes, q, DTYPES[1 + i % 3])
        found[f"large feedback {q}"] = (feedback, q, 2**18 + 77, 8192)
        found[f"large codec with feedback {q}"] = (codec_feedback, q, 2**18 + 77, 8192)
    for dtype in DTYPES[1:]:
        found[f"odd sizes {FEW[0]} {dtype}"] = (odd_sizes, FEW[0], dtype)
    for n, bucket_size in ((2**20, 1024), (300_001, 100), (2**20 + 1, 2**20), (100_000, 12_288)):
        found[f"buckets of {bucket_size}"] = (fused, FEW[0], n, bucket_size, torch.float32)
        found[f"sums in buckets of {bucket_size}"] = (sums, FEW[0], n, bucket_size, 3)
    for n in (1, 511, 65536, 65537, 2**20 + 3):
        for error, power in ((0.25, 1), (1e-3, 1), (2.0, 5), (1e-5, 3)):
            found[f"dithered {n} error={error}"] = (dithered, n, error, power)
        found[f"rans {n} of 256"] = (coded, n, 256)
        found[f"slots {n}"] = (slots, Dithered(error=0.1), n)
        found[f"slots {n} with feedback"] = (slots, ErrorFeedback(Dithered(error=0.1, bucket_size=512)), n)
    found["dithered bfloat16 in buckets"] = (dithered, 70_001, 0.05, 3, torch.bfloat16, 512)
    for bits in (2, 3, 4):
        found[f"many rotated {bits}"] = (rotations, bits, 2**19 + 4321, 1024, 3)
    for n, bucket_size in ((40_000, 512), (2**16 + 99, 8192), (2**16, 2**16), (5000, 1000)):
        found[f"rotated in buckets of {bucket_size}"] = (rotations, 4, n, bucket_size, 2)
    for off, dtype in ((1, torch.float32), (3, torch.bfloat16)):
        found[f"rotated {dtype}, {off} off"] = (rotations, 4, 5000, 1024, 2, dtype, "heavy tail", off)
    for kind in ("zeros", "spike", "constant", "tiny", "large"):
        found[f"rotated {kind}"] = (rotations, 4, 1100, 1024, 2, torch.float32, kind)
    found["eleven payloads"] = (sums, FEW[0], 2**18 + 7, 8192, 11)
    found["sums in large buckets of 3 bits"] = (sums, FEW[2], 2**18 + 7, 2**16, 3)
    return found | special()


if __name__ == "__main__":
    main({"cpu": interpreted, "cuda": compiled})
