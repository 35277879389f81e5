"""One kernel, timed."""

from dataclasses import dataclass

from benchmarks.kernels.contenders import Contender
from laconic.bench.protocol import Comparison, Spread


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel on one size.

    contender, config  who, by label and in full
    operation          what was timed
    n_payloads         payloads added up; 0 where none are
    dtype              of the values
    n                  how many of them
    seconds            of one call
    n_bytes            that must be read and written once
    gb_per_second      the same a second, in GB
    copy_seconds       of the fastest device copy of n float32 values, run in turn
    ratio_to_copy      bytes a second over those of the copy, round by round
    """

    contender: str
    config: str
    operation: str
    n_payloads: int
    dtype: str
    n: int
    seconds: Spread
    n_bytes: int
    gb_per_second: float
    copy_seconds: Spread
    ratio_to_copy: Spread


def row(contender: Contender, comparison: Comparison, n: int) -> KernelRow:
    """The contender's row, with bytes a second and their ratio to the copy's."""
    share = contender.n_bytes / (8 * n)
    ratio = comparison.ratio
    return KernelRow(
        contender=contender.label,
        config=contender.config,
        operation=contender.operation,
        n_payloads=contender.n_payloads,
        dtype=contender.dtype,
        n=n,
        seconds=comparison.seconds,
        n_bytes=contender.n_bytes,
        gb_per_second=contender.n_bytes / comparison.seconds.median / 1e9,
        copy_seconds=comparison.baseline,
        ratio_to_copy=Spread(share * ratio.median, share * ratio.p20, share * ratio.p80),
    )
