"""Coders: lossless maps between symbols and bytes."""

from laconic.coders.base import Coder, Shape, SymbolCoder
from laconic.coders.elias import Elias
from laconic.coders.fixed_width import FixedWidth
from laconic.coders.huffman import Huffman
from laconic.coders.rans import RANS, TableRANS

__all__ = ["CODERS", "RANS", "Coder", "Elias", "FixedWidth", "Huffman", "Shape", "SymbolCoder", "TableRANS", "by_name"]

CODERS: dict[str, type[SymbolCoder]] = {coder.name: coder for coder in (FixedWidth, Elias, Huffman, RANS)}
"""By the name used in command lines and configurations."""


def by_name(name: str) -> SymbolCoder:
    """The coder called `name`, with its default options.

    >>> by_name("rans")
    RANS()
    """
    if name not in CODERS:
        raise ValueError(f"unknown coder {name!r}; choose one of {', '.join(CODERS)}")
    return CODERS[name]()
