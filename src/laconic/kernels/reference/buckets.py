"""A flat tensor as a matrix of buckets."""

import torch

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
