"""Fixed-width packing, bucket by bucket.

A symbol of `bits` bits is cut into components of 8, 4, 2 and 1 bits (`layout.field_widths`, widest = lowest bits). A
component of w bits goes 8 / w to a byte: byte j of a bucket of n symbols holds, lowest bits first, the components of
symbols j, j + S, j + 2S, ... with S = ceil(n w / 8). Neighbouring bytes thus come from neighbouring symbols, and
packing is shifts and ors of whole contiguous rows.
"""

import torch
from torch import Tensor

from laconic.kernels.layout import field_widths, n_buckets, packed_bucket_bytes


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
