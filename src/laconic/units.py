"""Format numbers with their units for people."""

import math
from typing import Literal

Unit = Literal["", "n", "s", "ms", "µs", "B", "kB", "MB", "M", "×", "%", "bits", "GB/s", "bit/s"]
"""The unit of a number: none, a count, seconds, bytes, a ratio, a share (0.01 is 1 %), bits, bytes or bits per second.
For seconds, bytes and bit/s a prefix is chosen; "ms", "µs", "kB", "MB" and "M" (millions) are for columns whose heading
names them."""

PREFIXES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "bit/s": ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s")),
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}
FIXED = {"ms": 1e3, "µs": 1e6, "kB": 1e-3, "MB": 1e-6, "M": 1e-6}


def shown(x: float | None, unit: Unit = "", digits: int = 3) -> str:
    """A number with `digits` significant digits and its unit; a dash for None.

    >>> shown(40.0, "n"), shown(0.5, "n"), shown(0.2724, "ms")
    ('40', '0.500', '272')
    >>> shown(0.2724, "s"), shown(25165824, "B"), shown(2.415, "×"), shown(0.005, "%"), shown(None), shown(1.6e-9)
    ('272 ms', '25.2 MB', '2.42 ×', '0.500 %', '–', '1.60e-9')
    """
    if x is None:
        return "–"
    if unit in PREFIXES:
        size, name = next((p for p in PREFIXES[unit] if abs(x) >= 0.9995 * p[0]), PREFIXES[unit][-1])
        return f"{_digits(x / size, digits)} {name if x else unit}"
    if unit in FIXED:
        return _digits(x * FIXED[unit], digits)
    if unit == "n" and x == int(x):
        return f"{x:,.0f}"
    scaled = 100 * x if unit == "%" else x
    unit = "" if unit == "n" else unit
    return f"{_digits(scaled, digits)} {unit}".rstrip()


def ranged(low: float, high: float, unit: Unit = "", digits: int = 3) -> str:
    """A range of numbers, with the unit once where both ends have the same.

    >>> ranged(0.265, 0.281, "s"), ranged(0.9e-3, 1.1e-3, "s"), ranged(2.1, 2.5, "×")
    ('265–281 ms', '900 µs–1.10 ms', '2.10–2.50')
    """
    if unit == "×":
        unit = ""
    (first, _, name), (last, _, other) = (shown(x, unit, digits).partition(" ") for x in (low, high))
    return f"{first}–{last} {name}".rstrip() if name == other else f"{first} {name}–{last} {other}"


def _digits(x: float, digits: int) -> str:
    if x == 0 or not math.isfinite(x):
        return "0" if x == 0 else f"{x}".replace("inf", "∞")
    if not 1e-4 <= abs(x) < 1e7:
        base, power = f"{x:.{digits - 1}e}".split("e")
        return f"{base}e{int(power)}"
    return f"{x:,.0f}" if abs(x) >= 10 ** (digits - 1) - 0.5 else f"{x:#.{digits}g}"
