"""Subtractive dither: a random offset that the receiver subtracts again."""

import math
import struct
import zlib
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic.errors import InvalidOption, Option
from laconic.kernels import Scale, Stream, select
from laconic.kernels.dither import CELL, N_SCALES, SHAPE_LIMITS, SHAPES, ZERO_SCALE, ZEROS, laws
from laconic.kernels.reference.dither import dither_bits, dither_offset, scaled
from laconic.options import check_int
from laconic.quantizers.base import MAX_BUCKET_SIZE, Quantized, Quantizer, flat

WHOLE = MAX_BUCKET_SIZE // CELL * CELL
"""The bucket size that stands for one step for all values."""
SMALLEST = 2.0**-149
"""Float32's smallest number above zero."""
ZERO = -(2**31)
"""Replaces k for the values of a cell of exact zeros."""
LEAST_BITS, MOST_BITS = 0.01, 8.0
SIDE_BITS = 0.012
"""Overhead of a payload in bits per value, beside its digits: scales of the cells and states of the coder."""


@dataclass(frozen=True, slots=True, repr=False)
class Dithered(Quantizer):
    """Subtractive dither: k = round(v/Δ + u) is sent, Δ (k − u) is decoded, u is uniform on (−1/2, 1/2).

    Both sides compute u from the stream's key, which travels in the header. The error is uniform on ±Δ/2 and
    independent of the value: unbiased, with variance exactly Δ²/12 per value. A *cell*, 512 values in a row, that is
    all zero is decoded as zeros, without error. One Δ for all values needs the fewest bits for a given squared error,
    since the entropy coder makes small values cheap. Give `error` or `bits`, not both.

    error        the normalised error E‖Q(v) − v‖² / ‖v‖²: Δ² = 12 · error · ‖v‖² / n, with n the values in cells that
                 are not all zero. By default 0.1
    bits         bits per value to spend; Δ follows from the values' magnitudes: to a few hundredths of a bit, up to 6
                 bits and for values like those of gradients. Fewer are spent beyond that, where most values are zero
                 and where a few are far larger than the rest
    bucket_size  values that share a Δ, a multiple of 512; by default all of a payload

    >>> import laconic
    >>> codec = laconic.Codec(Dithered(error=0.25))
    >>> payload = codec.encode(torch.randn(100_000))
    >>> round(payload.bits_per_coordinate, 1)
    1.5

    Nothing is clipped: values beyond 126.5 Δ are sent as they are, without error. Goodall 1951 and Roberts 1962 add and
    subtract the dither; Schuchman 1964 proves that its error is independent of the value.
    """

    error: float | None = None
    bits: float | None = None  # type: ignore[assignment]
    bucket_size: int = WHOLE

    name: ClassVar[str] = "dithered"
    wire_id: ClassVar[int] = 5
    symbol_bits: ClassVar[int] = 0
    draws_again: ClassVar[bool] = True
    unbiased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.error is not None and self.bits is not None:
            raise InvalidOption("dithered: give ", Option("error"), " or ", Option("bits"), ", not both")
        if self.bits is None:
            self._keep_number("error", 0.1 if self.error is None else self.error, 1e-9, 1e6)
        else:
            self._keep_number("bits", self.bits, LEAST_BITS, MOST_BITS)
        size = check_int("bucket_size", self.bucket_size, CELL, WHOLE, owner=self.name)
        if size % CELL:
            raise InvalidOption("dithered: ", Option("bucket_size"), f" must be a multiple of {CELL}; got {size}")
        object.__setattr__(self, "bucket_size", size)

    def _keep_number(self, name: str, value: Any, least: float, most: float) -> None:
        if type(value) is bool or not isinstance(value, Real) or not least <= float(value) <= most:
            allowed = f" must be a number from {least:g} to {most:g}; got {value!r}"
            raise InvalidOption("dithered: ", Option(name), allowed)
        object.__setattr__(self, name, float(value))

    def __repr__(self) -> str:
        given = f"error={self.error!r}" if self.bits is None else f"bits={self.bits!r}"
        return f"Dithered({given}{'' if self.bucket_size == WHOLE else f', bucket_size={self.bucket_size}'})"

    @classmethod
    def examples(cls) -> list[Quantizer]:
        return [cls(error=0.01), cls(error=0.3), cls(error=2.0), cls(bits=1.5), cls(error=0.1, bucket_size=512)]

    @property
    def cut_size(self) -> int:
        """The bucket size; with one step for all values, the cell size, and then each part has a step of its own."""
        return CELL if self.bucket_size == WHOLE else self.bucket_size

    def variance_bound(self, n: int) -> float:
        """The error asked for, attained where no value is beyond 126.5 Δ; ∞ (unknown) if `bits` was given."""
        return math.inf if self.error is None else self.error * (1 + 1e-6)

    @property
    def fingerprint(self) -> int:
        """CRC-32 of the shapes of its laws."""
        return zlib.crc32(struct.pack("<BBB", N_SCALES, ZERO_SCALE, ZEROS) + repr(SHAPES).encode())

    def steps(self, v: Tensor, backend: str = "auto", *scale: Scale) -> tuple[Tensor, int]:
        """Δ of each bucket, (n_norms,) float32, and the shape of the laws that code the values best.

        Cells of zeros have no error and are not counted in n. Δ is zero for a bucket of zeros and non-finite for one
        with a non-finite value. With a scale, v is divided by it first, in place.
        """
        n, moments = v.numel(), select(backend, v.device).cell_moments(v, *scale).cpu().numpy()
        shape, begins = shape_of(moments), np.arange(0, moments.shape[1], self.bucket_size // CELL)
        with np.errstate(all="ignore"):  # NumPy, since torch's threads would go on occupying the cores
            if self.bits is None:
                squares = np.add.reduceat(moments[1], begins) if n else moments[1]
                sizes = np.minimum(n - CELL * np.arange(moments.shape[1]), CELL) * (moments[1] != 0)
                counts = np.add.reduceat(sizes, begins) if n else moments[1]
                steps = np.sqrt(12 * float(self.error or 0) * squares / np.maximum(counts, 1))
            else:
                steps = np.array([step_for_bits(part, self.bits, shape) for part in np.split(moments, begins, 1)[1:]])
            steps = np.where(steps > 0, np.maximum(steps, SMALLEST), steps).astype(np.float32)
        return torch.from_numpy(steps).to(v.device), shape

    def steps_on_device(self, v: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        """`steps` from `error`, computed on the values' device without the host waiting; the shape is (1,) int32.

        v        n > 0 values
        moments  (2, n_cells) float64: Σ|x| and Σx² of each cell of v
        """
        magnitudes, squares = moments
        sizes = CELL * (squares != 0).double()
        sizes[-1:] *= ((v.numel() - 1) % CELL + 1) / CELL
        cells = self.bucket_size // CELL
        sums = torch.stack([squares, sizes])
        if self.bucket_size < v.numel():
            sums = torch.nn.functional.pad(sums, (0, -len(squares) % cells)).view(2, -1, cells)
        total, count = sums.sum(-1).view(2, -1)
        steps = (12 * float(self.error or 0) * total / count.clamp(min=1)).sqrt()
        steps = torch.where(steps > 0, steps.clamp(min=SMALLEST), steps).float()
        largest = (CELL * squares).sqrt().sum()
        ratio = torch.where((largest > 0) & largest.isfinite(), magnitudes.sum() / largest, 1.0)
        shape = sum(((ratio < limit).int() for limit in SHAPE_LIMITS), start=torch.zeros_like(ratio, dtype=torch.int32))
        return steps, shape.view(1)

    def quantize(self, v: Tensor, stream: Stream = Stream(), *, backend: str = "auto") -> Quantized:  # noqa: B008
        """k of each value, `ZERO` in cells of zeros, and the steps.

        Values beyond 126.5 Δ, which a codec sends as they are, are rounded too.
        """
        v = flat(v)
        steps, _ = self.steps(v, backend)
        if v.numel() == 0:
            return Quantized(torch.empty(0, dtype=torch.int32, device=v.device), steps, stream.key)
        q = dither_bits(stream.key, v.numel(), v.device)
        t, zeros = scaled(v, steps, self.bucket_size)
        k = (t + dither_offset(q)).round().clamp(-(2.0**30), 2.0**30).int()
        return Quantized(k.where(~zeros, ZERO), steps, stream.key)

    def dequantize(self, quantized: Quantized, *, weight: float = 1.0, backend: str = "auto") -> Tensor:
        """Δ (k − u) · weight."""
        self.require_own(quantized, torch.int32)
        k, n = quantized.symbols, quantized.symbols.numel()
        if n == 0:
            return torch.empty(0, device=k.device)
        u = dither_offset(dither_bits(quantized.key, n, k.device))
        steps = (quantized.norms * weight)[torch.arange(n, device=k.device) // self.bucket_size]
        return (k.float() - u).where(k != ZERO, 0.0) * steps


def shape_of(moments: np.ndarray) -> int:
    """The shape of the laws for cells with these moments (2, n_cells), by how much magnitudes vary within a cell."""
    largest = float(np.sqrt(CELL * moments[1]).sum())
    ratio = float(moments[0].sum()) / largest if largest > 0 and math.isfinite(largest) else 1.0
    return sum(ratio < limit for limit in SHAPE_LIMITS)


def step_for_bits(moments: np.ndarray, bits: float, shape: int) -> float:
    """Δ at which cells with these moments (2, n_cells) are expected to take `bits` bits per value under the laws.

    The bits fall as Δ grows; they are computed for a grid of Δ and interpolated.
    """
    square = float(moments[1].sum())
    rms = math.sqrt(square / (moments.shape[1] * CELL)) if math.isfinite(square) else square
    if rms == 0 or not math.isfinite(rms):
        return rms
    ratios = np.exp2(np.arange(-9.0, 10.0, 0.25))
    expected = laws(shape).bits
    log_means = np.log2(np.maximum(moments[0] / CELL, rms * 2.0**-40) / rms)
    sixteenths, counts = np.unique(np.rint(16 * log_means), return_counts=True)
    places = 2 * (sixteenths[None] / 16 - np.log2(ratios)[:, None]) + ZERO_SCALE
    spent = np.interp(places, np.arange(N_SCALES), expected) @ (counts / counts.sum()) + SIDE_BITS
    log_ratio = round(64 * float(np.interp(-bits, -spent, np.log2(ratios)))) / 64  # rounded: the same on every machine
    return float(rms * 2.0**log_ratio)
