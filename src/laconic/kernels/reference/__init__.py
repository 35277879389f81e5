"""Plain torch, mirroring the equations: slow, on any device, and the specification of every other backend."""

from laconic.kernels.reference.bitstream import histogram
from laconic.kernels.reference.dither import cell_moments, dither_decode, dither_encode
from laconic.kernels.reference.elias import elias_decode, elias_encode
from laconic.kernels.reference.huffman import huffman_decode, huffman_encode
from laconic.kernels.reference.packing import (
    pack,
    quantize_pack,
    scale,
    scale_by_root,
    total,
    unpack,
    unpack_dequantize,
)
from laconic.kernels.reference.rans import rans_decode, rans_encode
from laconic.kernels.reference.rotation import rotate_dequantize, rotate_pack, rotate_quantize, unpack_rotate
from laconic.kernels.reference.rounding import dequantize, norms, quantize
