"""Coders: lossless maps between symbols and bytes."""

from laconic.coders.base import Coder, Shape
from laconic.coders.elias import Elias
from laconic.coders.fixed_width import FixedWidth
from laconic.coders.huffman import Huffman
from laconic.coders.names import by_name
from laconic.coders.rans import RANS

__all__ = ["RANS", "Coder", "Elias", "FixedWidth", "Huffman", "Shape", "by_name"]
