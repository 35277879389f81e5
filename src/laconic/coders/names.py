"""Coders by name, as they are written on a command line and in a configuration."""

from laconic.coders.base import Coder
from laconic.coders.elias import Elias
from laconic.coders.fixed_width import FixedWidth
from laconic.coders.huffman import Huffman
from laconic.coders.rans import RANS

CODERS: dict[str, type[Coder]] = {coder.name: coder for coder in (FixedWidth, Elias, Huffman, RANS)}


def by_name(name: str) -> Coder:
    """The coder called `name`, as it is by default.

    >>> by_name("rans")
    RANS()
    """
    if name not in CODERS:
        raise ValueError(f"unknown coder {name!r}; choose one of {', '.join(CODERS)}")
    return CODERS[name]()
