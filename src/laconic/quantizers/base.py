"""The interface of a lossy quantizer, and what the bucketed schemes share."""

import math
import struct
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from laconic.errors import LaconicError
from laconic.kernels import Backend, Grid, Norm, Stream, select
from laconic.kernels.layout import BLOCK_SIZE, n_blocks, n_buckets
from laconic.kernels.reference.elias import omega_encode
from laconic.options import check_int

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
MAX_BUCKET_SIZE = 2**31 - 1
OMEGA_SLOPE = 2.5
"""The omega code of k has at most 1 + 2.5 log₂ k bits."""
LARGEST_SHARE = 2 ** (1 / OMEGA_SLOPE - 1 / math.log(2))
"""Where x (1 + 2.5 log₂ (1/x)) is largest."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantized tensor: one symbol per value and one norm per bucket.

    symbols  (n,) uint8; int16 or int32 for `Identity`, int32 for `Dithered`
    norms    (n_buckets,) float32; empty for `Identity`, steps for `Dithered`
    key      of the random numbers that `dequantize` draws again; 0 if it draws none
    """

    symbols: Tensor
    norms: Tensor
    key: int = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantized):
            return NotImplemented
        pairs = ((self.symbols, other.symbols), (self.norms.view(torch.int32), other.norms.view(torch.int32)))
        same = all(a.device == b.device and torch.equal(a, b) for a, b in pairs)  # bit by bit: NaN is NaN
        return same and self.key == other.key

    def __hash__(self) -> int:
        return hash((self.symbols.numel(), self.norms.numel()))


class Quantizer(ABC):
    """Lossy map between values and symbols.

    A quantizer is frozen: what changes from call to call (randomness, error memory) is passed in.

    bits         width of a symbol
    bucket_size  values that share one norm
    unbiased     whether E[dequantize(quantize(v))] = v
    """

    name: ClassVar[str]
    wire_id: ClassVar[int]
    draws_again: ClassVar[bool] = False
    """Whether decoding draws the encoder's random numbers again, so that a payload carries their key."""
    unbiased: ClassVar[bool]
    bits: int
    bucket_size: int

    @abstractmethod
    def variance_bound(self, n: int) -> float:
        """Proved bound on E‖Q(v) − v‖² / ‖v‖² for n values."""

    def code_length_bound(self, n: int) -> float:
        """Proved bound on the expected bits of n finite values under `Elias`, norms included; ∞ where none is known."""
        return math.inf

    @abstractmethod
    def quantize(self, v: Tensor, stream: Stream = Stream(), *, backend: str = "auto") -> Quantized:  # noqa: B008
        """Values of any shape to symbols."""

    @abstractmethod
    def dequantize(self, quantized: Quantized, *, weight: float = 1.0, backend: str = "auto") -> Tensor:
        """Symbols to float32 values (n,), times `weight`."""

    def n_norms(self, n: int) -> int:
        """Number of norms for n values."""
        return n_buckets(n, self.bucket_size)

    @classmethod
    def examples(cls) -> "list[Quantizer]":
        """The configurations that every law is tested over."""
        return [cls()]

    @property
    def cut_size(self) -> int:
        """A tensor sent in parts may be cut at multiples of this many values."""
        return self.bucket_size

    @property
    def symbol_bits(self) -> int:
        """Width of a symbol on the wire; 0 if symbols have no fixed width."""
        return self.bits

    @property
    def fingerprint(self) -> int:
        """32-bit checksum of what, besides `bits`, determines the value of a symbol; 0 if nothing does.

        It is in the header of a payload, so that a payload made with other levels is refused, not misread.
        """
        return 0

    @property
    def core(self) -> "Quantizer":
        """The quantizer that makes the symbols: itself, unless it wraps another."""
        return self

    def new_memory(self, v: Tensor) -> Tensor:
        """The initial error memory for values like `v`; empty if the quantizer keeps none."""
        return torch.empty(0, dtype=torch.float32, device=v.device)

    def require_memory(self, v: Tensor, memory: Tensor | None) -> Tensor | None:
        """Return `memory` if it fits `v`; otherwise raise an error that says what is expected."""
        if memory is not None and memory.numel():
            raise ValueError(
                f"{self.name} keeps no memory, got one of shape {tuple(memory.shape)}; "
                "leave it out, or wrap the quantizer in ErrorFeedback"
            )
        return memory

    def require_own(self, quantized: Quantized, dtype: torch.dtype = torch.uint8) -> None:
        """Raise `ValueError` unless the symbols' dtype and the number of norms are this quantizer's: kernels loop over
        the norms, and with too few of them some values would never be written."""
        n, norms = quantized.symbols.numel(), quantized.norms.numel()
        if quantized.symbols.dtype != dtype or norms != self.n_norms(n):
            raise ValueError(
                f"{self} makes {n} symbols of {dtype} with {self.n_norms(n)} norms, "
                f"got {quantized.symbols.dtype} with {norms}; dequantize with the quantizer that made them"
            )

    def backend_for(self, backend: str, device: torch.device) -> str:
        """The name of the backend that quantizes tensors on `device`, given the one asked for."""
        return backend


