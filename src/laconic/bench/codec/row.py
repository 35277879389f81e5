"""One line of a benchmark, and the step that makes a few of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from laconic.bench.protocol import Comparison, Spread


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of one contender on one problem.

    problem              what the values are
    n                    how many of them
    contender, config    who, by label and in full
    via                  "torch" (a baseline), "codec" (what a user calls; allocates its result), "kernel" (the bare
                         kernel into memory that is already there), "coder" (the lossless half alone)
    operation            what was timed
    n_threads            cores it could use
    seconds              of one call
    values_per_second    n / median seconds; None for the contender that does nothing
    gb_per_second        the same in GB of the values read or written (float32), or of the symbols (a byte each)
    copy_seconds         of a torch `copy_` of the same array, run just before in every round
    ratio_to_copy        speed over that of the copy, round by round
    bits_per_coordinate  on the wire: of the whole payload for a codec, of the coded symbols for a coder
    entropy              of the symbols, in bits, where only these are coded
    error                ‖decoded − v‖² / ‖v‖² of this run
    """

    problem: str
    n: int
    contender: str
    config: str
    via: str
    operation: str
    n_threads: int
    seconds: Spread
    values_per_second: float | None = None
    gb_per_second: float | None = None
    copy_seconds: Spread | None = None
    ratio_to_copy: Spread | None = None
    bits_per_coordinate: float | None = None
    entropy: float | None = None
    error: float | None = None

    @classmethod
    def timed(cls, comparison: Comparison, *, n: int, value_bytes: int, **fields: Any) -> "Row":
        """A row with its speeds worked out from a comparison with `copy_`; the other fields as given."""
        per_second = n / comparison.seconds.median
        return cls(
            n=n,
            seconds=comparison.seconds,
            values_per_second=per_second,
            gb_per_second=per_second * value_bytes / 1e9,
            copy_seconds=comparison.baseline,
            ratio_to_copy=comparison.ratio,
            **fields,
        )

    @property
    def bits_over_entropy(self) -> float | None:
        """How far the coder is from the best there is: 1 is the entropy itself."""
        if self.bits_per_coordinate is None or not self.entropy:
            return None
        return self.bits_per_coordinate / self.entropy


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a suite that takes a while: what to call it on a progress bar, and what to run."""

    label: str
    run: Callable[[], list[Row]]
