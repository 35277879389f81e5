"""The contenders of the suite `exchange`: ways to average one tensor over ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.bench.options import require_known
from laconic.bench.schemes import BITS
from laconic.codec import Codec, codec
from laconic.exchange import AllReduce, Exchange, by_name
from laconic.quantizers import QSGD, QSGDInf

BASELINES = ("fp32 all_reduce", "bf16 all_reduce")


@dataclass(frozen=True, slots=True)
class Rival:
    """An exchange with the codec it carries.

    scheme  name it is asked for by
    codec   its codec with width and coder, by which it may be asked for, too
    """

    scheme: str
    codec: str
    exchange: str

    @property
    def label(self) -> str:
        """What its rows carry."""
        return self.exchange if self.exchange == "nothing" else f"{self.codec} {self.exchange}"

    @property
    def is_baseline(self) -> bool:
        """Whether it is the process group's own all-reduce, without laconic."""
        return self.label in BASELINES

    def make(self, bucket_size: int, size: int) -> tuple[Exchange, Codec]:
        """The exchange and its codec, for `size` ranks."""
        made = _codec(self.codec, bucket_size)
        return by_name(self.exchange, made, size), made


def _codec(name: str, bucket_size: int) -> Codec:
    """A codec by a name such as nuqsgd-4-rans.

    >>> _codec("nuqsgd-4-rans", 64)
    Codec(quantizer=NUQSGD(bits=4, bucket_size=64, p=0.5), coder=RANS(), backend='auto')
    """
    if name in ("fp32", "bf16"):
        return codec(name)
    if name == "ef-sign":
        return codec(name, bucket_size=bucket_size)
    scheme, bits, *coder = name.split("-")
    return codec(scheme, *coder, bits=int(bits), bucket_size=bucket_size)


RIVALS = (
    Rival("fp32", "fp32", AllReduce.name),
    Rival("bf16", "bf16", AllReduce.name),
    Rival("bf16", "bf16", "scatter_reduce"),
    *(
        Rival(scheme, f"{scheme}-{bits}", "scatter_reduce")
        for bits in BITS
        for scheme in ("nuqsgd", QSGD.name, QSGDInf.name)
    ),
    Rival("nuqsgd", "nuqsgd-4", "all_gather"),
    Rival("nuqsgd", "nuqsgd-4-rans", "scatter_reduce"),
    Rival("ef-sign", "ef-sign", "all_gather"),
    Rival("nothing", "fp32", "nothing"),
)
BY_LABEL = {rival.label: rival for rival in RIVALS}
ASKED_BY = tuple(dict.fromkeys([r.scheme for r in RIVALS] + [r.codec for r in RIVALS]))


def rivals(only: Sequence[str] | None) -> list[Rival]:
    """The baselines, and all whose scheme or codec is in `only`.

    >>> [rival.label for rival in rivals(["nuqsgd-4-rans"])]
    ['fp32 all_reduce', 'bf16 all_reduce', 'nuqsgd-4-rans scatter_reduce']
    """
    if only is None:
        return list(RIVALS)
    require_known(only, ASKED_BY, "codec")
    return [r for r in RIVALS if r.is_baseline or r.scheme in only or (r.codec in only and r.exchange != "nothing")]
