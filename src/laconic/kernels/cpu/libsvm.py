"""LIBSVM text, byte by byte: labels and the three arrays of a CSR matrix.

A buffer holds whole lines, so its last byte is a line end and no loop over bytes needs to look for the end of the
buffer. A number whose bits are not certain after one multiplication or division by a power of ten is *odd*: the kernel
notes where it is and the caller reads it again, slowly and exactly. Tokens that are not numbers are odd too.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from laconic.kernels.cpu.blocks import Array
from laconic.kernels.threads import run

u8, u64, i64 = np.uint8, np.uint64, np.int64

GOOD, NO_PAIR, UNSORTED, TOO_LARGE = 0, 1, 2, 3
MAX_INDEX = 2**31 - 2
DROPPED = 2**62
"""The slot of an odd value in a column that is not kept: read again only to see whether it is a number."""

_NEWLINE, _HASH, _COLON, _PLUS, _MINUS, _POINT, _ZERO = u8(10), u8(35), u8(58), u8(43), u8(45), u8(46), u8(48)
_NINE, _BLANK = u8(9), u8(32)
_POWERS = 10.0 ** np.arange(23)
_EXACT, _NEAR, _ODD = 0, 1, 2
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Lines:
    """The parsed lines of one stretch of text.

    labels     (n_rows,) float64
    row_ends   (n_rows,) int64, kept values up to the end of each row
    indices    (n_kept,) int32, as written
    values     (n_kept,) float32
    odd        slots to be read again and where their tokens start; slot i is values[i], slot -1 - i is labels[i]
    smallest, largest  index in any column, kept or not; 2**62 and -1 where there is none
    n_lines    line ends in the stretch
    error, position    GOOD, or what was wrong at which byte of the buffer; rows from there on are missing
    """

    labels: Array
    row_ends: Array
    indices: Array
    values: Array
    odd: tuple[Array, Array]
    smallest: int
    largest: int
    n_lines: int
    error: int
    position: int


def parse_lines(buffer: Array, cuts: list[int], low: int, high: int) -> list[Lines]:
    """Parse buffer[cuts[i] : cuts[i + 1]], each of whole lines, in parallel; keep indices from `low` to `high`.

    buffer  (n,) uint8; the byte before each cut but the first is a line end
    """
    pieces: list[Lines | None] = [None] * (len(cuts) - 1)

    def parse_range(first: int, last: int) -> None:
        for i in range(first, last):
            pieces[i] = _parse_piece(buffer, cuts[i], cuts[i + 1], low, high)

    run(parse_range, len(pieces), cuts[-1] - cuts[0])
    return [piece for piece in pieces if piece is not None]


def _parse_piece(buffer: Array, first: int, last: int, low: int, high: int) -> Lines:
    n_lines, n_colons = _count(buffer, first, last)
    labels, row_ends = np.empty(n_lines, np.float64), np.empty(n_lines, i64)
    indices, values = np.empty(n_colons, np.int32), np.empty(n_colons, np.float32)
    slots, starts = np.empty(n_lines + n_colons, i64), np.empty(n_lines + n_colons, i64)
    n_rows, n_kept, n_odd, smallest, largest, error, position = _parse(
        buffer, first, last, low, high, labels, row_ends, indices, values, slots, starts
    )
    odd = slots[:n_odd].copy(), starts[:n_odd].copy()
    arrays = labels[:n_rows], row_ends[:n_rows], indices[:n_kept], values[:n_kept]
    return Lines(*arrays, odd, smallest, largest, n_lines, error, position)


@njit(nogil=True, cache=True)
def _count(buffer, first, last):
    """Line ends and colons: upper bounds of the numbers of rows and of pairs."""
    n_lines, n_colons = 0, 0
    for i in range(first, last):
        n_lines += buffer[i] == _NEWLINE
        n_colons += buffer[i] == _COLON
    return n_lines, n_colons


@njit(nogil=True, cache=True)
def _skip_blanks(buffer, p):
    while buffer[p] == _BLANK or (buffer[p] >= _NINE and buffer[p] <= u8(13) and buffer[p] != _NEWLINE):
        p += u64(1)
    return p


@njit(nogil=True, cache=True)
def _ends_token(byte):
    return byte <= _BLANK or byte == _HASH


@njit(nogil=True, cache=True)
def _token_end(buffer, p):
    while not _ends_token(buffer[p]):
        p += u64(1)
    return p


@njit(nogil=True, cache=True)
def _after_line(buffer, p):
    while buffer[p] != _NEWLINE:
        p += u64(1)
    return u64(p + u64(1))


@njit(nogil=True, cache=True)
def _digits(buffer, p, number):
    """Append the digits at p to `number`; wraps round after 19 of them."""
    while u8(buffer[p] - _ZERO) <= _NINE:
        number = u64(u64(number * u64(10)) + u64(u8(buffer[p] - _ZERO)))
        p += u64(1)
    return number, p


@njit(nogil=True, cache=True)
def _leading_zeros(buffer, p):
    """Number of zeros before the first significant digit, on both sides of the point."""
    n = u64(0)
    while buffer[p] == _ZERO or buffer[p] == _POINT:
        n += u64(buffer[p] == _ZERO)
        p += u64(1)
    return n


@njit(nogil=True, cache=True)
def _exponent(buffer, p):
    """The power of ten written at p, far out of range if it is too long, and where it ends: at p if there is none."""
    if buffer[p] | u8(32) != u8(101):
        return i64(0), p
    start = u64(p + u64(1))
    if buffer[start] == _PLUS or buffer[start] == _MINUS:
        start += u64(1)
    power, end = _digits(buffer, start, u64(0))
    if end == start:
        return i64(0), p
    power = i64(power) if end - start <= u64(4) else i64(99999)
    return (-power if buffer[u64(start - u64(1))] == _MINUS else power), end


@njit(nogil=True, cache=True)
def _number(buffer, p):
    """The decimal number at p, whether it is the nearest float64, within 2**-52 of it, or odd, and where it ends."""
    negative = buffer[p] == _MINUS
    if negative or buffer[p] == _PLUS:
        p += u64(1)
    mantissa, point = _digits(buffer, p, u64(0))
    end, n_digits = point, u64(point - p)
    if buffer[point] == _POINT:
        mantissa, end = _digits(buffer, u64(point + u64(1)), mantissa)
        n_digits = u64(n_digits + u64(end - point) - u64(1))
        power = i64(point) + i64(1) - i64(end)
    else:
        power = i64(0)
    if n_digits > u64(19):
        n_digits = u64(n_digits - _leading_zeros(buffer, p))
    written, end = _exponent(buffer, end)
    power += written
    if n_digits == u64(0) or n_digits > u64(19) or power < -22 or power > 22 or not _ends_token(buffer[end]):
        return 0.0, _ODD, end
    value = np.float64(mantissa)
    value = value / _POWERS[-power] if power < 0 else value * _POWERS[power]
    sure = _EXACT if mantissa <= u64(2**53) else _NEAR
    return (-value if negative else value), sure, end


@njit(nogil=True, cache=True)
def _is_odd(value, sure):
    """Whether float32(value) might differ from the number as written, rounded to float64 and then to float32."""
    if sure == _EXACT:
        return abs(value) > _LARGEST
    if sure == _ODD or abs(value) > _LARGEST:
        return True
    return np.float32(value * (1 - 2.0**-51)) != np.float32(value * (1 + 2.0**-51))


@njit(nogil=True, cache=True)
def _is_qid(buffer, p):
    return (
        buffer[p] == u8(113)
        and buffer[u64(p + u64(1))] == u8(105)
        and buffer[u64(p + u64(2))] == u8(100)
        and buffer[u64(p + u64(3))] == _COLON
    )


@njit(nogil=True, cache=True)
def _parse(buffer, first, last, low, high, labels, row_ends, indices, values, odd_slots, odd_starts):
    p, end = u64(first), u64(last)
    n_rows, n_kept, n_odd, smallest, largest = u64(0), u64(0), u64(0), i64(DROPPED), i64(-1)
    while p < end:
        p = _skip_blanks(buffer, p)
        if buffer[p] == _NEWLINE or buffer[p] == _HASH:
            p = _after_line(buffer, p)
            continue
        start = p
        value, sure, p = _number(buffer, p)
        labels[n_rows] = value
        if sure != _EXACT:
            odd_slots[n_odd], odd_starts[n_odd] = -1 - i64(n_rows), i64(start)
            n_odd += u64(1)
            p = _token_end(buffer, start)
        previous = i64(-1)
        while True:
            p = _skip_blanks(buffer, p)
            if buffer[p] == _NEWLINE or buffer[p] == _HASH:
                p = _after_line(buffer, p)
                break
            start = p
            number, p = _digits(buffer, p, u64(0))
            index = i64(number)
            if p == start or buffer[p] != _COLON:
                if previous < 0 and _is_qid(buffer, start):
                    p = _token_end(buffer, start)
                    continue
                return n_rows, n_kept, n_odd, smallest, largest, NO_PAIR, i64(start)
            if p - start > u64(18) or index > MAX_INDEX:
                return n_rows, n_kept, n_odd, smallest, largest, TOO_LARGE, i64(start)
            if index <= previous:
                return n_rows, n_kept, n_odd, smallest, largest, UNSORTED, i64(start)
            if previous < 0:
                smallest = min(smallest, index)
            previous = index
            p += u64(1)
            start = p
            value, sure, p = _number(buffer, p)
            kept = index >= low and index <= high
            if _is_odd(value, sure):
                odd_slots[n_odd], odd_starts[n_odd] = (i64(n_kept) if kept else i64(DROPPED)), i64(start)
                n_odd += u64(1)
                p = _token_end(buffer, start)
                value = 0.0
            if kept:
                indices[n_kept], values[n_kept] = np.int32(index), np.float32(value)
                n_kept += u64(1)
        largest = max(largest, previous)
        row_ends[n_rows] = i64(n_kept)
        n_rows += u64(1)
    return n_rows, n_kept, n_odd, smallest, largest, GOOD, i64(0)
