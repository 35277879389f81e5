"""The coder of dithered values: rANS with laws that are fixed in the format."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from laconic.coders.base import WORD_BYTES, Coder, Shape
from laconic.coders.blocks import parse, write
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, Scale
from laconic.kernels.dither import N_STATES, SHAPES, max_words
from laconic.kernels.layout import BLOCK_SIZE, n_blocks

TABLE_BYTES = 1


@dataclass(frozen=True, slots=True)
class TableRANS(Coder):
    """rANS whose laws depend on the dither and on one number per 512 values; no table travels with the payload.

    It belongs to `Dithered` and takes values, not symbols: which law a value's symbol has follows from the random
    offset that both sides compute. `kernels/dither.py` gives the laws, `kernels/reference/dither.py` the bytes: the
    number of the laws' shape (one byte, filled up to four), then blocks as those of `RANS`.
    """

    name: ClassVar[str] = "tables"
    wire_id: ClassVar[int] = 4
    fixed_size: ClassVar[bool] = False

    def max_bytes(self, shape: Shape) -> int:
        """Most bytes `encode` can return: every value escaped twice."""
        whole, rest = divmod(shape.n, BLOCK_SIZE)
        n_words = whole * max_words(BLOCK_SIZE) + (max_words(rest) if rest else 0)
        return WORD_BYTES * (1 + n_blocks(shape.n) + n_words) if shape.n else 0

    def min_bytes(self, shape: Shape) -> int:
        """The size and the states of each block."""
        return WORD_BYTES * (1 + n_blocks(shape.n) * (1 + N_STATES)) if shape.n else 0

    def encode_values(
        self, v: torch.Tensor, steps: torch.Tensor, step_size: int, key: int, shape: int, backend: Backend
    ) -> torch.Tensor:
        """Values (n,) to bytes (uint8), on the same device; the arguments are those of `Backend.dither_encode`."""
        if v.numel() == 0:
            return torch.empty(0, dtype=torch.uint8, device=v.device)
        blocks = backend.dither_encode(v, steps, step_size, key, shape)
        return write(torch.as_tensor(shape, device=v.device).view(1).to(torch.uint8), blocks)

    def decode_values(
        self,
        data: torch.Tensor,
        steps: torch.Tensor,
        step_size: int,
        key: int,
        out: torch.Tensor,
        weight: float,
        accumulate: bool,
        backend: Backend,
        *scale: Scale,
    ) -> None:
        """out = weight * values, or out += the same; then out *= scale, if there is one.

        Raises `CorruptPayload` if the bytes are none of `encode_values`, and `out` is undefined then.
        """
        if out.numel() == 0:
            return
        table, blocks = parse(data, out.numel(), TABLE_BYTES, self.name)
        shape = int(table[0])
        if shape >= len(SHAPES):
            raise CorruptPayload(f"{self.name}: there are {len(SHAPES)} shapes of laws, the payload asks for {shape}")
        bad = backend.dither_decode(blocks, steps, step_size, key, shape, out, weight, accumulate, *scale)
        if bad >= 0:
            raise CorruptPayload(f"{self.name}: block {bad} of {n_blocks(out.numel())} is corrupt")