@dataclass(frozen=True, slots=True)
class Bucketed(Quantizer):
    """A scheme with one norm per bucket and a grid of levels, both defined by the subclass."""

    bits: int = 4
    bucket_size: int = 512

    min_bits: ClassVar[int] = 2
    max_bits: ClassVar[int] = 8
    unbiased: ClassVar[bool] = True
    norm: ClassVar[Norm]

    def __post_init__(self) -> None:
        for name, least, most in (("bits", self.min_bits, self.max_bits), ("bucket_size", 1, MAX_BUCKET_SIZE)):
            value = check_int(name, getattr(self, name), least, most, owner=self.name)
            object.__setattr__(self, name, value)  # a NumPy integer has another repr, and ranks compare reprs

    @classmethod
    def examples(cls) -> list[Quantizer]:
        return [cls(bits=bits) for bits in range(cls.min_bits, cls.max_bits + 1)]

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """Levels and how to round to them."""

    @property
    def fingerprint(self) -> int:
        """CRC-32 of norm and rounding, a byte each, and the levels in float32, little-endian."""
        levels = self.grid.levels
        return zlib.crc32(struct.pack(f"<BB{len(levels)}f", self.norm, self.grid.rounding, *levels))

    def quantize(self, v: Tensor, stream: Stream = Stream(), *, backend: str = "auto") -> Quantized:  # noqa: B008
        """Values of any shape to symbols and norms."""
        v = flat(v)
        kernels = select(self.backend_for(backend, v.device), v.device)
        norms = kernels.norms(v, self.bucket_size, self.norm)
        symbols = kernels.quantize(v, norms, self.grid, self.bucket_size, stream.key)
        return Quantized(symbols, norms, stream.key if self.draws_again else 0)

    def dequantize(self, quantized: Quantized, *, weight: float = 1.0, backend: str = "auto") -> Tensor:
        """(+ or −) level · (norm · weight), in float32."""
        self.require_own(quantized)
        device, key = quantized.symbols.device, (quantized.key,) if self.draws_again else ()
        kernels = select(self.backend_for(backend, device), device)
        return kernels.dequantize(quantized.symbols, quantized.norms * weight, self.grid, self.bucket_size, *key)

    def pack(
        self, kernels: Backend, v: Tensor, key: int, norms: Tensor, coded: Tensor, *rest: Any, **more: Any
    ) -> None:
        """Write norms and fixed-width symbols in one pass; a scale or a memory for the kernel in `rest` and `more`."""
        kernels.quantize_pack(v, self.norm, self.grid, self.bucket_size, key, norms, coded, *rest, **more)

    def unpack(self, kernels: Backend, coded: Tensor, norms: Tensor, keys: Tensor | None, *rest: Any) -> None:
        """Sum the values of P payloads in one pass; `rest` are further arguments of `Backend.unpack_dequantize`."""
        drawn: dict[str, Any] = {} if keys is None else {"keys": keys}
        kernels.unpack_dequantize(coded, norms, self.grid, self.bucket_size, *rest, **drawn)

    def code_length_bound(self, n: int) -> float:
        """Σ_j (L(j+1) − L(j)) K_j + … or its counterpart for sparse blocks, the smaller; derived in docs/quantizers.md.

        L(j) is the length of j's omega code, and K_j = Σ over buckets of min(d, √d / ℓ_j, 1 / ℓ_j² if ℓ_j ≤ 2 ℓ_{j−1})
        bounds the expected number of values at level ℓ_j or above. For the L2 norm only: with another, Σ r² may be d.

        >>> from laconic.quantizers import QSGD
        >>> round(QSGD(bits=4, bucket_size=8192).code_length_bound(8192) / 8192, 2)
        0.97
        """
        if self.norm != Norm.L2 or n == 0:
            return 0.0 if n == 0 else math.inf
        whole, rest = divmod(n, self.bucket_size)
        buckets = [(self.bucket_size, whole), (rest, int(rest > 0))]
        levels, lengths = self.grid.levels, [len(omega_encode(j)) for j in range(1, len(self.grid.levels) + 1)]
        above = [
            sum(count * min(d, math.sqrt(d) / hi, hi**-2.0 if hi <= 2 * lo else d) for d, count in buckets)
            for lo, hi in pairwise(levels)
        ]
        dense = n + above[0] + sum((b - a) * K for (a, b), K in zip(pairwise(lengths), above, strict=True))
        coded = min(above[0], LARGEST_SHARE * n)  # the number of non-zeros for which gaps cost most
        gaps = coded * (1 + OMEGA_SLOPE * math.log2(n / coded))
        sparse = 2 * above[0] + gaps + sum((b - a) * K for (a, b), K in zip(pairwise(lengths), above[1:], strict=False))
        per_block = 32 + 31, len(omega_encode(BLOCK_SIZE + 1))
        return 32 + 32 * self.n_norms(n) + n_blocks(n) * per_block[0] + min(dense, sparse + n_blocks(n) * per_block[1])

    def bucket_dimension(self, n: int) -> int:
        """Values in the largest bucket of n; bounds per bucket hold for the whole, since ‖v‖² adds up over buckets."""
        return min(check_int("n", n, 0), self.bucket_size)


def flat(v: Tensor) -> Tensor:
    """`v` as one contiguous row, after a check that it holds real floating-point numbers."""
    if not isinstance(v, Tensor):
        raise TypeError(_no_tensor(v))
    if v.dtype not in DTYPES:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        got = str(v.dtype).removeprefix("torch.")
        raise TypeError(f"cannot quantize a tensor of {got}; give one of {allowed}, for example tensor.float()")
    if v.layout != torch.strided:
        raise LaconicError(f"cannot quantize a tensor with layout {v.layout}; call .to_dense() first")
    if v.is_meta:
        raise LaconicError("cannot quantize a tensor on the device meta, which has no values; give one on cpu or cuda")
    return v.detach().resolve_neg().contiguous().view(-1)


def _no_tensor(v: object) -> str:
    module, name = type(v).__module__, type(v).__name__
    how = "from_numpy" if module == "numpy" else "tensor"
    return f"expected a torch.Tensor, got {module}.{name}; pass torch.{how}(v)"
