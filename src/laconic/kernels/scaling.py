"""What values are divided by before they are quantised: one positive number m per value."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from laconic.kernels.backend import Number, select


@dataclass(frozen=True, slots=True)
class Part:
    """m of values [first, last): √max(factor · squares, least), or √least without squares.

    squares  (last − first,) float32, where each value has an m of its own; the root is taken to within 6 %, with the
             same bits on every machine
    """

    first: int
    last: int
    squares: Tensor | None
    factor: Number
    least: Number


@dataclass(frozen=True, slots=True)
class Scale:
    """m of n values, in parts that follow each other from 0 to n; 1 everywhere if there are none.

    `divide` and `multiply` are the specification; a kernel that takes a scale does the same in its own pass.
    """

    parts: tuple[Part, ...] = ()

    def divide(self, values: Tensor) -> None:
        """Divide values (n,) float32 by m, in place; n may be 0."""
        self._apply(values, inverse=True)

    def multiply(self, values: Tensor) -> None:
        """Multiply values (n,) float32 by m, in place; n may be 0."""
        self._apply(values, inverse=False)

    def _apply(self, flat: Tensor, inverse: bool) -> None:
        for part in self.parts if flat.numel() else ():
            values = flat[part.first : part.last]
            if part.squares is not None:
                select("auto", flat.device).scale_by_root(values, part.squares, part.factor, part.least, inverse)
            elif inverse:
                values.div_(part.least**0.5)
            else:
                values.mul_(part.least**0.5)

    def tensors(self) -> Iterator[Tensor]:
        """Its tensors, which may be on a GPU."""
        for part in self.parts:
            yield from (it for it in (part.squares, part.factor, part.least) if isinstance(it, Tensor))

    def cut(self, first: int, last: int) -> "Scale":
        """m of values [first, last), counted from `first`."""
        found = []
        for part in self.parts:
            i, j = max(part.first, first), min(part.last, last)
            if i < j:
                squares = None if part.squares is None else part.squares[i - part.first : j - part.first]
                found.append(Part(i - first, j - first, squares, part.factor, part.least))
        return Scale(tuple(found))


ONES = Scale()
