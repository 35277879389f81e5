"""Multiplication and division by m (`kernels.scaling`): of a whole vector, or of each bucket inside another kernel."""

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from torch import Tensor

from laconic.kernels import threads
from laconic.kernels.cpu.bits import bits_float, float_bits, prefetch, u32, u64
from laconic.kernels.scaling import Scale

f32 = np.float32
DIVIDE, MULTIPLY = np.bool_(True), np.bool_(False)
"""Operations of `scale_span`. Not literals, since Numba compiles a kernel for each literal argument."""


def spans(scale: Scale) -> tuple[Any, ...]:
    """A scale as kernels' arguments: where each part begins, and the last ends; the address of its squares, or 0; its
    factor; and its least square, or m itself without squares. The scale must outlive the kernel."""
    parts = scale.parts
    if not parts:
        return NO_SPANS
    bounds = [part.first for part in parts] + [part.last for part in parts[-1:]]
    addresses = [0 if part.squares is None else part.squares.data_ptr() for part in parts]
    least = [part.least**0.5 if part.squares is None else part.least for part in parts]
    factors = np.array([part.factor for part in parts], f32)
    return np.array(bounds, np.int64), np.array(addresses, np.uint64), factors, np.array(least, f32)


NO_SPANS = tuple(np.empty(0, dtype) for dtype in (np.int64, np.uint64, f32, f32))


@intrinsic
def _floats(_context, _address):
    """A pointer to the float32 values at an address."""

    def codegen(_context, builder, _signature, args):
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.uint64), codegen


@njit(nogil=True, cache=True, inline="always")
def _root(square, factor, least):
    return bits_float(u32(u32(float_bits(max(square * factor, least)) >> u32(1)) + u32(127 << 22)))


@njit(nogil=True, cache=True, error_model="numpy")
def _scale_by_root(values, squares, factor, least, inverse):
    for i in range(values.size):
        root = _root(squares[i], factor, least)
        values[i] = values[i] / root if inverse else values[i] * root


@njit(nogil=True, cache=True, error_model="numpy")
def _scale_by(values, m, inverse):
    for i in range(values.size):
        values[i] = values[i] / m if inverse else values[i] * m


@njit(nogil=True, cache=True)
def scale_span(x, first, spans, inverse):
    """Divide or multiply x, the values from index `first` on, by their m; the scale has at least one part."""
    bounds, addresses, factors, least = spans
    at, last = first, first + x.size
    k = np.searchsorted(bounds, at, side="right") - 1
    while at < last:
        stop = min(bounds[k + 1], last)
        part = x[at - first : stop - first]
        if addresses[k] == u64(0):
            _scale_by(part, least[k], inverse)
        else:
            squares = carray(_floats(u64(addresses[k] + u64(4 * (at - bounds[k])))), stop - at)
            if stop - at <= 1024:  # the next span's: processors detect longer streams only
                for i in range(stop - at, 2 * (stop - at), 16):
                    prefetch(squares, i)
            _scale_by_root(part, squares, factors[k], least[k], inverse)
        at, k = stop, k + 1


def scale_by_root(values: Tensor, squares: Tensor, factor: float, least: float, inverse: bool) -> None:
    """values *= ρ(max(factor · squares, least)), or values /= the same, in place and in one pass over memory."""
    x, v, numbers = values.numpy(), squares.numpy(), (f32(factor), f32(least), inverse)
    threads.run(lambda i, j: _scale_by_root(x[i:j], v[i:j], *numbers), len(x), len(x))


@njit(nogil=True, cache=True)
def _total(x, squared):
    lanes, whole, found = np.zeros(64, np.float64), x.size // 64 * 64, 0.0
    for i in range(0, whole, 64):
        for j in range(64):
            value = np.float64(x[i + j])
            lanes[j] += value * value if squared else value
    for lane in lanes:
        found += lane
    for i in range(whole, x.size):
        value = np.float64(x[i])
        found += value * value if squared else value
    return found


def total(values: Tensor, squared: bool) -> Tensor:
    """Σx or Σx² of float32 values (n,), in 64 float64 lanes: the same on every machine, for any number of threads."""
    return torch.tensor(_total(values.numpy(), squared), dtype=torch.float64)
