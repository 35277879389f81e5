"""A predicted time as a sum of products that a reader can redo by hand."""

from collections.abc import Iterable
from dataclasses import dataclass

from laconic.units import shown

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
        'AllReduce, volume            1,000,000 bytes      × 8.00 ns    = 8.00 ms'
        """
        count = f"{self.count:,.6g} {self.unit}" if self.count < 1e6 else f"{self.count:,.0f} {self.unit}"
        return f"{self.name:28} {count:20} × {shown(self.seconds_each, 's'):10} = {shown(self.seconds, 's')}"


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
        said = [str(term) for term in self.terms if term.seconds]
        if self.hidden:
            said.append(f"{'hidden behind work':28} {'':20}   {'':10} = −{shown(self.hidden, 's')}")
        several = f" {shown(self.seconds * self.iterations, 's')} ÷ {self.iterations} iterations"
        rule = "sum" + several * (self.iterations > 1)
        return [*said, f"{rule:63}= {shown(self.seconds, 's')}"]


def total(terms: Iterable[CostTerm]) -> float:
    """Seconds of all terms."""
    return sum(term.seconds for term in terms)
