"""The accounting of an exchange: bytes, seconds and quantisation error."""

import time
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Accounting:
    """Counts of one exchange, or sums over many (`+=`).

    n_exchanges      number of exchanges summed
    n_values         values averaged
    bytes_sent       bytes of codes this rank sent to other ranks, headers and norms included; where codes have no fixed
                     size, 8 more bytes for the length of each
    bytes_received   bytes this rank received from other ranks
    n_coded          values that this rank encoded in less than float32
    code_bytes       bytes of those codes, each counted once
    encode_seconds   time in quantizers and coders before sending
    wire_seconds     time spent waiting for other ranks
    decode_seconds   time in decoding and summing
    error            ‖sent − v‖² where it was measured
    energy           ‖v‖² of the same values; on a GPU both are tensors there

    Seconds are measured on the host. For work on a GPU they are the time it takes to queue it.

    >>> total = Accounting(); total += Accounting(n_values=4, bytes_sent=2); total.ratio
    8.0
    """

    n_exchanges: int = 0
    n_values: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    n_coded: int = 0
    code_bytes: int = 0
    encode_seconds: float = 0.0
    wire_seconds: float = 0.0
    decode_seconds: float = 0.0
    error: float | torch.Tensor = 0.0
    energy: float | torch.Tensor = 0.0

    @property
    def ratio(self) -> float:
        """Bytes of the values in float32, over bytes sent."""
        return 4 * self.n_values / self.bytes_sent if self.bytes_sent else float("inf")

    @property
    def bits(self) -> float:
        """Bits per value of this rank's codes, headers and norms included; NaN where all was float32."""
        return 8 * self.code_bytes / self.n_coded if self.n_coded else float("nan")

    @property
    def nmse(self) -> float:
        """Normalised error ‖sent − v‖² / ‖v‖² of this rank's own message; NaN where it was not measured."""
        energy = float(self.energy)
        return float(self.error) / energy if energy else float("nan")

    def __iadd__(self, other: "Accounting") -> "Accounting":
        for name in self.__slots__:
            more = getattr(other, name)
            if isinstance(more, torch.Tensor) or more:  # adding 0 would still queue a kernel on a GPU
                setattr(self, name, getattr(self, name) + more)
        return self

    def timed(self, phase: str) -> "_Timed":
        """A context manager that adds the time of its block to `<phase>_seconds`."""
        return _Timed(self, f"{phase}_seconds")


class _Timed:
    """Adds the time of a block to one of an accounting's fields; entered dozens of times per exchange."""

    __slots__ = ("accounting", "name", "start")

    def __init__(self, accounting: Accounting, name: str) -> None:
        self.accounting, self.name = accounting, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self.start
        setattr(self.accounting, self.name, getattr(self.accounting, self.name) + seconds)
