"""Sizes and positions: buckets in a tensor, fields in a packed bucket, blocks in a coded stream.

Pure arithmetic, shared by every backend and by the wire format, so that each size is written down once.
"""

from functools import cache

BLOCK_SIZE = 65536
"""Symbols per independently coded block of a variable-length coder. Part of the wire format."""


def n_buckets(n: int, bucket_size: int) -> int:
    """Number of buckets of `bucket_size` that `n` values fill; the last may be short.

    >>> n_buckets(8193, 8192)
    2
    """
    return -(-n // bucket_size)


def n_blocks(n: int) -> int:
    """Number of coded blocks that `n` symbols fill."""
    return -(-n // BLOCK_SIZE)


@cache
def field_widths(bits: int) -> tuple[int, ...]:
    """Binary components of a symbol width, widest first: each divides a byte, so each packs without straddling.

    The widest component holds the lowest bits of the symbol.

    >>> field_widths(7), field_widths(4)
    ((4, 2, 1), (4,))
    """
    return tuple(w for w in (8, 4, 2, 1) if bits & w)


@cache
def packed_bucket_bytes(n: int, bits: int) -> int:
    """Bytes of one bucket of `n` packed symbols: each component is rounded up to whole bytes.

    >>> packed_bucket_bytes(8192, 3), packed_bucket_bytes(1, 3)
    (3072, 2)
    """
    return sum(-(-n * w // 8) for w in field_widths(bits))


def packed_bytes(n: int, bits: int, bucket_size: int) -> int:
    """Bytes of `n` symbols packed bucket by bucket.

    >>> packed_bytes(10000, 4, 8192)
    5000
    """
    full, rest = divmod(n, bucket_size)
    return full * packed_bucket_bytes(bucket_size, bits) + packed_bucket_bytes(rest, bits)
