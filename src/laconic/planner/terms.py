"""A predicted time as a sum of products that a reader can redo by hand."""

from collections.abc import Iterable
from dataclasses import dataclass

WIRE, WORK = "wire", "work"
"""What a term is spent on: waiting for the network, or this rank's own work."""


@dataclass(frozen=True, slots=True)
class CostTerm:
    """count · seconds_each.

    name          what is done
    count         how often
    unit          of the count, such as "flops" or "bytes"
    seconds_each  of one of them
    kind          WORK or WIRE
    """

    name: str
    count: float
    unit: str
    seconds_each: float
    kind: str = WORK

    @property
    def seconds(self) -> float:
        return self.count * self.seconds_each

    def __str__(self) -> str:
        """The product with its numbers.

        >>> str(CostTerm("AllReduce, volume", 1_000_000, "bytes", 8e-9, WIRE))
        'AllReduce, volume            1,000,000 bytes      × 8 ns       = 8 ms'
        """
        count = f"{self.count:,.6g} {self.unit}" if self.count < 1e6 else f"{self.count:,.0f} {self.unit}"
        return f"{self.name:28} {count:20} × {duration(self.seconds_each):10} = {duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Terms of `iterations` iterations together: this rank's own work, and the network.

    hidden  seconds of wire time that pass while the rank works, and so cost nothing
    """

    terms: tuple[CostTerm, ...]
    iterations: int = 1
    hidden: float = 0.0

    @property
    def work_seconds(self) -> float:
        return total(term for term in self.terms if term.kind == WORK)

    @property
    def wire_seconds(self) -> float:
        return total(term for term in self.terms if term.kind == WIRE)

    @property
    def seconds(self) -> float:
        """Of one iteration: (work + wire − hidden) / iterations.

        >>> Cost((CostTerm("a", 2, "x", 3.0), CostTerm("b", 1, "y", 4.0, WIRE)), iterations=5).seconds
        2.0
        """
        return (self.work_seconds + self.wire_seconds - self.hidden) / self.iterations

    def lines(self) -> list[str]:
        """The arithmetic, one term a line, and the sum."""
        shown = [str(term) for term in self.terms if term.seconds]
        if self.hidden:
            shown.append(f"{'hidden behind work':28} {'':20}   {'':10} = −{duration(self.hidden)}")
        several = f" {duration(self.seconds * self.iterations)} ÷ {self.iterations} iterations"
        rule = "sum" + several * (self.iterations > 1)
        return [*shown, f"{rule:63}= {duration(self.seconds)}"]


def total(terms: Iterable[CostTerm]) -> float:
    """Seconds of all terms."""
    return sum(term.seconds for term in terms)


def duration(seconds: float) -> str:
    """A time with its unit, three digits.

    >>> duration(0.00412), duration(2.5e-9), duration(75.0), duration(0.0), duration(3e-14)
    ('4.12 ms', '2.5 ns', '75 s', '0 s', '3e-05 ns')
    >>> duration(0.9996), duration(1234.5)
    ('1 s', '1,234 s')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * scale or seconds == 0:
            value = seconds / scale
            return f"{value:,.0f} {unit}" if 999.5 <= value < 1e7 else f"{value:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def rate(bits_per_second: float) -> str:
    """A link's rate as people say it.

    >>> rate(3.14e9), rate(2e7), rate(99.6e6), rate(1.2e12)
    ('3.1 Gbit/s', '20 Mbit/s', '100 Mbit/s', '1200 Gbit/s')
    """
    value, unit = (bits_per_second / 1e9, "Gbit/s") if bits_per_second >= 1e9 else (bits_per_second / 1e6, "Mbit/s")
    return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.2g} {unit}"
