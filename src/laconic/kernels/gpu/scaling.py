"""Values as they are on the wire, times a weight."""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.launch import FLAGS, TUNING, on


@triton.jit(do_not_specialize=["n", "weight"])
def _scale_kernel(values_ptr, out_ptr, n, weight, ACCUMULATE: tl.constexpr, TILE: tl.constexpr):
    """Bytes a value: 4 or 2 read, 4 written, 4 more read to accumulate; 2 operations."""
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    x = tl.load(values_ptr + i, mask=i < n, other=0.0).to(tl.float32) * weight
    if ACCUMULATE:
        x += tl.load(out_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


def scale(values: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool) -> None:
    """out = weight * values, or out += weight * values, each operation rounded to float32."""
    n, tile = out.numel(), TUNING["tile"]
    if n:
        with on(out.device):
            _scale_kernel[(-(-n // tile),)](
                values.contiguous(), out, n, float(weight),
                ACCUMULATE=accumulate, TILE=tile, num_warps=TUNING["tile_warps"], **FLAGS,
            )  # fmt: skip
