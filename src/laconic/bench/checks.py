"""Whether what was timed was also right. A wrong answer stops the run: its speed is of no interest."""

import math

import torch

from laconic.kernels import Norm
from laconic.quantizers import Bucketed, Quantizer

SAMPLE = 2**20
DEVIATIONS = 8.0
ROUNDOFF = 1e-3


class WrongResult(RuntimeError):
    """A benchmark's contender gave an answer that its own definition excludes."""


def relative_error(decoded: torch.Tensor, v: torch.Tensor) -> float:
    """‖decoded − v‖² / ‖v‖², and 0 where both are zero."""
    size = _squares(v)
    error = _squares(decoded - v)
    return error / size if size else error


def check_error(label: str, quantizer: Quantizer, v: torch.Tensor, decoded: torch.Tensor) -> None:
    """Compare the error of the last buckets, about 2**20 values of them, with what it must be.

    An unbiased scheme between levels l ≤ r ≤ u has E[error] = (u − r)(r − l) for a value r, exactly, and a known
    deviation; values are independent. The other schemes are not random, so that their bounds hold each time.
    """
    start = _last_buckets(v.numel(), quantizer.bucket_size)
    v, decoded = v[start:], decoded[start:]
    error = relative_error(decoded, v)
    if isinstance(quantizer, Bucketed) and quantizer.unbiased:
        mean, deviation = expected_error(quantizer, v)
        if not abs(error - mean) <= DEVIATIONS * deviation + ROUNDOFF * mean:
            raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², expected {mean:.4g} ± {deviation:.2g}")
    elif not error <= quantizer.variance_bound(v.numel()) * (1 + ROUNDOFF):
        raise WrongResult(f"{label}: the error is {error:.4g} of ‖v‖², above {quantizer.variance_bound(v.numel()):.4g}")


def expected_error(quantizer: Bucketed, v: torch.Tensor) -> tuple[float, float]:
    """E‖Q(v) − v‖² / ‖v‖² of these very values, and the standard deviation of one draw around it."""
    levels = torch.tensor(quantizer.grid.levels, dtype=torch.float64)
    mean = variance = 0.0
    for bucket in torch.split(v.double(), quantizer.bucket_size):
        norm = bucket.abs().max() if quantizer.norm is Norm.LINF else torch.linalg.vector_norm(bucket)
        r = (bucket.abs() / norm).nan_to_num(0.0).clamp(max=1.0)
        above = torch.bucketize(r, levels).clamp(min=1)
        up, down = levels[above] - r, r - levels[above - 1]
        mean += float((up * down).sum() * norm**2)
        variance += float((up * down * (up - down) ** 2).sum() * norm**4)
    size = _squares(v)
    return (mean / size, math.sqrt(variance) / size) if size else (0.0, 0.0)


def check_symbols(label: str, decoded: torch.Tensor, symbols: torch.Tensor) -> None:
    """A lossless coder gives back what it was given."""
    if not torch.equal(decoded, symbols):
        raise WrongResult(f"{label}: the decoded symbols are not those that were encoded")


def _squares(v: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2


def _last_buckets(n: int, bucket_size: int) -> int:
    """Where the last whole buckets begin that hold at most `SAMPLE` values, one of them at least."""
    n_buckets = -(-n // bucket_size)
    return max(0, n_buckets - max(1, SAMPLE // bucket_size)) * bucket_size
