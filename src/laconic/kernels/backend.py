"""The interface of a kernel backend, and the choice among backends.

A backend is a module: `kernels.reference` (plain torch, the specification), `kernels.cpu` (Numba), `kernels.gpu`
(Triton).
"""

import importlib
import importlib.util
import os
from functools import cache
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from laconic.errors import BackendUnavailable, Option
from laconic.kernels.grid import Grid, Norm

BACKENDS = ("auto", "reference", "cpu", "gpu")

Number = float | Tensor
Blocks = tuple[Tensor, Tensor]
"""A coded stream: words per block (int32, n_blocks) and the blocks' 32-bit words one after another (int32)."""


class Backend(Protocol):
    """Arrays in, arrays out. Shapes: v (n,), norms (n_buckets,), symbols (n,) uint8, packed bytes (n_bytes,) uint8."""

    __name__: str

    def norms(self, v: Tensor, bucket_size: int, norm: Norm) -> Tensor:
        """One float32 norm per bucket."""

    def quantize(self, v: Tensor, norms: Tensor, grid: Grid, bucket_size: int, key: int) -> Tensor:
        """Round |v| / norm to the grid, stochastically; symbol = sign bit, then level."""

    def dequantize(self, symbols: Tensor, norms: Tensor, grid: Grid, bucket_size: int) -> Tensor:
        """Symbols back to float32 values."""

    def pack(self, symbols: Tensor, bits: int, bucket_size: int) -> Tensor:
        """`bits` bits per symbol, bucket by bucket."""

    def unpack(self, data: Tensor, n: int, bits: int, bucket_size: int) -> Tensor:
        """The inverse of `pack`."""

    def quantize_pack(
        self, v: Tensor, norm: Norm, grid: Grid, bucket_size: int, key: int, norms_out: Tensor, data_out: Tensor
    ) -> None:
        """`norms`, `quantize` and `pack` in one pass over memory."""

    def unpack_dequantize(
        self, data: Tensor, norms: Tensor, grid: Grid, bucket_size: int, out: Tensor, weight: float, accumulate: bool
    ) -> None:
        """out = weight * sum of values, or out += the same, in one pass over memory.

        data (P, n_bytes) and norms (P, n_buckets) are those of P payloads of n values each; rows may be strided.
        """

    def scale(self, values: Tensor, out: Tensor, weight: float, accumulate: bool) -> None:
        """out = weight * values, or out += weight * values; `values` (n,) float32 or bfloat16, `out` (n,) float32."""

    def scale_by_root(self, values: Tensor, squares: Tensor, factor: Number, least: Number, inverse: bool) -> None:
        """values *= ρ(max(factor · squares, least)), or values /= the same, in place; ρ is √ to within 6 %."""

    def total(self, values: Tensor, squared: bool) -> Tensor:
        """Σx or Σx² of float32 values (n,) as a float64 number, summed in any order."""

    def histogram(self, symbols: Tensor, bits: int) -> Tensor:
        """Counts of the 2**bits symbols (int64)."""

    def elias_encode(self, symbols: Tensor, bits: int, dense: bool) -> Blocks:
        """Elias omega stream of sign-magnitude symbols."""

    def elias_decode(self, blocks: Blocks, n: int, bits: int, dense: bool) -> tuple[Tensor, int]:
        """Symbols and the index of the first corrupt block, or -1."""

    def huffman_encode(self, symbols: Tensor, lengths: Tensor) -> Blocks:
        """Canonical Huffman stream for code `lengths` (uint8, 2**bits)."""

    def huffman_decode(self, blocks: Blocks, n: int, lengths: Tensor) -> tuple[Tensor, int]:
        """Symbols and the index of the first corrupt block, or -1."""

    def rans_encode(self, symbols: Tensor, frequencies: Tensor) -> Blocks:
        """Interleaved rANS stream for `frequencies` (int32, 2**bits, summing to 2**14)."""

    def rans_decode(self, blocks: Blocks, n: int, frequencies: Tensor) -> tuple[Tensor, int]:
        """Symbols and the index of the first corrupt block, or -1."""

    def rotate_quantize(self, v: Tensor, bits: int, bucket_size: int, key: int) -> tuple[Tensor, Tensor]:
        """Values (n,) to symbols (n,) uint8 and scales (n_buckets,) float32."""

    def rotate_dequantize(self, symbols: Tensor, scales: Tensor, bits: int, bucket_size: int, key: int) -> Tensor:
        """Symbols back to float32 values."""

    def rotate_pack(
        self, v: Tensor, bits: int, bucket_size: int, key: int, scales_out: Tensor, data_out: Tensor
    ) -> None:
        """`rotate_quantize` and `pack` in one pass over memory."""

    def unpack_rotate(
        self,
        data: Tensor,
        scales: Tensor,
        keys: Tensor,
        bits: int,
        bucket_size: int,
        out: Tensor,
        weight: float,
        accumulate: bool,
    ) -> None:
        """out = weight * sum of the values of P payloads, or out += the same, in one pass.

        keys (P, 2) int32: the lower and upper half of each payload's key, as in its header.
        """

    def cell_moments(self, v: Tensor) -> Tensor:
        """(2, n_cells) float64: Σ|x| and Σx² of each cell of 512 values."""

    def dither_encode(self, v: Tensor, steps: Tensor, step_size: int, key: int, shape: int) -> Blocks:
        """Values (n,) to blocks; value i has the step steps[i // step_size], step_size a whole number of cells."""

    def dither_decode(
        self,
        blocks: Blocks,
        steps: Tensor,
        step_size: int,
        key: int,
        shape: int,
        out: Tensor,
        weight: float,
        accumulate: bool,
    ) -> int:
        """out = weight * values, or out += the same; returns the first corrupt block or -1."""


