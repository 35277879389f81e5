"""Numba kernels: compiled at first use, cached on disk, threaded over buckets and blocks."""

import laconic.kernels.cpu.cache_folder  # first: kernels need its check
from laconic.kernels.cpu.blocks import histogram
from laconic.kernels.cpu.dither import cell_moments, dither_decode, dither_encode
from laconic.kernels.cpu.elias import elias_decode, elias_encode
from laconic.kernels.cpu.fused import dequantize, norms, pack, quantize, quantize_pack, scale, unpack, unpack_dequantize
from laconic.kernels.cpu.prefix import huffman_decode, huffman_encode
from laconic.kernels.cpu.rans import rans_decode, rans_encode
from laconic.kernels.cpu.rotation import rotate_dequantize, rotate_pack, rotate_quantize, unpack_rotate
from laconic.kernels.cpu.scaling import scale_by_root, total

TAKES_SCALE = True
"""Whether kernels that encode or decode take a `Scale` and apply it in the same pass."""
