"""Quantizers: lossy, values to symbols and back."""

from laconic.quantizers.base import Bucketed, Quantized, Quantizer
from laconic.quantizers.error_feedback import ErrorFeedback
from laconic.quantizers.identity import Identity
from laconic.quantizers.names import NAMES, by_name
from laconic.quantizers.nuqsgd import NUQSGD
from laconic.quantizers.qsgd import QSGD
from laconic.quantizers.qsgdinf import QSGDInf
from laconic.quantizers.sign import Sign

__all__ = [
    "NAMES",
    "NUQSGD",
    "QSGD",
    "Bucketed",
    "ErrorFeedback",
    "Identity",
    "QSGDInf",
    "Quantized",
    "Quantizer",
    "Sign",
    "by_name",
]
