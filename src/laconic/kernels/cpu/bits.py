"""Bit patterns of float32, and random bits, inside Numba kernels.

The random numbers are those of `laconic.kernels.stream`; `reference/random.py` is their specification.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from laconic.kernels import stream

u32, u64 = np.uint32, np.uint64
GOLDEN, MIX_1, MIX_2 = u64(stream.GOLDEN), u64(stream.MIX_1), u64(stream.MIX_2)
HASH_1, HASH_2 = u32(stream.HASH_1), u32(stream.HASH_2)


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


@intrinsic
def trailing_zeros(_context, _x):
    """Number of trailing zero bits of a uint64; 64 for zero."""

    def codegen(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


@intrinsic
def prefetch(_context, _array, _index):
    """Prefetch the cache line of array[index], which may lie past its end."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        flags = [ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1)]
        kind = ir.FunctionType(ir.VoidType(), [address.type, *(flag.type for flag in flags)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind), [address, *flags])
        return context.get_dummy_value()

    return types.void(_array, types.int64), codegen


@intrinsic
def borrowed(_context, _array):
    """The array without reference counting, for arguments of a kernel, which the caller keeps alive.

    Numba counts the references to every slice, and two atomic additions take longer than 16 steps of a coder.
    """

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        array.meminfo = context.get_constant_null(types.MemInfoPointer(types.voidptr))
        array.parent = context.get_constant_null(types.pyobject)
        return array._getvalue()

    return _array(_array), codegen


def widen(x):
    """A stored value as float32: float32 is itself, uint16 is the bit pattern of a bfloat16."""
    raise TypeError(f"widen() runs inside kernels only, got {type(x)}")


@overload(widen, inline="always")
def _widen(x):
    if isinstance(x, types.Float):
        return lambda x: x
    return lambda x: bits_float(u32(u32(x) << u32(16)))


@njit(nogil=True, cache=True, inline="always")
def usable(norm):
    """Whether a norm or a step is one that values can be divided by: not zero, and finite."""
    return norm > np.float32(0) and norm < np.float32(np.inf)


@njit(nogil=True, cache=True, error_model="numpy")
def reciprocal(x):
    """A power of two g, by which values are multiplied first, and 1 / (x g), which is then within float32; 0 for ∞."""
    guard = np.float32(1)
    if x < np.float32(2.0**-62):
        guard = np.float32(2.0**64)
    elif x > np.float32(2.0**62):
        guard = np.float32(2.0**-64)
    return guard, np.float32(1) / (x * guard)


@njit(nogil=True, cache=True, inline="always")
def bucket_key(key, bucket):
    """The halves k0 (low) and k1 (high) of a bucket's key."""
    z = key + u64(bucket + 1) * GOLDEN
    z = (z ^ (z >> u64(30))) * MIX_1
    z = (z ^ (z >> u64(27))) * MIX_2
    z = z ^ (z >> u64(31))
    return u32(z & u64(0xFFFFFFFF)), u32(z >> u64(32))


@njit(nogil=True, cache=True, inline="always")
def hash32(offset, k0, k1):
    """32 random bits for an offset; every operation is cut back to 32 bits, or Numba would widen it to 64."""
    x = u32(offset + k0)
    x = u32(u32(x ^ u32(x >> u32(16))) * HASH_1)
    x = u32(u32(u32(x ^ u32(x >> u32(15))) ^ k1) * HASH_2)
    return u32(x ^ u32(x >> u32(15)))
