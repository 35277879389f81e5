"""laconic: train on many machines, say less.

Unbiased gradient quantisation (NUQSGD, QSGD, QSGDInf, sign with error feedback), packed or entropy-coded.

    >>> import torch, laconic
    >>> codec = laconic.Codec(laconic.NUQSGD(bits=4))
    >>> payload = codec.encode(torch.randn(100_000))
    >>> round(payload.bits_per_coordinate, 1)
    4.1
"""

from typing import TYPE_CHECKING, Any

from laconic import training as _training
from laconic._version import __version__
from laconic.codec import Codec, Payload, codec
from laconic.coders import RANS, Coder, Elias, FixedWidth, Huffman, TableRANS
from laconic.errors import BackendUnavailable, CorruptPayload, ExchangeFailed, LaconicError
from laconic.exchange.topology import Complete, Custom, Exponential, Ring, Star, Torus
from laconic.kernels import Stream
from laconic.quantizers import Quantized, Quantizer
from laconic.quantizers import registry as _quantizers
from laconic.quantizers.registry import *  # noqa: F403 (that module lists them)
from laconic.training import *  # noqa: F403 (likewise)

if TYPE_CHECKING:
    from pathlib import Path

    from laconic.glm.estimators import CASGDClassifier, CASGDClassifierCV, CASGDRegressor, CASGDRegressorCV
    from laconic.glm.model import Model

__all__ = [
    "RANS",
    "BackendUnavailable",
    "CASGDClassifier",
    "CASGDClassifierCV",
    "CASGDRegressor",
    "CASGDRegressorCV",
    "Codec",
    "Coder",
    "Complete",
    "CorruptPayload",
    "Custom",
    "Elias",
    "ExchangeFailed",
    "Exponential",
    "FixedWidth",
    "Huffman",
    "LaconicError",
    "Payload",
    "Quantized",
    "Quantizer",
    "Ring",
    "Star",
    "Stream",
    "TableRANS",
    "Torus",
    "__version__",
    "codec",
    "load",
]
__all__ += _quantizers.__all__
__all__ += _training.__all__


def load(path: "str | Path") -> "Model":
    """A model written by `laconic fit` or an estimator's `save`, with `predict`, `predict_proba` and `coef`."""
    from laconic.glm.model import Model

    return Model.load(path)


def __dir__() -> list[str]:
    """The names here, those of the estimators included, so that notebooks complete them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import the estimators at first use: they need scikit-learn, which is optional."""
    if name.startswith("CASGD") and name in __all__:
        from laconic.extras import require

        require("sklearn", for_=name, extra="glm")
        from laconic.glm import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'laconic' has no attribute {name!r}")
