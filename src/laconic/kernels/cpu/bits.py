"""Bit patterns of float32 inside Numba kernels."""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

u32 = np.uint32


@intrinsic
def float_bits(_context, _x):
    """The uint32 with the bit pattern of a float32."""

    def codegen(_context, builder, _signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@intrinsic
def bits_float(_context, _x):
    """The float32 with the bit pattern of a uint32."""

    def codegen(_context, builder, _signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.uint32), codegen


def widen(x):
    """A stored value as float32: float32 is itself, uint16 is the bit pattern of a bfloat16."""
    raise TypeError(f"widen() runs inside kernels only, got {type(x)}")


@overload(widen, inline="always")
def _widen(x):
    if isinstance(x, types.Float):
        return lambda x: x
    return lambda x: bits_float(u32(u32(x) << u32(16)))


@njit(nogil=True, cache=True)
def canonical_nan(x):
    """Every NaN becomes the same NaN, so that it is the same on the wire."""
    return np.float32(np.nan) if x != x else np.float32(x)
