"""What a kernel may assume about where rows begin and end, so that it can read several numbers at a time."""

import torch

ALIGNMENTS = (16, 8, 4, 2)


def alignment(X: torch.Tensor) -> int:
    """The largest power of two, 16 at most, that divides both the length of a row and the way to the next.

    Triton itself looks for multiples of 16 alone; a matrix of 1000 columns would be read number by number.

    >>> alignment(torch.empty(3, 1000)), alignment(torch.empty(3, 28)), alignment(torch.empty(3, 7))
    (8, 4, 1)
    """
    return next((a for a in ALIGNMENTS if X.shape[1] % a == 0 and X.stride(0) % a == 0), 1)
