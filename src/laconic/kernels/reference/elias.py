"""Elias omega streams of sign-magnitude symbols (Elias 1975; the sparse form is that of QSGD and NUQSGD).

A symbol of k bits is sign << (k - 1) | level. Its *magnitude* m is the level, and every symbol has a code:

    k = 1        m = symbol, and there is no sign bit
    k > 1        m = level, except that negative zero (sign 1, level 0), which no quantizer writes, has m = 2**(k - 1),
                 one past the largest level, and so costs the other symbols nothing

    dense block      for every symbol: omega(m + 1), then the sign bit if m > 0
    sparse block     omega(n_nonzero + 1), then for every symbol other than 0: omega(zeros before it + 1), sign bit,
                     omega(m); zeros after the last one are not written

Bits and words as in `bitstream.py`.
"""

from functools import partial

import torch

from laconic.errors import CorruptPayload
from laconic.kernels.backend import Blocks
from laconic.kernels.reference.bitstream import BitReader, decode_blocks, encode_blocks, to_words


def omega_encode(n: int) -> str:
    """The omega code of n >= 1: n in binary, before it the number of its bits less one, and so on; then a 0.

    >>> [omega_encode(n) for n in (1, 2, 4, 16)]
    ['0', '100', '101000', '10100100000']
    """
    if n < 1:
        raise ValueError(f"the omega code is for integers from 1, got {n}")
    code = "0"
    while n > 1:
        group = f"{n:b}"
        code = group + code
        n = len(group) - 1
    return code


def take_omega(reader: BitReader) -> int:
    """The integer whose omega code comes next.

    >>> take_omega(BitReader("10100100000" + "111"))
    16
    """
    n = 1
    while reader.take(1) == "1":
        n = int("1" + reader.take(n), 2)
    return n


def split_symbol(symbol: int, bits: int) -> tuple[str, int]:
    """Sign bit as text (empty for one-bit symbols) and magnitude.

    >>> split_symbol(0b1011, 4), split_symbol(0b1000, 4), split_symbol(1, 1)
    (('1', 3), ('1', 8), ('', 1))
    """
    if bits == 1:
        return "", symbol
    sign, level = divmod(symbol, 2 ** (bits - 1))
    return str(sign), 2 ** (bits - 1) if sign and not level else level


def join_symbol(sign: str, magnitude: int, bits: int) -> int:
    """The inverse of `split_symbol`."""
    zero = 1 << (bits - 1)
    if bits == 1 and magnitude <= 1:
        return magnitude
    if magnitude < zero:
        return (zero if sign == "1" else 0) + magnitude
    if bits > 1 and magnitude == zero and sign == "1":
        return zero
    raise CorruptPayload(f"no symbol of {bits} bits has sign {sign!r} and magnitude {magnitude}")


def dense_codeword(symbol: int, bits: int) -> str:
    """What a dense block writes for one symbol."""
    sign, magnitude = split_symbol(symbol, bits)
    return omega_encode(magnitude + 1) + (sign if magnitude else "")


def sparse_codeword(symbol: int, bits: int) -> str:
    """What a sparse block writes for one symbol other than 0, after its run of zeros."""
    sign, magnitude = split_symbol(symbol, bits)
    return sign + omega_encode(magnitude)


def elias_encode(symbols: torch.Tensor, bits: int, dense: bool) -> Blocks:
    """Symbols (n,) uint8 below 2**bits to blocks."""
    return encode_blocks(symbols, partial(_encode_dense if dense else _encode_sparse, bits=bits))


def elias_decode(blocks: Blocks, n: int, bits: int, dense: bool) -> tuple[torch.Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    return decode_blocks(blocks, n, partial(_decode_dense if dense else _decode_sparse, bits=bits))


def _encode_dense(symbols: list[int], bits: int) -> list[int]:
    return to_words("".join(dense_codeword(symbol, bits) for symbol in symbols))


def _encode_sparse(symbols: list[int], bits: int) -> list[int]:
    positions = [i for i, symbol in enumerate(symbols) if symbol]
    parts = [omega_encode(len(positions) + 1)]
    for before, i in zip([-1, *positions], positions, strict=False):
        parts += [omega_encode(i - before), sparse_codeword(symbols[i], bits)]
    return to_words("".join(parts))


def _decode_dense(words: list[int], n: int, bits: int) -> list[int]:
    reader, symbols = BitReader.of(words), []
    for _ in range(n):
        magnitude = take_omega(reader) - 1
        sign = reader.take(1) if magnitude and bits > 1 else ""
        symbols.append(join_symbol(sign, magnitude, bits))
    reader.close()
    return symbols


def _decode_sparse(words: list[int], n: int, bits: int) -> list[int]:
    reader, symbols = BitReader.of(words), [0] * n
    n_nonzero, i = take_omega(reader) - 1, -1
    if n_nonzero > n:
        raise CorruptPayload(f"{n_nonzero} symbols in a block of {n}")
    for _ in range(n_nonzero):
        i += take_omega(reader)
        if i >= n:
            raise CorruptPayload("a run of zeros goes past the end of the block")
        sign = reader.take(1) if bits > 1 else ""
        symbols[i] = join_symbol(sign, take_omega(reader), bits)
    reader.close()
    return symbols
