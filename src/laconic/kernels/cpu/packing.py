"""Packing of one bucket; `reference/packing.py` states the layout.

Each component width has its own loop with constant shifts, so that it vectorises over bytes. A symbol's components are
taken from the low end by shifting the scratch symbols right, and put back by shifting them left.
"""

import numpy as np
from numba import njit

u8 = np.uint8
PADDING = 8
"""Scratch arrays of symbols are this much longer than the bucket, so that every row of the layout is whole."""


@njit(nogil=True, cache=True)
def copy(source, out):
    """out = source[: out.size]; Numba's own slice assignment is slower."""
    for j in range(out.size):
        out[j] = source[j]


@njit(nogil=True, cache=True)
def fill(out, value):
    """Set every element of `out` to `value`."""
    for j in range(out.size):
        out[j] = value


@njit(nogil=True, cache=True)
def _pack_4(s, out):
    n = out.size
    for j in range(n):
        out[j] = u8(u8(s[j] & u8(15)) | u8(s[n + j] << u8(4)))


@njit(nogil=True, cache=True)
def _pack_2(s, out):
    n = out.size
    for j in range(n):
        low = u8(u8(s[j] & u8(3)) | u8(u8(s[n + j] & u8(3)) << u8(2)))
        high = u8(u8(s[2 * n + j] & u8(3)) | u8(u8(s[3 * n + j] & u8(3)) << u8(2)))
        out[j] = u8(low | u8(high << u8(4)))


@njit(nogil=True, cache=True)
def _pack_1(s, out):
    n = out.size
    for j in range(n):
        a = u8(u8(s[j] & u8(1)) | u8(u8(s[n + j] & u8(1)) << u8(1)))
        b = u8(u8(s[2 * n + j] & u8(1)) | u8(u8(s[3 * n + j] & u8(1)) << u8(1)))
        c = u8(u8(s[4 * n + j] & u8(1)) | u8(u8(s[5 * n + j] & u8(1)) << u8(1)))
        d = u8(u8(s[6 * n + j] & u8(1)) | u8(u8(s[7 * n + j] & u8(1)) << u8(1)))
        out[j] = u8(u8(a | u8(b << u8(2))) | u8(u8(c | u8(d << u8(2))) << u8(4)))


@njit(nogil=True, cache=True)
def _shift_down(s, width):
    if width == 4:
        for j in range(s.size):
            s[j] = u8(s[j] >> u8(4))
    else:
        for j in range(s.size):
            s[j] = u8(s[j] >> u8(2))


@njit(nogil=True, cache=True)
def pack_bucket(symbols, n, bits, out):
    """Pack symbols[:n] into `out`. Overwrites `symbols`, which is n + PADDING long."""
    if bits == 8:
        copy(symbols, out)
        return
    fill(symbols[n:], u8(0))
    first = 0
    for width in (4, 2, 1):
        if bits & width:
            last = first + (n * width + 7) // 8
            field = out[first:last]
            if width == 4:
                _pack_4(symbols, field)
            elif width == 2:
                _pack_2(symbols, field)
            else:
                _pack_1(symbols, field)
            if bits & (width - 1):
                _shift_down(symbols, width)
            first = last


@njit(nogil=True, cache=True)
def _unpack_4(data, s):
    n = data.size
    for j in range(n):
        s[j] = u8(u8(s[j] << u8(4)) | u8(data[j] & u8(15)))
    for j in range(n):
        s[n + j] = u8(u8(s[n + j] << u8(4)) | u8(data[j] >> u8(4)))


@njit(nogil=True, cache=True)
def _unpack_2(data, s):
    n = data.size
    for j in range(n):
        s[j] = u8(u8(s[j] << u8(2)) | u8(data[j] & u8(3)))
    for j in range(n):
        s[n + j] = u8(u8(s[n + j] << u8(2)) | u8(u8(data[j] >> u8(2)) & u8(3)))
    for j in range(n):
        s[2 * n + j] = u8(u8(s[2 * n + j] << u8(2)) | u8(u8(data[j] >> u8(4)) & u8(3)))
    for j in range(n):
        s[3 * n + j] = u8(u8(s[3 * n + j] << u8(2)) | u8(data[j] >> u8(6)))


@njit(nogil=True, cache=True)
def _unpack_1(data, s):
    n = data.size
    for place in range(8):
        bit = u8(1 << place)
        row = s[place * n : (place + 1) * n]
        for j in range(n):
            row[j] = u8(u8(row[j] << u8(1)) | (u8(1) if u8(data[j] & bit) else u8(0)))


@njit(nogil=True, cache=True)
def packed_size(n, bits):
    """`layout.packed_bucket_bytes`."""
    total = 0
    for width in (8, 4, 2, 1):
        if bits & width:
            total += (n * width + 7) // 8
    return total


@njit(nogil=True, cache=True)
def unpack_bucket(data, n, bits, symbols):
    """Unpack into symbols[:n]; `symbols` is n + PADDING long."""
    if bits == 8:
        copy(data, symbols[:n])
        return
    fill(symbols, u8(0))
    last = data.size
    for width in (1, 2, 4):
        if bits & width:
            first = last - (n * width + 7) // 8
            field = data[first:last]
            if width == 4:
                _unpack_4(field, symbols)
            elif width == 2:
                _unpack_2(field, symbols)
            else:
                _unpack_1(field, symbols)
            last = first
