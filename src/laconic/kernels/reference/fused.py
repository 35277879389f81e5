"""The two fused kernels, as what they fuse."""

import torch

from laconic.kernels.backend import Number
from laconic.kernels.grid import Grid, Norm
from laconic.kernels.reference.norms import norms
from laconic.kernels.reference.packing import pack, unpack
from laconic.kernels.reference.rounding import dequantize_scaled, quantize


def quantize_pack(
    v: torch.Tensor, norm: Norm, grid: Grid, bucket_size: int, key: int, norms_out: torch.Tensor, data_out: torch.Tensor
) -> None:
    """norms_out = norms(v); data_out = pack(quantize(v))."""
    norms_out.copy_(norms(v, bucket_size, norm))
    data_out.copy_(pack(quantize(v, norms_out, grid, bucket_size, key), grid.bits, bucket_size))


def scale(values: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, each operation rounded to float32."""
    scaled = values.float() * torch.full_like(out, weight)
    if accumulate:
        out.add_(scaled)
    else:
        out.copy_(scaled)


def scale_by_root(values: torch.Tensor, squares: torch.Tensor, factor: Number, least: Number, inverse: bool) -> None:
    """values *= ρ(max(factor · squares, least)), or values /= the same, each operation rounded to float32.

    ρ is the square root to within 6 %, never below it: half of the bit pattern and of 127 · 2²³. So it is the same on
    every machine, which roots of other libraries are not. `values` (n,) float32 is changed in place, `squares` (n,)
    float32, finite; the numbers may lie on a GPU.
    """
    root = ((squares * factor).clamp_(min=least).view(torch.int32) >> 1).add_(127 << 22).view(torch.float32)
    if inverse:
        values.div_(root)
    else:
        values.mul_(root)


def total(values: torch.Tensor, squared: bool) -> torch.Tensor:
    """Σx or Σx² of float32 values (n,), a float64 number on their device."""
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm.square() if squared else values.sum(dtype=torch.float64)


def unpack_dequantize(
    data: torch.Tensor,
    norms: torch.Tensor,
    grid: Grid,
    bucket_size: int,
    out: torch.Tensor,
    weight: float,
    accumulate: bool,
    *,
    keys: torch.Tensor | None = None,
) -> None:
    """out = weight * sum over payloads of dequantize(unpack(data)), or out += the same.

    `data` (P, n_bytes), `norms` (P, n_buckets), `out` (n,) float32; weight is rounded to float32, payloads are added
    one after another. `keys` (P, 2) int32 are those of the encoders, for SUBTRACT.
    """
    numbers = [0] * len(data) if keys is None else keys.flatten().clone().view(torch.int64).tolist()
    for row, row_norms, key in zip(data, norms, numbers, strict=True):
        symbols = unpack(row, out.numel(), grid.bits, bucket_size)
        values = dequantize_scaled(symbols, row_norms * torch.full_like(row_norms, weight), grid, bucket_size, key)
        if accumulate:
            out.add_(values)
        else:
            out.copy_(values)
        accumulate = True
