"""The contenders of the suite `ddp`: ways to average gradients."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from laconic.bench.options import require_known

BASELINES = ("DDP fp32", "DDP bf16 hook")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to average gradients, by plain values.

    hook      "fp32" (DDP as it is), "bf16" or "powersgd" (PyTorch's own hooks), or "laconic"
    scheme    of laconic's codec; with `coder` and `options` as in `laconic.codec`
    exchange  of laconic
    """

    hook: str
    scheme: str = ""
    coder: str = "fixed"
    exchange: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)


WAYS: dict[str, tuple[str, Way]] = {
    BASELINES[0]: ("fp32", Way("fp32")),
    BASELINES[1]: ("bf16", Way("bf16")),
    "DDP PowerSGD hook": ("powersgd", Way("powersgd")),
    "bf16": ("bf16", Way("laconic", "bf16")),
    "nuqsgd-4": ("nuqsgd", Way("laconic", "nuqsgd", options={"bits": 4})),
    "nuqsgd-4/512": ("nuqsgd", Way("laconic", "nuqsgd", options={"bits": 4, "bucket_size": 512})),
    "nuqsgd-4-rans": ("nuqsgd", Way("laconic", "nuqsgd", "rans", options={"bits": 4})),
    "qsgdinf-8": ("qsgdinf", Way("laconic", "qsgdinf", options={"bits": 8})),
    "ef-sign": ("ef-sign", Way("laconic", "ef-sign")),
    "nothing": ("nothing", Way("laconic", "fp32", exchange="nothing")),
}
"""Label to the name it is asked for by, and the way itself."""
ASKED_BY = tuple(dict.fromkeys([name for name, _ in WAYS.values()] + list(WAYS)[3:]))


def ways(only: Sequence[str] | None) -> dict[str, Way]:
    """The baselines, and all that `only` asks for.

    >>> list(ways(["nuqsgd-4"]))
    ['DDP fp32', 'DDP bf16 hook', 'nuqsgd-4']
    """
    if only is None:
        return {label: way for label, (_, way) in WAYS.items()}
    require_known(only, ASKED_BY, "codec")
    return {label: way for label, (name, way) in WAYS.items() if label in BASELINES or name in only or label in only}
