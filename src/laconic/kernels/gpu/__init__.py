"""Triton kernels: compiled at first use, one program per bucket, no host synchronisation.

Codes of variable length: `RANS` and dither with `TableRANS` have kernels here. Symbols for Elias and Huffman are copied
to the host first (`coders.base`), and so those functions are the CPU's.

On tensors of the CPU these kernels run under `TRITON_INTERPRET=1` only, slowly, for tests.
"""

from laconic.kernels.cpu import elias_decode, elias_encode, huffman_decode, huffman_encode
from laconic.kernels.gpu.blocks import stamp
from laconic.kernels.gpu.decode import unpack_dequantize
from laconic.kernels.gpu.dither import (
    cell_moments,
    dither_decode,
    dither_decode_rows,
    dither_encode,
    dither_encode_into,
)
from laconic.kernels.gpu.encode import quantize_pack
from laconic.kernels.gpu.norms import norms
from laconic.kernels.gpu.rans import histogram, rans_decode, rans_encode
from laconic.kernels.gpu.rotation import rotate_dequantize, rotate_pack, rotate_quantize, unpack_rotate
from laconic.kernels.gpu.steps import dequantize, pack, quantize, scale, unpack
from laconic.kernels.reference.packing import scale_by_root, total
