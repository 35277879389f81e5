"""Rotation, rounding and packing of a bucket in registers, and back; `reference/rotation.py` is the specification.

A bucket of a power of two p ≥ 512 is held by p / 4 R neighbouring threads as R rows of S = p / R values, R = 8 (or 16
where p = 65,536); of each row, thread t has numbers 4 t to 4 t + 3. So two stages of the transform are within a
thread, log₂(p / 4 R) by shuffles between threads, the rest within a thread again, between rows. The order, hence every
rounded sum, is that of the specification. A row of 16 hashes has the signs of 512 values. Packed symbols that share a
word are one thread's. A row is one tensor, four numbers per thread: fewer tensors take less time to compile.

Other buckets, among them the short last one, go to `rotation_loose`.
"""

import math
from functools import cache

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.launch import FLAGS, on, signed
from laconic.kernels.gpu.norms import L2, add, finish, term
from laconic.kernels.gpu.ptx import exchange, lookup
from laconic.kernels.gpu.rotation_loose import level_sizes, load_key, loose_symbols, loose_values, nearest, symbol_of
from laconic.kernels.gpu.rounding import bucket_key, hash32, reciprocal
from laconic.kernels.gpu.steps import pack, pack_into, unpack
from laconic.kernels.gpu.words import join_bytes, minus_zero, split_bytes
from laconic.kernels.grid import Grid, Rounding
from laconic.kernels.layout import n_buckets, packed_bucket_bytes, packed_bytes
from laconic.kernels.reference.rotation import LEVELS, order, root, thresholds

LEAST, MOST, ROWS, WARPS = 512, 65536, 8, 4
"""Smallest and largest bucket that threads hold, rows of a bucket, warps per program."""
ALIGNED = 16
"""Alignment of values in bytes: at other addresses a thread would load or store one value at a time, not its four."""


