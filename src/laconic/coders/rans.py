"""Range asymmetric numeral systems: `RANS` with the symbols' own frequencies, `TableRANS` with laws of the format."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.coders.base import WORD_BYTES, BlockCoder, Coder, Shape, parse, write
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks, dither
from laconic.kernels.layout import BLOCK_SIZE, n_blocks, n_buckets, packed_bytes
from laconic.kernels.reference.rans import N_STATES, PRECISION, TOTAL, valid_frequencies

BUCKET = 8192
"""Symbols per bucket when they are packed into bytes."""


@dataclass(frozen=True, slots=True)
class RANS(BlockCoder):
    """Fractions of a bit per symbol: within a few tenths of a percent of the entropy (Duda 2013).

        bits of symbol s = log2(2**14 / f_s),    f_s about 2**14 * (share of s among the symbols)

    Narrow symbols are coded several at once, which is as many times faster: those of 1, 2 and 4 bits are packed into
    bytes as `FixedWidth` packs them, those of 3 bits as if they had 4, and a byte is coded by the product of its
    symbols' frequencies (`byte_frequencies`). The table holds the frequency f_s of each of the 2**bits symbols alone,
    uint16, summing to 2**14.

    Size: equal frequencies would cost `bits` bits per symbol and the f_s are optimal, so the symbols cost at most
    n * bits bits. Rounding the products costs less than 0.65 bits per byte. A coding step multiplies a state
    x >= 4 f by at most (2**14 / f)(1 + f / x), which adds at most log2(5 / 4) < 0.322 bits. So a byte costs less than
    one bit more, padding a bucket's last byte at most 8 * 14 bits, and each block starts with its 8 states of 32 bits.

    >>> from laconic.kernels import select
    >>> symbols, backend = torch.zeros(1000, dtype=torch.uint8), select("reference", torch.device("cpu"))
    >>> RANS().encode(symbols, Shape(n=1000, bits=4, bucket_size=512), backend).numel()      # 32 + 4 + 8 states
    68
    """

    name: ClassVar[str] = "rans"
    wire_id: ClassVar[int] = 3
    gpu_from: ClassVar[float] = 2**21

    def _table_bytes(self, bits: int) -> int:
        return 2 << bits

    def _n_coded(self, shape: Shape) -> int:
        return packed_bytes(shape.n, _digit_bits(shape.bits), BUCKET)

    def _max_bits(self, shape: Shape) -> int:
        n_bytes = self._n_coded(shape)
        filling = 8 * PRECISION * n_buckets(shape.n, BUCKET) if n_bytes < shape.n else 0
        return shape.n * shape.bits + n_bytes + filling + 32 * N_STATES * n_blocks(n_bytes)

    def _encode(self, symbols: Tensor, shape: Shape, backend: Backend) -> tuple[Tensor, Blocks]:
        self._require_alphabet(symbols, shape.bits)
        width = _digit_bits(shape.bits)
        data = symbols if width == 8 else backend.pack(symbols, width, BUCKET)
        counts = _digit_counts(backend.histogram(data, 8).cpu(), width)[: 2**shape.bits]
        filling = data.numel() * (8 // width) - shape.n  # zeros in the last byte
        counts[0] = (counts[0] - filling).clamp(min=int(filling > 0))
        frequencies = allocate(counts, TOTAL)
        blocks = backend.rans_encode(data, byte_frequencies(frequencies, width))
        return frequencies.to(torch.int16).view(torch.uint8), blocks

    def _decode(self, table: Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[Tensor, int]:
        frequencies = table.view(torch.int16).to(device="cpu", dtype=torch.int32)
        if not valid_frequencies(frequencies):
            raise CorruptPayload(f"rans: the table of frequencies does not sum to {TOTAL}")
        width = _digit_bits(shape.bits)
        data, bad = backend.rans_decode(blocks, self._n_coded(shape), byte_frequencies(frequencies, width))
        if width == 8 or bad >= 0:
            return data, bad
        symbols, rest = backend.unpack(data, shape.n, width, BUCKET), shape.n % BUCKET
        if rest * width % 8:
            last = backend.pack(symbols[shape.n - rest :], width, BUCKET)
            if not torch.equal(last, data[data.numel() - last.numel() :]):
                raise CorruptPayload("rans: what fills up the last byte is not zero")
        return symbols, bad


@dataclass(frozen=True, slots=True)
class TableRANS(Coder):
    """rANS whose laws depend on the dither and on one number per 512 values; no table is sent.

    It belongs to `Dithered`, whose kernels take values, not symbols: the law of a value's symbol depends on the random
    offset that both sides compute. `kernels/dither.py` gives the laws, `kernels/reference/dither.py` the blocks.
    Before them comes the number of the laws' shape, one byte, padded to four.
    """

    name: ClassVar[str] = "tables"
    wire_id: ClassVar[int] = 4
    fixed_size: ClassVar[bool] = False

    def max_bytes(self, shape: Shape) -> int:
        """Most bytes that n values can take: every value escaped twice."""
        whole, rest = divmod(shape.n, BLOCK_SIZE)
        n_words = whole * dither.max_words(BLOCK_SIZE) + (dither.max_words(rest) if rest else 0)
        return WORD_BYTES * (1 + n_blocks(shape.n) + n_words) if shape.n else 0

    def min_bytes(self, shape: Shape) -> int:
        """The size and the states of each block."""
        return WORD_BYTES * (1 + n_blocks(shape.n) * (1 + dither.N_STATES)) if shape.n else 0

    def join(self, shape: int | Tensor, blocks: Blocks) -> Tensor:
        """Bytes (uint8) of blocks coded by the laws of a shape, on the blocks' device."""
        return write(torch.as_tensor(shape, device=blocks[1].device).view(1).to(torch.uint8), blocks)

    def split(self, data: Tensor, n: int) -> tuple[int, Blocks]:
        """The inverse of `join` for n > 0 values; raises `CorruptPayload` if the data is invalid."""
        table, blocks = parse(data, n, 1, self.name)
        shape, n_shapes = int(table[0]), len(dither.SHAPES)
        if shape >= n_shapes:
            raise CorruptPayload(f"{self.name}: there are {n_shapes} shapes of laws, the payload asks for {shape}")
        return shape, blocks


