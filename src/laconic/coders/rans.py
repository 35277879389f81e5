"""Range asymmetric numeral systems."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from laconic.coders.base import Shape
from laconic.coders.blocks import BlockCoder
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Blocks
from laconic.kernels.layout import n_blocks
from laconic.kernels.reference.rans import N_STATES, TOTAL, valid_frequencies


@dataclass(frozen=True, slots=True)
class RANS(BlockCoder):
    """Fractions of a bit per symbol: within a few tenths of a percent of the entropy (Duda 2013).

        bits of symbol s = log2(2**14 / f_s),    f_s about 2**14 * (share of s among the symbols)

    The table is the frequency f_s of each of the 2**bits symbols, uint16, summing to 2**14. Size: equal frequencies
    would cost `bits` bits per symbol and the f_s are the best there are, so the symbols cost n * bits bits at most. A
    coding step multiplies a state x >= 4 f by at most (2**14 / f)(1 + f / x), so rounding adds at most log2(5 / 4) <
    0.322 bits per symbol; and each block starts with its 8 states of 32 bits.

    >>> from laconic.kernels import select
    >>> symbols, backend = torch.zeros(1000, dtype=torch.uint8), select("reference", torch.device("cpu"))
    >>> RANS().encode(symbols, Shape(n=1000, bits=4, bucket_size=512), backend).numel()      # 32 + 4 + 8 states
    68
    """

    name: ClassVar[str] = "rans"
    wire_id: ClassVar[int] = 3

    def _table_bytes(self, bits: int) -> int:
        return 2 << bits

    def _max_bits(self, shape: Shape) -> int:
        return shape.n * shape.bits + shape.n * 322 // 1000 + 32 * N_STATES * n_blocks(shape.n)

    def _encode(self, symbols: torch.Tensor, shape: Shape, backend: Backend) -> tuple[torch.Tensor, Blocks]:
        frequencies = allocate(backend.histogram(symbols, shape.bits), TOTAL)
        return frequencies.to(torch.int16).view(torch.uint8), backend.rans_encode(symbols, frequencies)

    def _decode(self, table: torch.Tensor, blocks: Blocks, shape: Shape, backend: Backend) -> tuple[torch.Tensor, int]:
        frequencies = table.view(torch.int16).to(device="cpu", dtype=torch.int32)
        if not valid_frequencies(frequencies):
            raise CorruptPayload(f"rans: the table of frequencies does not sum to {TOTAL}")
        return backend.rans_decode(blocks, shape.n, frequencies)


def allocate(counts: torch.Tensor, total: int) -> torch.Tensor:
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
        gain, loss = _gain_of_one_more(c, f), _loss_of_one_less(c, f)
        most, least = gain.argmax(), loss.argmin()
        excess = f.sum() - total
        if excess == 0 and gain[most] <= loss[least] * (1 + 1e-12):
            return torch.from_numpy(f.astype(np.int32))
        if excess >= 0:
            f[least] -= 1
        if excess <= 0:
            f[most] += 1


def _gain_of_one_more(c: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.where(f > 0, c * np.log1p(1 / np.maximum(f, 1)), -np.inf)


def _loss_of_one_less(c: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.where(f > 1, -c * np.log1p(-1 / np.maximum(f, 2)), np.inf)
