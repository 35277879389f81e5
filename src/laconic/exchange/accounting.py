"""What an exchange cost and what it lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Accounting:
    """Counts of one exchange, or sums over many (`+=`).

    n_exchanges      how many exchanges are summed here
    n_values         values averaged
    bytes_sent       bytes this rank sent to other ranks, headers and norms included
    bytes_received   bytes this rank received from other ranks
    encode_seconds   time in quantizers and coders before sending
    wire_seconds     time spent waiting for other ranks
    decode_seconds   time in decoding and summing
    error            ‖sent − v‖² where it was measured, and
    energy           ‖v‖² of the same values

    >>> total = Accounting(); total += Accounting(n_values=4, bytes_sent=2); total.ratio
    8.0
    """

    n_exchanges: int = 0
    n_values: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    encode_seconds: float = 0.0
    wire_seconds: float = 0.0
    decode_seconds: float = 0.0
    error: float = 0.0
    energy: float = 0.0

    @property
    def ratio(self) -> float:
        """Bytes of the values in float32, over bytes sent."""
        return 4 * self.n_values / self.bytes_sent if self.bytes_sent else float("inf")

    @property
    def nmse(self) -> float:
        """Normalised error ‖sent − v‖² / ‖v‖² of this rank's own message; NaN where it was not measured."""
        return self.error / self.energy if self.energy else float("nan")

    def __iadd__(self, other: "Accounting") -> "Accounting":
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of the block to `<phase>_seconds`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            name = f"{phase}_seconds"
            setattr(self, name, getattr(self, name) + time.perf_counter() - start)
