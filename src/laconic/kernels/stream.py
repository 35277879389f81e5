"""Counter-based randomness: no generator, no hidden state, the same bits on every backend.

    key       = absorb(seed, rank, step, tensor)                    64 bits, once per tensor
    (k0, k1)  = halves of mix64(key + (bucket + 1) * GOLDEN)        once per bucket
    u         = hash32(offset; k0, k1)                              once per value, offset = index inside the bucket

`mix64` is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
`hash32` is two rounds of xor-shift and multiply on 32 bits with one half of the key before each round, so that two
streams are neither shifts nor permutations of each other; `kernels/reference/random.py` writes it out.
"""

import hashlib
from dataclasses import dataclass, replace

from laconic.options import check_int

GOLDEN = 0x9E3779B97F4A7C15
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
HASH_1, HASH_2 = 0x21F0AAAD, 0xD35A2D97
MASK_64 = 2**64 - 1


def mix64(z: int) -> int:
    """The SplitMix64 finaliser: a bijection of 64-bit integers in which every input bit moves every output bit.

    >>> hex(mix64(0x9E3779B97F4A7C15))
    '0xe220a8397b1dcdaf'
    """
    z = (z ^ (z >> 30)) * MIX_1 & MASK_64
    z = (z ^ (z >> 27)) * MIX_2 & MASK_64
    return z ^ (z >> 31)


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a random number comes from: (seed, rank, step, tensor), and the index of the value within the tensor.

    seed    chosen by the user, the same on all ranks
    rank    different on each rank, so that rounding errors average out
    step    the training step
    tensor  which tensor of the step, by number or by name

    >>> Stream(seed=1).key == Stream(seed=1).key, Stream(seed=1, rank=1).key == Stream(seed=1).key
    (True, False)
    """

    seed: int = 0
    rank: int = 0
    step: int = 0
    tensor: int | str = 0

    def __post_init__(self) -> None:
        for field in ("seed", "rank", "step"):
            object.__setattr__(self, field, check_int(field, getattr(self, field), 0, MASK_64))
        if not isinstance(self.tensor, str):
            number = check_int("tensor", self.tensor, -(2**63), MASK_64, hint=", or a name")
            object.__setattr__(self, "tensor", number)  # sums of NumPy integers would overflow

    @property
    def key(self) -> int:
        """The 64-bit key of this tensor's random numbers."""
        key = 0
        for position, field in enumerate((self.seed, self.rank, self.step, _number(self.tensor)), start=1):
            key = mix64(key ^ mix64((field + position * GOLDEN) & MASK_64))
        return key

    def at(self, *, step: int | None = None, tensor: int | str | None = None) -> "Stream":
        """The same seed and rank at another step or tensor."""
        return replace(self, step=self.step if step is None else step, tensor=self.tensor if tensor is None else tensor)


def _number(tensor: int | str) -> int:
    if isinstance(tensor, str):
        return int.from_bytes(hashlib.blake2b(tensor.encode(), digest_size=8).digest(), "little")
    return tensor & MASK_64
