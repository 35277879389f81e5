"""Operations that NVIDIA's GPUs have as one instruction and Triton does not expose, each beside its definition.

The definition is what runs under the interpreter and on other GPUs; the tests compare both with the reference.
"""

import os
from functools import lru_cache

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda

PTX = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET", "0") != "1")


@lru_cache(maxsize=8)
def has_dependent_launch(device: torch.device) -> bool:
    """Whether a kernel may be launched before the one it depends on has ended (`follow`): from Hopper on."""
    return bool(PTX.value) and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@triton.jit
def follow(DEPENDENT: tl.constexpr):
    """Wait for the previous kernel, then let the next one start: so at most one kernel waits on the GPU.

    Code before this call may read only what kernels before the previous one wrote. DEPENDENT: `has_dependent_launch`;
    without it, the kernel starts after the end of the previous one.
    """
    if DEPENDENT:
        cuda.gdc_wait()
        cuda.gdc_launch_dependents()


@triton.jit
def carry(above, fixed, random):
    """above + ((fixed + the upper 23 random bits) >> 23), for uint32 numbers.

    As the upper half of above * 2**32 + random + fixed * 2**9: one multiply-add of 32-bit numbers to 64 bits.
    """
    if PTX:
        found = tl.inline_asm_elementwise(
            "{.reg .b64 t; mov.b64 t, {$3, $1}; mad.wide.u32 t, $2, 512, t; mov.b64 {_, $0}, t;}",
            "=r,r,r,r",
            [above, fixed, random],
            dtype=tl.uint32,
            is_pure=True,
            pack=1,
        )
    else:
        found = above + ((fixed + (random >> 9)) >> 23)
    return found


@triton.jit
def saturate(a, b):
    """min(a * b, 1), for numbers that are not negative; 0 or 1 for NaN."""
    if PTX:
        found = tl.inline_asm_elementwise(
            "mul.rn.sat.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        found = tl.minimum(a * b, 1.0)
    return found


@triton.jit
def from_halves(pair):
    """The float16 numbers in the lower and the upper half of uint32 words, as float32."""
    if PTX:
        low, high = tl.inline_asm_elementwise(
            "{.reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h;}",
            "=f,=f,r",
            [pair],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    else:
        low = (pair & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        high = (pair >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    return low, high


@triton.jit
def ballot(flag):
    """The word (uint32) whose bit l is lane l's flag, for flags (32,) that one warp holds: in every lane."""
    if PTX:
        found = tl.inline_asm_elementwise(
            "{.reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff;}",
            "=r,r",
            [flag.to(tl.uint32)],
            dtype=tl.uint32,
            is_pure=False,
            pack=1,
        )
    else:
        lane = tl.arange(0, 32).to(tl.uint32)
        found = lane * 0 + tl.sum(flag.to(tl.uint32) << lane, 0)
    return found


@triton.jit
def count_ones(word):
    """Number of set bits of uint32 words, int32."""
    if PTX:
        found = tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [word], dtype=tl.int32, is_pure=True, pack=1)
    else:
        word = word - ((word >> 1) & 0x55555555)
        word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
        found = ((((word + (word >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(tl.int32)
    return found


@triton.jit
def exchange(x, DISTANCE: tl.constexpr, A_THREAD: tl.constexpr):
    """x of the thread DISTANCE away, a power of two, in a row of A_THREAD neighbouring numbers per thread.

    That is x[i ^ (A_THREAD * DISTANCE)]. Within a warp one shuffle; further apart through shared memory.
    """
    if PTX and DISTANCE < 32:
        found = tl.inline_asm_elementwise(
            f"shfl.sync.bfly.b32 $0, $1, {DISTANCE}, 0x1f, 0xffffffff;",
            "=r,r",
            [x],
            dtype=x.dtype,
            is_pure=False,
            pack=1,
        )
    else:
        n: tl.constexpr = x.shape[0]
        pairs = tl.reshape(x, (n // (2 * DISTANCE * A_THREAD), 2, DISTANCE * A_THREAD))
        low, high = tl.split(tl.permute(pairs, (0, 2, 1)))
        found = tl.reshape(tl.permute(tl.join(high, low), (0, 2, 1)), (n,))
    return found


@triton.jit
def lane_entry(ptr, like, W: tl.constexpr):
    """ptr[lane], float32, for the lane that holds each number of a row (W,); by definition ptr[i % 32].

    This lays a table for `lookup` out over threads as `like`, a row of as many 32-bit numbers, is laid out.
    """
    if PTX:
        found = tl.inline_asm_elementwise(
            "{.reg .u32 l; .reg .u64 a; mov.u32 l, %laneid; mad.wide.u32 a, l, 4, $2; ld.global.nc.f32 $0, [a];}",
            "=f,r,l",
            [like.to(tl.int32, bitcast=True), ptr.to(tl.int64)],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        found = tl.load(ptr + tl.arange(0, W) % 32)
    return found


@triton.jit
def lookup(table, index, SIZE: tl.constexpr, A_THREAD: tl.constexpr):
    """`table` of thread index % SIZE in each group of SIZE neighbours, in a row of A_THREAD numbers per thread.

    So each group has a table of its own, one number per thread, repeated A_THREAD times. SIZE is a power of two, at
    most 32.
    """
    if PTX:
        found = tl.inline_asm_elementwise(
            f"shfl.sync.idx.b32 $0, $1, $2, {(32 - SIZE) * 256 + 31}, 0xffffffff;",
            "=f,f,r",
            [table, index],
            dtype=tl.float32,
            is_pure=False,
            pack=1,
        )
    else:
        n: tl.constexpr = table.shape[0]
        rows = tl.reshape(table, (n // (SIZE * A_THREAD), SIZE * A_THREAD))
        at = tl.reshape(index.to(tl.int32) & (SIZE - 1), (n // (SIZE * A_THREAD), SIZE * A_THREAD)) * A_THREAD
        found = tl.reshape(tl.gather(rows, at, 1), (n,))
    return found


@triton.jit
def from_lane(values, lane):
    """The values (32,) that other lanes of a warp hold: values[lane], for 32-bit numbers."""
    if PTX:
        found = tl.inline_asm_elementwise(
            "shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;",
            "=r,r,r",
            [values, lane],
            dtype=tl.uint32,
            is_pure=False,
            pack=1,
        )
    else:
        found = tl.gather(values, lane, 0)
    return found
