"""What is timed: copies, and the kernels of every scheme."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.kernels.checks import KEY, check_pack, check_sum, require_same
from benchmarks.kernels.timing import Call
from laconic.bench.survey import Scheme
from laconic.kernels import select
from laconic.kernels.layout import n_buckets, packed_bytes

PAYLOADS = (1, 4, 8)
COPY, PACK, SUM = "copy", "quantize + pack", "unpack + dequantize + sum"


@dataclass(frozen=True, slots=True)
class Contender:
    """What is timed: a label, what it does, the bytes it must move, and a check that it did it."""

    label: str
    config: str
    operation: str
    n_payloads: int
    dtype: str
    n_bytes: int
    call: Call
    check: Call


def copies(v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """The driver's copy and our kernel's in float32, the driver's in bfloat16, and the cast between the two."""
    n = v.numel()
    half, other = v.bfloat16(), torch.empty(n, dtype=torch.bfloat16, device=v.device)
    runs = {
        ("copy_ fp32", "float32", 8 * n): (out, v),
        ("copy_ bf16", "bfloat16", 4 * n): (other, half),
        ("cast bf16", "float32", 6 * n): (other, v),
    }
    same = partial(require_same, out, v, "kernel copy fp32")
    yield Contender("kernel copy fp32", "one Triton kernel", COPY, 0, "float32", 8 * n, kernel_copy(v, out), same)
    for (label, dtype, n_bytes), (target, source) in runs.items():
        call = partial(target.copy_, source)
        yield Contender(
            label, "preallocated", COPY, 0, dtype, n_bytes, call, partial(require_same, target, source, label)
        )


def kernel_copy(v: torch.Tensor, out: torch.Tensor) -> Call:
    """Our own kernel's copy."""
    return partial(select("gpu", v.device).scale, v, out, 1.0, False)


def coded(scheme: Scheme, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Round and pack; then unpack and add up 1, 4 and 8 payloads, each of another rank."""
    q: Any = scheme.quantizer
    n, size, kernels = v.numel(), q.bucket_size, select("gpu", v.device)
    data = torch.empty(max(PAYLOADS), -(-packed_bytes(n, q.bits, size) // 16) * 16, dtype=torch.uint8, device=v.device)
    data = data[:, : packed_bytes(n, q.bits, size)]
    norms = torch.empty(max(PAYLOADS), n_buckets(n, size), dtype=torch.float32, device=v.device)
    for p in range(max(PAYLOADS)):
        kernels.quantize_pack(v, q.norm, q.grid, size, KEY + p, norms[p], data[p])
    packed = data.shape[1] + 4 * norms.shape[1]
    shared = {"label": scheme.label, "config": repr(q), "dtype": "float32"}
    yield Contender(
        operation=PACK,
        n_payloads=0,
        n_bytes=4 * n + packed,
        call=partial(kernels.quantize_pack, v, q.norm, q.grid, size, KEY, norms[0], data[0]),
        check=partial(check_pack, scheme.label, q, v, norms[0], data[0]),
        **shared,
    )
    for count in PAYLOADS:
        rows = (data[:count], norms[:count])
        yield Contender(
            operation=SUM,
            n_payloads=count,
            n_bytes=4 * n + count * packed,
            call=partial(kernels.unpack_dequantize, *rows, q.grid, size, out, 1 / count, False),
            check=partial(check_sum, scheme.label, q, *rows, out),
            **shared,
        )
