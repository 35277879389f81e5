"""Quantizers: lossy, values to symbols and back."""

from laconic.quantizers import registry
from laconic.quantizers.base import Bucketed, Quantized, Quantizer
from laconic.quantizers.registry import *  # noqa: F403 (each is listed there, and only there)
from laconic.quantizers.registry import NAMES, SCHEMES, by_name

__all__ = ["NAMES", "SCHEMES", "Bucketed", "Quantized", "Quantizer", "by_name"]
__all__ += registry.__all__
