"""The clock t of ECD-PSGD: how far it extrapolates, and how fast an estimate forgets."""

from dataclasses import dataclass

from laconic.checks import check_int


@dataclass(frozen=True, slots=True)
class Clock:
    """t = 1, 2, 3, … as in the paper, unless it is held at `hold` or starts again after `restart`.

    At t, an estimate takes 2/t of what arrives and keeps 1 − 2/t of itself.

    hold     largest t; at 2 there is no extrapolation and an estimate is replaced by what arrives
    restart  after t has reached this, it is 2 again (1 is for an estimate without error only)

    >>> [Clock().at(step) for step in range(5)], [Clock(hold=2).at(step) for step in range(5)]
    ([1, 2, 3, 4, 5], [1, 2, 2, 2, 2])
    >>> [Clock(restart=3).at(step) for step in range(6)]
    [1, 2, 3, 2, 3, 2]
    """

    hold: int | None = None
    restart: int | None = None

    def __post_init__(self) -> None:
        for name in ("hold", "restart"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_int(name, value, 2, owner="clock"))
        if self.hold is not None and self.restart is not None:
            raise ValueError(f"clock: give hold or restart, not both, got {self.hold} and {self.restart}")

    def at(self, step: int) -> int:
        """t at a step, counted from 0."""
        if self.hold is not None:
            return min(step + 1, self.hold)
        if self.restart is not None and step > 0:
            return 2 + (step - 1) % (self.restart - 1)
        return step + 1
