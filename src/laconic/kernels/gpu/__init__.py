"""Triton kernels: compiled at first use, one program per bucket, no host synchronisation.

Fixed-width symbols only. The variable-length coders (Elias, Huffman, rANS) and their histogram are those of
`kernels.reference`, on whatever device the symbols are, and slow; docs/performance.md says how fast a coder would have
to be. `FixedWidth` is the one to use there.

On tensors of the CPU these kernels run under `TRITON_INTERPRET=1` only, slowly, for tests.
"""

from laconic.kernels.gpu.decode import unpack_dequantize
from laconic.kernels.gpu.encode import quantize_pack, quantize_pack_feedback
from laconic.kernels.gpu.norms import norms
from laconic.kernels.gpu.steps import dequantize, pack, quantize, scale, unpack
from laconic.kernels.reference.bitstream import histogram
from laconic.kernels.reference.elias import elias_decode, elias_encode
from laconic.kernels.reference.fused import scale_by_root, total
from laconic.kernels.reference.huffman import huffman_decode, huffman_encode
from laconic.kernels.reference.rans import rans_decode, rans_encode

__all__ = [
    "dequantize",
    "elias_decode",
    "elias_encode",
    "histogram",
    "huffman_decode",
    "huffman_encode",
    "norms",
    "pack",
    "quantize",
    "quantize_pack",
    "quantize_pack_feedback",
    "rans_decode",
    "rans_encode",
    "scale",
    "scale_by_root",
    "total",
    "unpack",
    "unpack_dequantize",
]
