"""Kernels over vectors of 16 float32 values, written in LLVM IR: butterflies, random signs, rounding to levels.

Numba's own loops give no vector code for sums and differences of neighbouring values. Each kernel here becomes the
instructions between its loads and stores, whatever the width of the machine's registers.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from laconic.kernels.reference.rotation import LANES, LEVELS, thresholds

N_LEVELS = 8
FLOATS, INTS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(ir.IntType(32), LANES)


def _within(builder, x):
    """The stages h = 1, 2, 4, 8 inside a vector of 16: neighbours, plus or minus the values themselves.

    A product with ± 1 is exact, so that it does not matter whether multiplication and addition are rounded apart.
    """
    kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
    muladd = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f32")
    for h in (1, 2, 4, 8):
        neighbours = builder.shuffle_vector(x, x, ir.Constant(INTS, [i ^ h for i in range(LANES)]))
        signs = ir.Constant(FLOATS, [-1.0 if i & h else 1.0 for i in range(LANES)])
        x = builder.call(muladd, [x, signs, neighbours])
    return x


def _between(builder, vectors):
    """The stages between vectors."""
    h = 1
    while h < len(vectors):
        for j in (j for j in range(len(vectors)) if not j & h):
            a, b = vectors[j], vectors[j + h]
            vectors[j], vectors[j + h] = builder.fadd(a, b), builder.fsub(a, b)
        h *= 2
    return vectors


def _places(context, builder, array_type, array, start, stride, n_vectors, kind=FLOATS):
    """Pointers to vectors that lie `stride` values apart in an array."""
    data, found = context.make_array(array_type)(context, builder, array).data, []
    for j in range(n_vectors):
        step = builder.mul(stride, ir.Constant(stride.type, j))
        found.append(builder.bitcast(builder.gep(data, [builder.add(start, step)]), kind.as_pointer()))
    return found


def _splat(builder, value, kind):
    lane = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, lane, ir.Constant(INTS, [0] * LANES))


def _signed(transform: bool, accumulate: bool) -> Any:
    """A kernel over 128 values from `start` on: out = ± source · factor, or out += the same.

    Vector j has as its signs the highest bits of hashes << (shift + j).

    transform  whether the first seven stages follow
    """

    @intrinsic
    def kernel(_context, source, out, _start, hashes, _shift, _factor):
        def codegen(context, builder, signature, args):
            given, target, first, rows, moved, times = args
            lanes, zero = ir.Constant(first.type, LANES), ir.Constant(first.type, 0)
            row = builder.load(_places(context, builder, signature.args[3], rows, zero, zero, 1, INTS)[0], align=4)
            row = builder.shl(row, _splat(builder, moved, INTS))
            times, minus = _splat(builder, times, FLOATS), ir.Constant(INTS, [0x80000000] * LANES)
            vectors = []
            for j, place in enumerate(_places(context, builder, signature.args[0], given, first, lanes, 8)):
                x = builder.fmul(builder.load(place, align=4), times)
                sign = builder.and_(builder.shl(row, ir.Constant(INTS, [j] * LANES)), minus)
                vectors.append(builder.bitcast(builder.xor(builder.bitcast(x, INTS), sign), FLOATS))
            if transform:
                vectors = _between(builder, [_within(builder, x) for x in vectors])
            places = _places(context, builder, signature.args[1], target, first, lanes, 8)
            for place, x in zip(places, vectors, strict=True):
                x = builder.fadd(builder.load(place, align=4), x) if accumulate else x
                builder.store(x, place, align=4)
            return context.get_dummy_value()

        return types.void(source, out, types.intp, hashes, types.uint32, types.float32), codegen

    return kernel


def _stages(n_vectors: int, within: bool) -> Any:
    """A kernel that does the stages between `n_vectors` vectors that lie `stride` values apart, in place.

    within  whether those inside each vector come first
    """

    @intrinsic
    def kernel(_context, array, _start, _stride):
        def codegen(context, builder, signature, args):
            given, start, stride = args
            places = _places(context, builder, signature.args[0], given, start, stride, n_vectors)
            vectors = [builder.load(place, align=4) for place in places]
            vectors = [_within(builder, x) for x in vectors] if within else vectors
            for place, x in zip(places, _between(builder, vectors), strict=True):
                builder.store(x, place, align=4)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp), codegen

    return kernel


def _rounding(bits: int) -> Any:
    """A kernel over 128 rotated values y · factor from `start` on: writes their symbols, returns Σ z · level."""
    floats, doubles = ir.FloatType(), ir.VectorType(ir.DoubleType(), LANES)

    def constant(value):
        return ir.Constant(FLOATS, [ir.Constant(floats, float(np.float32(value)))] * LANES)

    def word(value):
        return ir.Constant(INTS, [value] * LANES)

    def choose(builder, bits_of, items):
        """Of 2^j items, the one whose index has these j bits, the highest first."""
        if not bits_of:
            return constant(items[0])
        half = len(items) // 2
        low, high = (choose(builder, bits_of[1:], part) for part in (items[:half], items[half:]))
        return builder.select(bits_of[0], high, low)

    def rounded(builder, y, root_m):
        """Symbols and z · level of a vector; the level is found by bisection."""
        pattern = builder.bitcast(y, INTS)
        z = builder.fmul(builder.bitcast(builder.and_(pattern, word(0x7FFFFFFF)), FLOATS), root_m)
        found: list[Any] = []
        for depth in range(bits - 1):
            step = 1 << (bits - 2 - depth)
            marks = [thresholds(bits)[j - 1] for j in range(step, 1 << (bits - 1), 2 * step)]
            found.append(builder.fcmp_ordered(">=", z, choose(builder, found, marks)))
        level = choose(builder, found, LEVELS[bits])
        number = builder.and_(builder.bitcast(level, INTS), word(N_LEVELS - 1))
        negative = builder.fcmp_ordered("<", y, constant(0.0))
        sign = builder.select(negative, word(1 << (bits - 1)), word(0))
        return builder.or_(number, sign), builder.fmul(z, level)

    @intrinsic
    def kernel(_context, values, _start, _factor, _root, symbols):
        def codegen(context, builder, signature, args):
            given, start, factor, root_m, out = args
            lanes, sums = ir.Constant(start.type, LANES), []
            places = _places(context, builder, signature.args[0], given, start, lanes, 8)
            symbol_type = ir.VectorType(ir.IntType(8), LANES)
            targets = _places(context, builder, signature.args[4], out, start, lanes, 8, symbol_type)
            factor, root_m = _splat(builder, factor, FLOATS), _splat(builder, root_m, FLOATS)
            for place, target in zip(places, targets, strict=True):
                found, product = rounded(builder, builder.fmul(builder.load(place, align=4), factor), root_m)
                builder.store(builder.trunc(found, symbol_type), target, align=1)
                sums.append(builder.fpext(product, doubles))
            while len(sums) > 1:
                sums = [builder.fadd(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
            total, width = sums[0], LANES
            while width > 1:
                width //= 2
                ends = [ir.Constant(ir.VectorType(ir.IntType(32), width), [*range(i, i + width)]) for i in (0, width)]
                total = builder.fadd(*(builder.shuffle_vector(total, total, end) for end in ends))
            return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

        return types.float64(values, types.intp, types.float32, types.float32, symbols), codegen

    return kernel


first_7, put, put_added = _signed(True, False), _signed(False, False), _signed(False, True)
first_4, next_3, next_2, next_1 = _stages(1, True), _stages(8, False), _stages(4, False), _stages(2, False)
round_2, round_3, round_4 = _rounding(2), _rounding(3), _rounding(4)
