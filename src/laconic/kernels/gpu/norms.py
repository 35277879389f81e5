"""One float32 norm per bucket, summed in float64; `reference/rounding.py` is the specification.

The order of the sum is not that of the reference. In float64 this moves the rounded norm in about one bucket of 10^7,
by one unit in its last place: the tests compare symbols given the same norms.
"""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.launch import FLAGS, TUNING, bucket_parts, on
from laconic.kernels.grid import Norm
from laconic.kernels.layout import n_buckets

L2, LINF = tl.constexpr(int(Norm.L2)), tl.constexpr(int(Norm.LINF))


@triton.jit
def term(x, NORM: tl.constexpr):
    """The term of one value (float32) in the sum of its bucket (float64), or its magnitude's bit pattern for L∞.

    Magnitudes order as their bit patterns do, with infinity and then NaN on top.
    """
    if NORM == LINF:
        found = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    elif NORM == L2:
        found = x.to(tl.float64) * x.to(tl.float64)
    else:
        found = tl.abs(x).to(tl.float64)
    return found


@triton.jit
def add(total, x, NORM: tl.constexpr):
    """`total` plus the terms of x; a float32 squared is exact in float64, so the fusion changes no rounding."""
    if NORM == L2:
        d = x.to(tl.float64)
        total = tl.fma(d, d, total)
    elif NORM == LINF:
        total = tl.maximum(total, term(x, NORM))
    else:
        total += term(x, NORM)
    return total


@triton.jit
def gather(total, NORM: tl.constexpr):
    """Reduce `total` to one number."""
    return tl.max(total, 0) if NORM == LINF else tl.sum(total, 0)


@triton.jit
def finish(total, count, NORM: tl.constexpr):
    """The float32 norm of a bucket of `count` values; NaN is always the same NaN."""
    if NORM == LINF:
        bits = total
    elif NORM == L2:
        bits = tl.sqrt(total).to(tl.float32).to(tl.int32, bitcast=True)
    else:
        bits = (total / count.to(tl.float64)).to(tl.float32).to(tl.int32, bitcast=True)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def load_all(ptr, mask):
    """The values at ptr; 0 where a mask is given and false."""
    return tl.load(ptr) if mask is None else tl.load(ptr, mask=mask, other=0)


@triton.jit
def load(v_ptr, memory_ptr, i, mask, FEEDBACK: tl.constexpr):
    """Values as float32, with error feedback those plus their memory."""
    x = load_all(v_ptr + i, mask).to(tl.float32)
    if FEEDBACK:
        x += load_all(memory_ptr + i, mask)
    return x


@triton.jit
def sum_bucket(
    v_ptr, memory_ptr, first, length, part, PARTS, NORM: tl.constexpr, FEEDBACK: tl.constexpr, TILE: tl.constexpr
):
    """The sum of the terms of every PARTS-th tile of a bucket, from tile `part` on."""
    j = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.int32 if NORM == LINF else tl.float64)
    for start in range(part * TILE, length, PARTS * TILE):
        total = add(total, load(v_ptr, memory_ptr, first + start + j, start + j < length, FEEDBACK), NORM)
    return gather(total, NORM)


@triton.jit(do_not_specialize=["n"])
def _norms_kernel(
    v_ptr,
    memory_ptr,
    out_ptr,
    n,
    BUCKET,
    PARTS,
    NORM: tl.constexpr,
    FEEDBACK: tl.constexpr,
    FINISH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Reads each value once and writes next to nothing: the floor is n values at the bandwidth of memory.

    An operation or three per value: one conversion to float64 and one multiply-add.
    """
    bucket = tl.program_id(0) // PARTS
    first = bucket.to(tl.int64) * BUCKET
    length = tl.minimum(n - first, BUCKET)
    total = sum_bucket(v_ptr, memory_ptr, first, length, tl.program_id(0) % PARTS, PARTS, NORM, FEEDBACK, TILE)
    if FINISH:
        total = finish(total, length, NORM)
    tl.store(out_ptr + tl.program_id(0), total)


@triton.jit(do_not_specialize=["n"])
def _finish_norms_kernel(parts_ptr, out_ptr, n, BUCKET, PARTS, NORM: tl.constexpr, BLOCK: tl.constexpr):
    """The norms of buckets whose parts were summed by several programs."""
    bucket = tl.program_id(0)
    length = tl.minimum(n - bucket.to(tl.int64) * BUCKET, BUCKET)
    j = tl.arange(0, BLOCK)
    total = gather(tl.load(parts_ptr + bucket.to(tl.int64) * PARTS + j, mask=j < PARTS, other=0), NORM)
    tl.store(out_ptr + bucket, finish(total, length, NORM))


def norms_into(v: torch.Tensor, memory: torch.Tensor | None, bucket_size: int, norm: Norm, out: torch.Tensor) -> None:
    """out (n_buckets,) = norms of v, or of v + memory; a bucket too long for one program is summed by several."""
    n, tile = v.numel(), TUNING["tile"]
    count, parts = bucket_parts(n, bucket_size, tile)
    shared = (n, bucket_size, parts)
    rule = {"NORM": int(norm), "num_warps": TUNING["tile_warps"], **FLAGS}
    terms = {**rule, "FEEDBACK": memory is not None, "TILE": tile}
    with on(v.device):
        if parts == 1:
            _norms_kernel[(count,)](v, memory, out, *shared, FINISH=True, **terms)
            return
        sums = torch.empty(count, parts, dtype=torch.int32 if norm is Norm.LINF else torch.float64, device=v.device)
        _norms_kernel[(count * parts,)](v, memory, sums, *shared, FINISH=False, **terms)
        _finish_norms_kernel[(count,)](sums, out, *shared, BLOCK=triton.next_power_of_2(parts), **rule)


def norms(v: torch.Tensor, bucket_size: int, norm: Norm) -> torch.Tensor:
    """v (n,) to norms (n_buckets,) in float32."""
    out = torch.empty(n_buckets(v.numel(), bucket_size), dtype=torch.float32, device=v.device)
    if v.numel():
        norms_into(v.contiguous(), None, bucket_size, norm, out)
    return out
