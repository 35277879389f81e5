"""A number that we promised ourselves, beside that of a run."""

from dataclasses import dataclass

from laconic.bench.protocol import Spread


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal with this run's number; `verdict` is "aim", "floor" (met) or "missed", by the median."""

    name: str
    value: Spread
    floor: float
    aim: float
    verdict: str


def outcome(name: str, value: Spread, floor: float, aim: float) -> Outcome:
    """A goal's verdict by the median: the value must reach `floor`, and we would like `aim`, whichever way that is.

    >>> outcome("loss, %", Spread(0.2, 0.1, 0.3), floor=0.5, aim=0.1).verdict
    'floor'
    """

    def reached(mark: float) -> bool:
        return value.median >= mark if aim > floor else value.median <= mark

    return Outcome(name, value, floor, aim, "aim" if reached(aim) else "floor" if reached(floor) else "missed")
