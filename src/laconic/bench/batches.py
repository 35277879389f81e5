"""Which samples a rank trains on: a random draw, the same for every way to train."""

from dataclasses import replace

import torch

from laconic.kernels import Stream


def batch_rows(n: int, batch_size: int, stream: Stream) -> torch.Tensor:
    """The rows (batch_size,) of a batch, out of n; another draw for every seed, rank and step of `stream`.

    >>> batch_rows(1000, 3, Stream(step=5)).equal(batch_rows(1000, 3, Stream(step=6)))
    False
    """
    return torch.randint(n, (batch_size,), generator=generator_of(replace(stream, tensor="rows")))


def generator_of(stream: Stream) -> torch.Generator:
    """A generator of the CPU for this stream; torch looks at no more than 32 bits of a seed, so they must be mixed."""
    return torch.Generator().manual_seed(stream.key % 2**32)
