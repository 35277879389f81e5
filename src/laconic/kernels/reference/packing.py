"""Fixed-width packing of symbols per bucket, rounding followed by packing, and scaled copies and sums.

A symbol of `bits` bits is cut into components of 8, 4, 2 and 1 bits (`layout.field_widths`, widest = lowest bits).
Components of w bits are stored 8 / w to a byte: byte j of a bucket of n symbols holds, lowest bits first, those of
symbols j, j + S, j + 2S, ... with S = ceil(n w / 8). Neighbouring bytes thus come from neighbouring symbols, and
packing is shifts and ors of whole contiguous rows.
"""

import torch
from torch import Tensor

from laconic.kernels.backend import Number
from laconic.kernels.grid import Grid, Norm
from laconic.kernels.layout import field_widths, n_buckets, packed_bucket_bytes
from laconic.kernels.reference.rounding import dequantize, norms, quantize


def pack(symbols: Tensor, bits: int, bucket_size: int) -> Tensor:
    """Symbols (n,) uint8 to packed bytes (layout.packed_bytes,) uint8."""
    starts = range(0, symbols.numel(), bucket_size)
    parts = [_pack_bucket(symbols[start : start + bucket_size], bits) for start in starts]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=symbols.device)


def _pack_bucket(symbols: Tensor, bits: int) -> Tensor:
    n, shift, parts = symbols.numel(), 0, []
    for w in field_widths(bits):
        stride = packed_bucket_bytes(n, w)
        component = torch.zeros(8 // w * stride, dtype=torch.int64, device=symbols.device)
        component[:n] = (symbols.long() >> shift) & (2**w - 1)
        places = torch.arange(0, 8, w, device=symbols.device)
        parts.append((component.view(8 // w, stride) << places[:, None]).sum(dim=0).to(torch.uint8))
        shift += w
    return torch.cat(parts)


def unpack(data: Tensor, n: int, bits: int, bucket_size: int) -> Tensor:
    """The inverse of `pack`; `data` has `layout.packed_bytes(n, bits, bucket_size)` bytes."""
    stride = packed_bucket_bytes(bucket_size, bits)
    parts = [
        _unpack_bucket(data[b * stride : (b + 1) * stride], min(bucket_size, n - b * bucket_size), bits)
        for b in range(n_buckets(n, bucket_size))
    ]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=data.device)


def _unpack_bucket(data: Tensor, n: int, bits: int) -> Tensor:
    symbols = torch.zeros(n, dtype=torch.int64, device=data.device)
    shift = first = 0
    for w in field_widths(bits):
        stride = packed_bucket_bytes(n, w)
        places = torch.arange(0, 8, w, device=data.device)
        component = (data[first : first + stride].long() >> places[:, None]) & (2**w - 1)
        symbols |= component.reshape(-1)[:n] << shift
        shift += w
        first += stride
    return symbols.to(torch.uint8)


def quantize_pack(
    v: Tensor, norm: Norm, grid: Grid, bucket_size: int, key: int, norms_out: Tensor, data_out: Tensor
) -> None:
    """norms_out = norms(v); data_out = pack(quantize(v))."""
    norms_out.copy_(norms(v, bucket_size, norm))
    data_out.copy_(pack(quantize(v, norms_out, grid, bucket_size, key), grid.bits, bucket_size))


def scale(values: Tensor, out: Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, each operation rounded to float32."""
    scaled = values.float() * torch.full_like(out, weight)
    out.copy_(out + scaled if accumulate else scaled)


def scale_by_root(values: Tensor, squares: Tensor, factor: Number, least: Number, inverse: bool) -> None:
    """values *= ρ(max(factor · squares, least)), or values /= the same, each operation rounded to float32.

    ρ exceeds the square root by at most 6 %: its bit pattern is half the argument's plus half of 127 · 2²³. Unlike the
    square roots of libraries, it is the same on every machine. `values` (n,) float32 is changed in place, `squares`
    (n,) is float32 and finite; `factor` and `least` may be tensors on a GPU.
    """
    root = ((squares * factor).clamp_(min=least).view(torch.int32) >> 1).add_(127 << 22).view(torch.float32)
    if inverse:
        values.div_(root)
    else:
        values.mul_(root)


def total(values: Tensor, squared: bool) -> Tensor:
    """Σx or Σx² of float32 values (n,), a float64 number on their device."""
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square() if squared else values.sum(dtype=torch.float64)


def unpack_dequantize(
    data: Tensor,
    norms: Tensor,
    grid: Grid,
    bucket_size: int,
    out: Tensor,
    weight: float,
    accumulate: bool,
    *,
    keys: Tensor | None = None,
) -> None:
    """out = weight * sum over payloads of dequantize(unpack(data)), or out += the same.

    `data` (P, n_bytes), `norms` (P, n_buckets), `out` (n,) float32; weight is rounded to float32, payloads are added
    one after another. `keys` (P, 2) int32 are the encoders' keys, needed for SUBTRACT.
    """
    for row, scales, key in payload_rows(data, norms, keys, weight):
        symbols = unpack(row, out.numel(), grid.bits, bucket_size)
        values = dequantize(symbols, scales, grid, bucket_size, key)
        out.copy_(out + values if accumulate else values)
        accumulate = True


def payload_rows(data: Tensor, norms: Tensor, keys: Tensor | None, weight: float) -> list[tuple[Tensor, Tensor, int]]:
    """Bytes, weight * norms and key of each payload."""
    numbers = [0] * len(data) if keys is None else keys.flatten().clone().view(torch.int64).tolist()
    rows = zip(data, norms, numbers, strict=True)
    return [(row, own * torch.full_like(own, weight), key % 2**64) for row, own, key in rows]
