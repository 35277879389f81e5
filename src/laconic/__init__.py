"""laconic: train on many machines, say less.

Unbiased gradient quantisation (NUQSGD, QSGD, QSGDInf, sign with error feedback), packed or entropy-coded.

    >>> import torch, laconic
    >>> codec = laconic.Codec(laconic.NUQSGD(bits=4))
    >>> payload = codec.encode(torch.randn(100_000))
    >>> round(payload.bits_per_coordinate, 1)
    4.0
"""

from laconic._version import __version__
from laconic.codec import Codec, Payload, codec
from laconic.coders import RANS, Coder, Elias, FixedWidth, Huffman
from laconic.errors import BackendUnavailable, CorruptPayload, ExchangeFailed, LaconicError
from laconic.kernels import Stream
from laconic.quantizers import NUQSGD, QSGD, ErrorFeedback, Identity, QSGDInf, Quantized, Quantizer, Sign
from laconic.training import (
    Disagreement,
    Policy,
    SimulatedWorkers,
    compress,
    load_state_dict,
    log_stats,
    state_dict,
    stats,
)

__all__ = [
    "NUQSGD",
    "QSGD",
    "RANS",
    "BackendUnavailable",
    "Codec",
    "Coder",
    "CorruptPayload",
    "Disagreement",
    "Elias",
    "ErrorFeedback",
    "ExchangeFailed",
    "FixedWidth",
    "Huffman",
    "Identity",
    "LaconicError",
    "Payload",
    "Policy",
    "QSGDInf",
    "Quantized",
    "Quantizer",
    "Sign",
    "SimulatedWorkers",
    "Stream",
    "__version__",
    "codec",
    "compress",
    "load_state_dict",
    "log_stats",
    "state_dict",
    "stats",
]