def _digit_bits(bits: int) -> int:
    """Bits that a symbol takes in a byte: the next of 1, 2, 4 and 8."""
    return next(width for width in (1, 2, 4, 8) if bits <= width)


def _digit_counts(counts: Tensor, width: int) -> Tensor:
    """(2**width,): counts of the symbols in bytes that have these counts.

    >>> _digit_counts(torch.tensor([2, 0, 0, 0] + 252 * [0]), 4)[:2].tolist()
    [4, 0]
    """
    byte, found = torch.arange(256, device=counts.device), counts.new_zeros(1 << width)
    for shift in range(0, 8, width):
        found.index_add_(0, byte >> shift & (1 << width) - 1, counts)
    return found


def byte_frequencies(frequencies: Tensor, width: int) -> Tensor:
    """(256,) int32 that sum to TOTAL: frequencies of bytes of 8 / width independent symbols with these `frequencies`.

    Products are rounded to the nearest, but non-zero ones to at least 1; then slots are taken from the largest or given
    to it, one after another, until the sum is right. Products of float64 are the same on every machine.

    >>> byte_frequencies(torch.tensor([12288, 4096]), 1)[[0, 255]].tolist()
    [1639, 1]
    """
    p = np.zeros(1 << width)
    p[: frequencies.numel()] = frequencies.numpy() / TOTAL
    product = p
    for _ in range(8 // width - 1):
        product = np.multiply.outer(p, product).ravel()
    f = np.maximum(np.floor(product * TOTAL + 0.5), product > 0).astype(np.int64)
    for _ in range(abs(int(f.sum()) - TOTAL)):
        f[f.argmax()] += 1 if f.sum() < TOTAL else -1
    return torch.from_numpy(f.astype(np.int32))


def allocate(counts: Tensor, total: int) -> Tensor:
    """Integers f >= 1 for the symbols that occur, 0 for the others, that sum to `total` and minimise the code length.

        minimise  sum_s counts_s * log2(total / f_s)    subject to  sum_s f_s = total

    The proportional share, rounded, is corrected one slot at a time, each time where that costs least or gains most.
    The cost is convex in every f_s: when no move of one slot from a symbol to another helps, no allocation is better.

    counts  (n_symbols,) int64, not all 0, at most `total` of them not 0
    returns (n_symbols,) int32

    >>> allocate(torch.tensor([6, 0, 1, 1]), 16).tolist(), allocate(torch.tensor([10**9, 1]), 16).tolist()
    ([12, 0, 2, 2], [15, 1])
    """
    c = counts.cpu().numpy().astype(np.float64)
    occurs = c > 0
    f = np.where(occurs, np.maximum(np.rint(c * (total / c.sum())), 1), 0)
    while True:
        gain = np.where(f > 0, c * np.log1p(1 / np.maximum(f, 1)), -np.inf)  # of one slot more
        loss = np.where(f > 1, -c * np.log1p(-1 / np.maximum(f, 2)), np.inf)  # of one slot less
        most, least = gain.argmax(), loss.argmin()
        excess = f.sum() - total
        if excess == 0 and gain[most] <= loss[least] * (1 + 1e-12):
            return torch.from_numpy(f.astype(np.int32))
        if excess >= 0:
            f[least] -= 1
        if excess <= 0:
            f[most] += 1
