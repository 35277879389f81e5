"""Canonical Huffman streams (Huffman 1952), code lengths up to 12 bits.

Only the lengths are sent. Codewords follow from them: symbols are sorted by (length, symbol), and each codeword is
the one before plus one, extended with zeros to its length. A symbol that does not occur has length 0. The lengths must
fill the code space, sum of 2**-length = 1, so that every bit string means something; the one exception is an alphabet
of a single symbol, whose codeword is the one bit `0`.

Bits and words as in `bitstream.py`.
"""

from torch import Tensor

from laconic.errors import CorruptPayload
from laconic.kernels.backend import Blocks
from laconic.kernels.reference.bitstream import BitReader, decode_blocks, encode_blocks, to_words

MAX_LENGTH = 12
"""Longest codeword in bits. Part of the wire format: decoders look codewords up in a table of 2**12 entries."""


def valid_lengths(lengths: Tensor) -> bool:
    """Whether the code lengths are those of a complete prefix code, or of a single symbol.

    >>> import torch
    >>> valid_lengths(torch.tensor([1, 2, 2])), valid_lengths(torch.tensor([0, 1])), valid_lengths(torch.tensor([2, 2]))
    (True, True, False)
    """
    used = [length for length in lengths.tolist() if length]
    if used == [1]:
        return True
    return max(used, default=99) <= MAX_LENGTH and sum(2 ** (MAX_LENGTH - length) for length in used) == 2**MAX_LENGTH


def canonical_codes(lengths: Tensor) -> dict[int, str]:
    """Codeword of each symbol that has one.

    >>> import torch
    >>> canonical_codes(torch.tensor([2, 1, 0, 2]))
    {1: '0', 0: '10', 3: '11'}
    """
    if not valid_lengths(lengths):
        raise ValueError(f"expected the code lengths of a complete prefix code of at most {MAX_LENGTH} bits")
    codes, code, previous = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths.tolist()) if length):
        code <<= length - previous
        codes[symbol] = f"{code:0{length}b}"
        code, previous = code + 1, length
    return codes


def huffman_encode(symbols: Tensor, lengths: Tensor) -> Blocks:
    """Symbols (n,) uint8 to blocks, by code `lengths` (uint8, 2**bits); every symbol that occurs has a length."""
    codes = canonical_codes(lengths)
    return encode_blocks(symbols, lambda block: to_words("".join(codes[symbol] for symbol in block)))


def huffman_decode(blocks: Blocks, n: int, lengths: Tensor) -> tuple[Tensor, int]:
    """Symbols (n,) uint8, and the index of the first corrupt block or -1."""
    symbols = {code: symbol for symbol, code in canonical_codes(lengths).items()}
    return decode_blocks(blocks, n, lambda words, n_symbols: _decode_block(words, n_symbols, symbols))


def _decode_block(words: list[int], n: int, symbols: dict[str, int]) -> list[int]:
    reader, decoded = BitReader.of(words), []
    for _ in range(n):
        code = reader.take(1)
        while code not in symbols:
            if len(code) == MAX_LENGTH:
                raise CorruptPayload(f"no codeword is {code}")
            code += reader.take(1)
        decoded.append(symbols[code])
    reader.close()
    return decoded
