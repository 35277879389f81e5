"""Buckets of a flat tensor, and one float32 norm per bucket, summed in float64.

A bucket that holds a non-finite value, or whose norm passes the range of float32, gets a non-finite norm. NaN is
always the same NaN, so that it is the same on the wire.
"""

import torch

from laconic.kernels.grid import Norm
from laconic.kernels.layout import n_buckets


def to_buckets(v: torch.Tensor, bucket_size: int) -> torch.Tensor:
    """(n,) to (n_buckets, width), the short last bucket filled with zeros; width = min(bucket_size, n)."""
    width = max(1, min(bucket_size, v.numel()))
    rows = n_buckets(v.numel(), bucket_size)
    padded = torch.zeros(rows * width, dtype=v.dtype, device=v.device)
    padded[: v.numel()] = v
    return padded.view(rows, width)


def from_buckets(x: torch.Tensor, n: int) -> torch.Tensor:
    """The inverse of `to_buckets`."""
    return x.reshape(-1)[:n]


def norms(v: torch.Tensor, bucket_size: int, norm: Norm) -> torch.Tensor:
    """v (n,) to norms (n_buckets,) in float32."""
    if v.numel() == 0:
        return torch.empty(0, dtype=torch.float32, device=v.device)
    x = to_buckets(v.float(), bucket_size).double()
    if norm is Norm.L2:
        value = x.square().sum(dim=1).sqrt()
    elif norm is Norm.LINF:
        value = x.abs().amax(dim=1)
    else:
        value = x.abs().sum(dim=1) / _counts(v.numel(), bucket_size, v.device)
    return value.float().nan_to_num(nan=torch.nan, posinf=torch.inf)


def _counts(n: int, bucket_size: int, device: torch.device) -> torch.Tensor:
    counts = torch.full((n_buckets(n, bucket_size),), float(bucket_size), dtype=torch.float64, device=device)
    counts[-1] = n - (len(counts) - 1) * bucket_size
    return counts
