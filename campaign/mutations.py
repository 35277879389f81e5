"""Mutations of bytes, and a pool of inputs guided by outcomes.

Kernels are compiled, so line coverage cannot guide the mutations. Instead, an input with an outcome not seen before is
kept and mutated further.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

INTERESTING = (0, 1, 2, 7, 8, 63, 64, 65, 127, 128, 255, 256, 32767, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
HUGE = (2**32, 2**47, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
FLOATS = (0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000, 0x00000001, 0x7F7FFFFF, 0xBF800000)
"""Bits of inf, -inf, NaN, -0, the smallest and the largest float32, -1."""


def mutate(data: bytes, rng: random.Random, words: tuple[bytes, ...] = (), longest: int = 2**16) -> bytes:
    """Apply one to four changes, each at a random place; `words` are tokens of the format to insert."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(CHANGES if not words else (*CHANGES, *[_word(words)] * 6))(made, rng)
    return bytes(made[:longest])


def _place(data: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(data)) if data else 0


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 2, 8, 100))):
        if data:
            data[_place(data, rng)] = rng.choice((0, 255, 127, 128, rng.randrange(256)))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _delete(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 64)))


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = data[at : at + rng.choice((1, 4, 16, 256))] * rng.choice((1, 2, 16))


def _number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((2, 4, 4, 8))
    value = rng.choice((*INTERESTING, *FLOATS, *(HUGE if size == 8 else ())))
    at = _place(data, rng) // size * size if rng.random() < 0.8 else _place(data, rng)
    room = len(data[at : at + size])
    data[at : at + size] = (value % 256**size).to_bytes(size, "little")[:room]


def _move(data: bytearray, rng: random.Random) -> None:
    a, b, size = _place(data, rng), _place(data, rng), rng.choice((1, 4, 8, 64))
    part = data[a : a + size]
    data[b : b + len(part)] = part[: max(0, len(data) - b)]


def _word(words: tuple[bytes, ...]) -> Callable[[bytearray, random.Random], None]:
    def change(data: bytearray, rng: random.Random) -> None:
        at = _place(data, rng)
        data[at : at + rng.choice((0, 0, 1, 3))] = rng.choice(words)

    return change


CHANGES = (_flip, _flip, _set, _set, _cut, _delete, _insert, _repeat, _number, _number, _move)


@dataclass(slots=True)
class Pool:
    """Inputs to mutate: those given, and mutants that had a new outcome."""

    given: list[bytes]
    most: int = 64
    outcomes: set[str] = field(default_factory=set)
    found: list[bytes] = field(default_factory=list)

    def draw(self, rng: random.Random) -> bytes:
        """An input; a third of the time one with a new outcome."""
        return rng.choice(self.found if self.found and rng.random() < 0.33 else self.given)

    def learn(self, data: bytes, outcome: str) -> None:
        """Keep an input if its outcome, ignoring numbers, is new."""
        kind = re.sub(r"[\d.]+|'.*?'", "#", outcome)[:200]
        if kind not in self.outcomes and len(self.found) < self.most:
            self.outcomes.add(kind)
            self.found.append(data)
