"""Kernels are compared with the reference before they are timed."""

import torch

from laconic.bench.checks import WrongResult
from laconic.kernels import Stream, select
from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.quantizers import Bucketed

CHECKED_BUCKETS = 16
KEY = Stream(seed=1).key


def check_pack(label: str, q: Bucketed, v: torch.Tensor, norms: torch.Tensor, data: torch.Tensor) -> None:
    """The first buckets' bytes are those of the reference on the CPU, given the norms, and the norms are right."""
    reference, device = select("reference", torch.device("cpu")), torch.device("cpu")
    n = min(v.numel(), CHECKED_BUCKETS * q.bucket_size)
    some, theirs = v[:n].to(device), norms[: n_buckets(n, q.bucket_size)].to(device)
    if not torch.allclose(theirs, reference.norms(some, q.bucket_size, q.norm), rtol=2.0**-23):
        raise WrongResult(f"{label}: norms differ from the reference")
    symbols = reference.quantize(some, theirs, q.grid, q.bucket_size, KEY)
    ours = reference.pack(symbols, q.bits, q.bucket_size)
    if not torch.equal(data[: ours.numel()].to(device), ours):
        raise WrongResult(f"{label}: packed symbols differ from the reference")


def check_sum(label: str, q: Bucketed, data: torch.Tensor, norms: torch.Tensor, out: torch.Tensor) -> None:
    """The first buckets' sums are those of the reference on the CPU."""
    reference, device = select("reference", torch.device("cpu")), torch.device("cpu")
    n = min(out.numel(), CHECKED_BUCKETS * q.bucket_size)
    rows = data[:, : packed_bytes(n, q.bits, q.bucket_size)].to(device)
    ours = torch.empty(n)
    some = norms[:, : n_buckets(n, q.bucket_size)].to(device)
    reference.unpack_dequantize(rows, some, q.grid, q.bucket_size, ours, 1 / len(data), False)
    require_same(out[:n].to(device), ours, label)


def require_same(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    """Value by value."""
    if not torch.equal(ours, theirs.to(ours.dtype)):
        raise WrongResult(f"{label}: the values differ from the reference")
