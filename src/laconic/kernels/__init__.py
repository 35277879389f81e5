"""Kernels: arrays in, arrays out. `reference` is the specification; `cpu` and `gpu` must agree with it bit for bit."""

from laconic.kernels.backend import BACKENDS, Backend, Blocks, DeviceBackend, Number, require_gpu, select
from laconic.kernels.grid import Grid, Norm, Rounding
from laconic.kernels.scaling import ONES, Part, Scale
from laconic.kernels.stream import Stream

__all__ = [
    "BACKENDS",
    "ONES",
    "Backend",
    "Blocks",
    "DeviceBackend",
    "Grid",
    "Norm",
    "Number",
    "Part",
    "Rounding",
    "Scale",
    "Stream",
    "require_gpu",
    "select",
]
