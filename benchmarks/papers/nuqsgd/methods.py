"""The methods that the NUQSGD paper compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laconic.codec import Codec
from laconic.options import check_names
from laconic.quantizers import NUQSGD, QSGD, ErrorFeedback, Identity, QSGDInf, Quantizer, Sign

FULL = "fp32"
"""SuperSGD: every worker's gradient in full."""
METHODS = (FULL, "nuqsgd", "qsgd", "qsgdinf", "ef-sign")


@dataclass(frozen=True, slots=True)
class Method:
    """A name, a label for tables, and what is done to each worker's gradient."""

    name: str
    label: str
    quantizer: Quantizer

    @property
    def codec(self) -> Codec:
        """At fixed width."""
        return Codec(self.quantizer)

    @property
    def lossy(self) -> bool:
        """Whether anything is lost."""
        return self.name != FULL


def methods(names: Sequence[str], bits: int, bucket_size: int) -> list[Method]:
    """Methods by name; full precision is always there, and first.

    >>> [method.label for method in methods(["qsgd"], 4, 8192)]
    ['fp32', 'qsgd-4']
    """
    check_names(names, METHODS, "method")
    made: Mapping[str, Quantizer] = {
        FULL: Identity("fp32"),
        "nuqsgd": NUQSGD(bits=bits, bucket_size=bucket_size),
        "qsgd": QSGD(bits=bits, bucket_size=bucket_size),
        "qsgdinf": QSGDInf(bits=bits, bucket_size=bucket_size),
        "ef-sign": ErrorFeedback(Sign(bucket_size=bucket_size)),
    }
    chosen = [name for name in METHODS if name in names or name == FULL]
    labels = {name: name if name in (FULL, "ef-sign") else f"{name}-{bits}" for name in chosen}
    return [Method(name, labels[name], made[name]) for name in chosen]
