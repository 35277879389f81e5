"""What the tables of all suites have in common."""

from collections.abc import Iterator, Sequence
from typing import Any

from laconic.bench import Spread
from laconic.report import number

BUSY = 1.5


def machine(here: Any) -> str:
    """Where this was measured, and with what: the processor, or the GPU of a `GPUEnvironment`."""
    if hasattr(here, "gpu"):
        where, kernels = f"{here.gpu}; CUDA {here.cuda},", f"triton {here.triton}"
    else:
        where, kernels = f"{here.cpu}, {here.n_cores} cores;", f"numba {here.numba}"
    return (
        f"{where} python {here.python}, torch {here.torch}, {kernels}, "
        f"laconic {here.laconic}, commit {(here.commit or 'none')[:12]}; {here.date}"
    )


def noise(seconds: Spread) -> str:
    """How much the first baseline varies from round to round, in a sentence."""
    spread = seconds.p80 / seconds.p20
    said = f"80th over 20th percentile of the fp32 baseline: {spread:.2f}"
    return f"{said}; the machine is busy, mistrust these times" if spread > BUSY else said


def between(x: Spread | None, unit: float = 1.0) -> str:
    """The 20th and the 80th percentile, in so many parts of one.

    >>> between(Spread(0.002, 0.001, 0.003), 1e3)
    '1.00–3.00'
    """
    return "–" if x is None else f"{number(unit * x.p20)}–{number(unit * x.p80)}"


def percent(x: float | None) -> str:
    """With three places, or a dash."""
    return "–" if x is None else f"{100 * x:.3f}"


def lost(sentences: Sequence[str]) -> Iterator[str]:
    """What a person should know before believing the rest."""
    yield "Where we lose:" + ("" if sentences else " nowhere in this run.")
    for sentence in sentences:
        yield f"• {sentence}"