@runtime_checkable
class DeviceBackend(Protocol):
    """A backend that also codes dithered values into bounded memory and back without host synchronisation, and whose
    `quantize_pack` takes an error memory, `memory=`: v + memory is rounded, and memory = the part that was not sent."""

    def dither_encode_into(
        self, v: Tensor, steps: Tensor, step_size: int, key: int, shape: Tensor, out: Tensor
    ) -> Tensor:
        """Encode values as `TableRANS` into the words `out`, as far as they reach; returns its bytes, (1,) int64."""

    def dither_decode_rows(
        self,
        data: Tensor,
        lengths: Tensor,
        steps: Tensor,
        step_size: int,
        keys: Tensor,
        out: Tensor,
        weight: float,
        accumulate: bool,
    ) -> Tensor:
        """out = weight * sum of the values of P rows, or out += the same; returns which blocks were valid."""

    def stamp(
        self, out: Tensor, header: bytes, size: Tensor, checks: tuple[int, ...], size_at: int, check_at: int
    ) -> None:
        """Write a header with a size that only the device knows."""


def select(name: str, device: torch.device) -> Backend:
    """The backend called `name`; `auto` takes the fastest for `device`. A backend asked for by name never falls back.

    Rule of `auto`: Numba on the CPU, Triton on a GPU where it is installed, plain torch elsewhere.
    """
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    if name == "auto":
        name = "cpu" if device.type == "cpu" else "gpu" if device.type == "cuda" and _has_triton() else "reference"
    if name == "cpu" and device.type != "cpu":
        raise BackendUnavailable(f"backend 'cpu' needs tensors on the CPU, these are on {device}; use 'auto'")
    if name == "gpu":
        _require_triton(device)
    return cast(Backend, importlib.import_module(f"laconic.kernels.{name}"))


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _require_triton(device: torch.device) -> None:
    if not _has_triton():
        raise BackendUnavailable("backend 'gpu' needs Triton, which comes with CUDA builds of torch; use 'auto'")
    interpreted = device.type == "cpu" and os.environ.get("TRITON_INTERPRET", "0") == "1"
    if device.type != "cuda" and not interpreted:
        raise BackendUnavailable(
            f"backend 'gpu' needs tensors on a CUDA GPU, these are on {device}; use 'auto', "
            "or set TRITON_INTERPRET=1 to run its kernels on the CPU, slowly"
        )


def require_gpu(device: str | None) -> None:
    """Raise `BackendUnavailable` if a GPU was asked for and there is none; called before any data is read."""
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        asked = Option("device", device)
        raise BackendUnavailable(asked, ", but there is no CUDA GPU here; leave ", Option("device"), " out")
