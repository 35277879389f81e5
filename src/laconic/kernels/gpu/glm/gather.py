"""Gather rows of a matrix, which may lie in pinned memory of the host, into device memory."""

import torch
import triton
import triton.language as tl

from laconic.kernels.gpu.launch import next_power_of_two, on

WIDEST = 4096
"""The most numbers that one program copies."""
ALIGNMENTS = (16, 8, 4, 2)
"""Numbers that a kernel may read at a time, where rows begin and end at multiples of them."""


def alignment(X: torch.Tensor) -> int:
    """The largest power of two, at most 16, that divides both the length of a row and the distance to the next.

    Triton itself checks for multiples of 16 alone; a matrix of 1000 columns would be read number by number.

    >>> alignment(torch.empty(3, 1000)), alignment(torch.empty(3, 28)), alignment(torch.empty(3, 7))
    (8, 4, 1)
    """
    return next((a for a in ALIGNMENTS if X.shape[1] % a == 0 and X.stride(0) % a == 0), 1)


@triton.jit
def _gather_kernel(
    X, stride, rows, out, out_stride, k, n, ALIGNED: tl.constexpr, OUT_ALIGNED: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.program_id(1) * N + tl.arange(0, N)
    taken = tl.load(rows + row, mask=row < k, other=0).to(tl.int64)
    wanted = (row < k)[:, None] & (column < n * ALIGNED)[None, :]
    values = tl.load(X + taken[:, None] * (stride * ALIGNED) + column[None, :], mask=wanted)
    tl.store(out + row.to(tl.int64)[:, None] * (out_stride * OUT_ALIGNED) + column[None, :], values, mask=wanted)


def gather_rows(X: torch.Tensor, rows: torch.Tensor, out: torch.Tensor) -> None:
    """out[i] = X[rows[i]]; X (m, n) on the device or pinned, rows (k,) int32, out (k, n) of the type of X."""
    if not len(rows) or not X.shape[1]:
        return
    n, width = X.shape[1], min(WIDEST, next_power_of_two(X.shape[1]))
    at_once, aligned, out_aligned = max(1, WIDEST // width), alignment(X), alignment(out)
    with on(out.device):
        _gather_kernel[triton.cdiv(len(rows), at_once), triton.cdiv(n, width)](
            X, X.stride(0) // aligned, rows, out, out.stride(0) // out_aligned, len(rows), n // aligned,
            ALIGNED=aligned, OUT_ALIGNED=out_aligned, R=at_once, N=width, num_warps=4,
        )  # fmt: skip