@triton.jit
def _hash(c, START: tl.constexpr, k0, k1, TURN: tl.constexpr):
    """The hash with the sign of value START + c of a bucket, shifted so that it is the highest bit."""
    offset = (2 * ((START + c) // 512) + TURN) * 16 + c % 16
    return hash32(offset.to(tl.uint32), k0, k1) << (c // 16 % 32).to(tl.uint32)


@triton.jit
def _flip(x, c, k0, k1, TURN: tl.constexpr, S: tl.constexpr):
    """x with the random signs of a round."""
    found = ()
    hashes = k0
    for r in tl.static_range(len(x)):
        if r * S % 512 == 0:
            hashes = _hash(c, r * S, k0, k1, TURN)
        sign = (hashes << (r * S % 512 // 16)) & 0x80000000
        found += ((x[r].to(tl.uint32, bitcast=True) ^ sign).to(tl.float32, bitcast=True),)
    return found


@triton.jit
def _byte_stages(row):
    """The stages h = 1 and 2 of a row (4 T,)."""
    W: tl.constexpr = row.shape[0] // 4
    a, b, c, d = split_bytes(row, W)
    a, b = a + b, a - b
    c, d = c + d, c - d
    return join_bytes(a + c, b + d, a - c, b - d, W)


@triton.jit
def _hadamard(x, c, LOG_R: tl.constexpr, LOG_T: tl.constexpr):
    """The transform of a bucket: within threads, between them, and within them again, between rows.

    Between threads, a product with ± 1 rounds nothing, so that the multiply-add is one sum.
    """
    found = ()
    for r in tl.static_range(len(x)):
        row = _byte_stages(x[r])
        for i in tl.static_range(LOG_T):
            row = tl.fma(row, tl.where(c // 4 & (1 << i) == 0, 1.0, -1.0), exchange(row, 1 << i, 4))
        found += (row,)
    for i in tl.static_range(LOG_R):
        staged = ()
        for r in tl.static_range(len(x)):
            if r >> i & 1:
                staged += (found[r ^ (1 << i)] - found[r],)
            else:
                staged += (found[r] + found[r ^ (1 << i)],)
        found = staged
    return found


@triton.jit
def _times(x, factor):
    found = ()
    for r in tl.static_range(len(x)):
        found += (x[r] * factor,)
    return found


@triton.jit
def _spread(x, S: tl.constexpr):
    """One number per bucket, repeated for each of its S places."""
    return tl.reshape(tl.broadcast_to(x[:, None], (x.shape[0], S)), (x.shape[0] * S,))


@triton.jit
def _nearest_of_many(z, marks, levels):
    """`nearest` by tables spread over threads: the threshold between z − 1/8 and z + 1/8, and the levels about it."""
    cell = tl.fma(tl.minimum(z, 3.75), 4.0, 2.0**23).to(tl.uint32, bitcast=True)
    above = z >= lookup(marks, cell, 16, 4)
    return lookup(levels, tl.where(above, cell + 16, cell), 32, 4)


@triton.jit
def _store_field(words_ptr, symbols, keep, mask, S: tl.constexpr, WIDTH: tl.constexpr, BITS: tl.constexpr):
    """Store the component of WIDTH bits: 8 / WIDTH rows of symbols to each row of words."""
    n_rows: tl.constexpr = len(symbols) * WIDTH // 8
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    for j in tl.static_range(n_rows):
        byte = symbols[0] * 0
        for k in tl.static_range(8 // WIDTH):
            byte |= ((symbols[j + k * n_rows] >> wider) & ((1 << WIDTH) - 1)) << (k * WIDTH)
        a, b, c, d = split_bytes(byte, keep.shape[0])
        word = a | (b << 8) | (c << 16) | (d << 24)
        tl.store(words_ptr + (wider * len(symbols) // 8 + j) * (S // 4), word & keep, mask=mask)


@triton.jit(do_not_specialize=["n_buckets", "key"], do_not_specialize_on_alignment=["data_ptr", "scales_ptr"])
def _pack_kernel(
    v_ptr, data_ptr, scales_ptr, tables_ptr, n_buckets, key, factor, root_m,
    ROOT: tl.constexpr, EXACT: tl.constexpr, MARKS: tl.constexpr, SIZES: tl.constexpr, BITS: tl.constexpr,
    P: tl.constexpr, R: tl.constexpr, LOG_R: tl.constexpr, LOG_T: tl.constexpr, BUCKETS: tl.constexpr,
):  # fmt: skip
    """BUCKETS buckets of P values, each held by P / (4 R) threads.

    Bytes per value: 4 (float32) read, bits / 8 written. Operations per value of P = 1024, R = 8: 20 sums of the
    transforms, 10 of them with a shuffle; signs 4 and hashes 5; norm 2 and dot product 3 in float64; products 4; level
    search 7; packing 5.
    """
    S: tl.constexpr = P // R
    first = tl.program_id(0).to(tl.int64) * BUCKETS
    bucket = first + tl.arange(0, BUCKETS)
    j = tl.arange(0, BUCKETS * S)
    c, mask = j % S, first + j // S < n_buckets
    x = ()
    for r in tl.static_range(R):
        x += (tl.load(v_ptr + first * P + (j // S * P + c + r * S), mask=mask, other=0.0).to(tl.float32),)
    total = term(x[0], L2)
    for r in tl.static_range(1, R):
        total = add(total, x[r], L2)
    norm = finish(tl.sum(tl.reshape(total, (BUCKETS, S)), 1), tl.full((), P, tl.int32), L2)
    keep, guard, inverse = reciprocal(norm)
    k0, k1 = bucket_key(key, bucket)
    k0, k1 = _spread(k0, S), _spread(k1, S)
    y = _flip(_times(_times(x, _spread(guard, S)), _spread(inverse, S)), c, k0, k1, 0, S)
    y = _flip(_times(_hadamard(y, c, LOG_R, LOG_T), factor), c, k0, k1, 1, S)
    y = _hadamard(y, c, LOG_R, LOG_T)
    marks = tl.load(tables_ptr + j // 4 % 16)
    levels = tl.load(tables_ptr + 16 + j // 4 % 32)
    symbols = ()
    dot = tl.zeros((BUCKETS * S,), tl.float64)
    for r in tl.static_range(R):
        z = tl.abs(y[r]) if EXACT else tl.abs(y[r] * factor) * root_m
        level = nearest(z, MARKS, SIZES) if BITS == 2 else _nearest_of_many(z, marks, levels)
        dot += (z * level).to(tl.float64)
        symbols += (symbol_of(y[r], level, BITS),)
    dot = tl.sum(tl.reshape(dot, (BUCKETS, S)), 1)
    scale = (norm.to(tl.float64) * tl.full((), ROOT, tl.float64) / dot).to(tl.float32)
    tl.store(scales_ptr + bucket, tl.where(keep != 0, scale, norm), mask=bucket < n_buckets)
    thread = tl.arange(0, BUCKETS * S // 4)
    words_ptr = data_ptr + (first + thread // (S // 4)) * (P * BITS // 8)
    words_ptr = words_ptr.to(tl.pointer_type(tl.uint32)) + thread % (S // 4)
    here = first + thread // (S // 4) < n_buckets
    for w in tl.static_range(3):
        if BITS & (4 >> w):
            _store_field(words_ptr, symbols, _spread(keep, S // 4), here, S, 4 >> w, BITS)


@triton.jit
def _component(bytes, ROW: tl.constexpr, R: tl.constexpr, WIDTH: tl.constexpr, BITS: tl.constexpr):
    """The component of WIDTH bits of the symbols in row ROW, where it lies in the symbol."""
    n_rows: tl.constexpr = R * WIDTH // 8
    wider: tl.constexpr = BITS & (16 - 2 * WIDTH)
    part = bytes[wider * R // 8 + ROW % n_rows] >> (ROW // n_rows * WIDTH)
    return part if WIDTH == BITS else (part & ((1 << WIDTH) - 1)) << wider


@triton.jit
def _symbol_row(bytes, ROW: tl.constexpr, R: tl.constexpr, BITS: tl.constexpr):
    """The symbols in row ROW, other bits above them, from bytes in the order that `_store_field` stores them in."""
    found = bytes[0] * 0
    for w in tl.static_range(3):
        if BITS & (4 >> w):
            found |= _component(bytes, ROW, R, 4 >> w, BITS)
    return found


@triton.jit(
    do_not_specialize=["n_buckets", "data_row", "scale_row", "key_row", "n_payloads", "weight"],
    do_not_specialize_on_alignment=["data_ptr", "scales_ptr", "keys_ptr"],
)
def _sum_kernel(
    data_ptr, scales_ptr, keys_ptr, out_ptr, n_buckets, data_row, scale_row, key_row, n_payloads, weight, factor,
    SIZES: tl.constexpr, BITS: tl.constexpr, P: tl.constexpr, R: tl.constexpr, LOG_R: tl.constexpr,
    LOG_T: tl.constexpr, BUCKETS: tl.constexpr, ACCUMULATE: tl.constexpr,
):  # fmt: skip
    """out = weight * sum over payloads of R⁻¹(± level · scale), or out += the same; threads as in `_pack_kernel`.

    Bytes per value: bits / 8 read for each payload, 4 written. Operations per value and payload: the 20 sums of the
    transforms alone take 2.5 times as long as moving the bytes of eight payloads of 4 bits does on an H200.
    """
    S: tl.constexpr = P // R
    first = tl.program_id(0).to(tl.int64) * BUCKETS
    bucket, thread, j = first + tl.arange(0, BUCKETS), tl.arange(0, BUCKETS * S // 4), tl.arange(0, BUCKETS * S)
    here, mask = first + thread // (S // 4) < n_buckets, first + j // S < n_buckets
    row_ptr = out_ptr + first * P + (j // S * P + j % S)
    size = tl.full((BUCKETS * S,), SIZES[0], tl.float32)
    for k in tl.static_range(1, len(SIZES)):
        size = tl.where(j // 4 % len(SIZES) == k, SIZES[k], size)
    size = tl.where(j // 4 % (2 * len(SIZES)) < len(SIZES), size, -size)
    total = ()
    for r in tl.static_range(R):
        if ACCUMULATE:
            total += (tl.load(row_ptr + r * S, mask=mask, other=0.0),)
        else:
            total += (minus_zero(BUCKETS * S),)
    for p in range(n_payloads):
        words_ptr = data_ptr + p * data_row.to(tl.int64) + (first + thread // (S // 4)) * (P * BITS // 8)
        words_ptr = words_ptr.to(tl.pointer_type(tl.uint32)) + thread % (S // 4)
        bytes = ()
        for w in tl.static_range(R * BITS // 8):
            word = tl.load(words_ptr + w * (S // 4), mask=here, other=0)
            bytes += (join_bytes(word, word >> 8, word >> 16, word >> 24, BUCKETS * S // 4),)
        scale = tl.load(scales_ptr + p * scale_row.to(tl.int64) + bucket, mask=bucket < n_buckets, other=0.0)
        table = size * _spread(scale * weight, S) * factor
        k0, k1 = bucket_key(load_key(keys_ptr + p * key_row.to(tl.int64)), bucket)
        k0, k1 = _spread(k0, S), _spread(k1, S)
        x = ()
        for r in tl.static_range(R):
            x += (lookup(table, _symbol_row(bytes, r, R, BITS), 1 << BITS, 4),)
        x = _times(_flip(_hadamard(x, j % S, LOG_R, LOG_T), j % S, k0, k1, 1, S), factor)
        x = _flip(_hadamard(x, j % S, LOG_R, LOG_T), j % S, k0, k1, 0, S)
        added = ()
        for r in tl.static_range(R):
            added += (total[r] + x[r],)
        total = added
    for r in tl.static_range(R):
        tl.store(row_ptr + r * S, total[r], mask=mask)


@cache
def _tables(bits: int, device: torch.device) -> torch.Tensor:
    """(48,) float32: for cells c of z around c / 4, the threshold in each, if any; the levels below it; those above."""
    marks, levels = thresholds(bits), LEVELS[bits]
    inside = [[k for k, mark in enumerate(marks) if abs(4 * mark - c) < 0.5] for c in range(16)]
    below = [sum(4 * mark < c - 0.5 for mark in marks) for c in range(16)]
    rows = [[marks[found[0]] if found else torch.inf for found in inside], [levels[k] for k in below]]
    above = [levels[k + len(found)] for k, found in zip(below, inside, strict=True)]
    return torch.tensor([*rows[0], *rows[1], *above], dtype=torch.float32, device=device)


def _is_held(bucket_size: int, data: torch.Tensor) -> bool:
    """Whether threads can hold a bucket and read or write its symbols as 32-bit words."""
    apart = data.dim() > 1 and len(data) > 1 and data.stride(0) % 4 != 0
    whole = LEAST <= bucket_size <= MOST and bucket_size == order(bucket_size)
    return whole and not apart and data.data_ptr() % 4 == 0


def _held_sizes(n_full: int, bucket_size: int) -> tuple[int, dict[str, object]]:
    """Number of programs that hold so many whole buckets, and the sizes to launch them with."""
    rows = max(ROWS, bucket_size // 4096)
    threads = bucket_size // (4 * rows)
    warps = max(WARPS, threads // 32)
    buckets = 32 * warps // threads
    logs = {"LOG_R": rows.bit_length() - 1, "LOG_T": threads.bit_length() - 1}
    sizes = {"P": bucket_size, "R": rows, "BUCKETS": buckets, "num_warps": warps, "num_stages": 1}
    return -(-n_full // buckets), {**sizes, **logs, **FLAGS}


def _parts(n: int, bucket_size: int, held: bool) -> list[tuple[int, int, int, bool]]:
    """(first bucket, how many, their size, whether threads hold them): the whole buckets, and the short one."""
    full, rest = divmod(n, bucket_size)
    return [part for part in ((0, full, bucket_size, held), (full, 1, rest, False)) if part[1] * part[2]]


def rotate_pack(
    v: torch.Tensor, bits: int, bucket_size: int, key: int, scales_out: torch.Tensor, data_out: torch.Tensor
) -> None:
    """Scales and packed symbols in one pass over memory, where threads hold a bucket."""
    v = v.contiguous() if v.element_size() <= 4 else v.float()  # a thread would load float64 two at a time
    v = v.clone() if v.data_ptr() % ALIGNED else v
    for first, count, m, held in _parts(v.numel(), bucket_size, _is_held(bucket_size, data_out)):
        x, scales = v[first * bucket_size :], scales_out[first:]
        data = data_out[first * packed_bucket_bytes(bucket_size, bits) :]
        numbers = (1 / root(order(m)), root(m))
        with on(v.device):
            if held:
                n_programs, sizes = _held_sizes(count, m)
                _pack_kernel[(n_programs,)](
                    x, data, scales, _tables(bits, v.device), count, signed(key), *numbers, ROOT=math.sqrt(m),
                    EXACT=math.frexp(math.sqrt(m))[0] == 0.5, BITS=bits, **level_sizes(bits), **sizes,
                )  # fmt: skip
                continue
            symbols = loose_symbols(x[: count * m], bits, first, m, key, scales)
            pack_into(symbols, None, None, Grid(Rounding.SIGN, bits, ()), m, 0, data)


def unpack_rotate(
    data: torch.Tensor,
    scales: torch.Tensor,
    keys: torch.Tensor,
    bits: int,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
) -> None:
    """out = weight * sum of values, or out += the same, in one pass over memory; `out` (n,) float32, contiguous."""
    if out.data_ptr() % ALIGNED:
        values = out.clone()
        unpack_rotate(data, scales, keys, bits, bucket_size, values, weight, accumulate)
        out.copy_(values)
        return
    for first, count, m, held in _parts(out.numel(), bucket_size, _is_held(bucket_size, data)):
        coded, target = data[:, first * packed_bucket_bytes(bucket_size, bits) :], out[first * bucket_size :]
        if held:
            n_programs, sizes = _held_sizes(count, m)
            with on(out.device):
                _sum_kernel[(n_programs,)](
                    coded, scales, keys, target, count, data.stride(0), scales.stride(0), keys.stride(0), len(data),
                    float(weight), 1 / root(m), SIZES=level_sizes(bits)["SIZES"], BITS=bits, ACCUMULATE=accumulate,
                    **sizes,
                )  # fmt: skip
            continue
        for p in range(len(data)):
            symbols = unpack(coded[p], count * m, bits, m)
            loose_values(symbols, scales[p, first:], keys[p], bits, first, m, target, weight, accumulate or p > 0)


def rotate_quantize(v: torch.Tensor, bits: int, bucket_size: int, key: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (n,) to symbols (n,) uint8 and scales (n_buckets,) float32."""
    n, device = v.numel(), v.device
    scales = torch.empty(n_buckets(n, bucket_size), dtype=torch.float32, device=device)
    data = torch.empty(packed_bytes(n, bits, bucket_size), dtype=torch.uint8, device=device)
    rotate_pack(v, bits, bucket_size, key, scales, data)
    return unpack(data, n, bits, bucket_size), scales


def rotate_dequantize(
    symbols: torch.Tensor, scales: torch.Tensor, bits: int, bucket_size: int, key: int
) -> torch.Tensor:
    """Symbols (n,) to float32 values (n,)."""
    out = torch.empty(symbols.numel(), dtype=torch.float32, device=symbols.device)
    keys = torch.full((1, 1), signed(key), dtype=torch.int64, device=symbols.device).view(torch.int32)
    data = pack(symbols, bits, bucket_size)
    unpack_rotate(data[None], scales.contiguous()[None], keys, bits, bucket_size, out, 1.0, False)
    return out
