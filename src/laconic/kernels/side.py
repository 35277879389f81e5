"""The former name of `kernels.side_stream`."""

from laconic.kernels.side_stream import SideStream as Side

__all__ = ["Side"]
