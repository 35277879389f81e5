"""Rates of this process group and device: α and β of its links, γ of its codecs, measured by all ranks at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any

import torch

from laconic.codec import Codec, codec
from laconic.kernels import Stream
from laconic.planner.cluster import CodecRates, Link
from laconic.planner.collectives import BUCKET_SIZE, all_reduce, all_to_all
from laconic.planner.timing import Rounds, Stopwatch, fit_rates
from laconic.quantizers import Bucketed, Dithered
from laconic.quantizers.registry import SCHEMES

LINK_SIZES = (64, 2**14, 2**17, 2**20, 2**22, 2**24)
QUICK_LINK_SIZES = (64, 2**17, 2**21)
LONGEST_SECONDS = 0.25
"""Messages that would take longer are not tried: on slow links the rate is plain long before."""
ROUNDS = 3
UNIT, NOTHING = Link(1.0, 1.0), Link(0.0, 0.0)
DTYPES = {"all_reduce": torch.float32, "narrow": torch.bfloat16}

Samples = Mapping[int, Rounds]
"""By bytes."""


def sample_link(clock: Stopwatch, name: str, sizes: Sequence[int] = LINK_SIZES) -> Samples:
    """Time messages of growing size: the process group's all-reduce ("all_reduce", "narrow"), or "all_to_all"."""
    found: dict[int, Rounds] = {}
    for size in sizes if clock.comm.size > 1 else ():
        if found and _expected(found, size) > LONGEST_SECONDS:
            break
        found[size] = clock.time(_message(clock, name, size), rounds=ROUNDS)
    return found


def merge(one: Samples, other: Samples) -> Samples:
    """Samples of two occasions as one; sizes that only one of them has are left out, so that neither counts more.

    >>> merge({8: [1.0], 64: [5.0]}, {8: [3.0]})
    {8: [1.0, 3.0]}
    """
    return {size: [*one[size], *other[size]] for size in one if size in other}


def fit_link(name: str, samples: Samples, n_ranks: int) -> tuple[Link, list[float]]:
    """α and β of a message between two ranks, by the formula of the collective, and its relative errors."""
    if not samples:
        return NOTHING, []
    terms = {
        size: all_to_all("", size, UNIT, n_ranks) if name == "all_to_all" else all_reduce(size, UNIT, n_ranks)
        for size in samples
    }
    counts = [[term.count for term in terms[size]] for size in samples]
    rates, errors = fit_rates(counts, [median(rounds) for rounds in samples.values()])
    return Link(*rates), errors


def _message(clock: Stopwatch, name: str, size: int) -> Callable[[], object]:
    comm = clock.comm
    if name == "all_to_all":
        message = torch.zeros(size, dtype=torch.uint8, device=clock.device)
        return lambda: comm.all_to_all([message] * comm.size, [size] * comm.size).wait()
    v = torch.zeros(size // DTYPES[name].itemsize, dtype=DTYPES[name], device=clock.device)
    return lambda: comm.all_reduce(v)()


def _expected(found: Samples, size: int) -> float:
    """Seconds of the next size, if what the last took more than the first is for its bytes."""
    (_, first), *_, (last_size, last) = [*found.items(), *found.items()]
    return median(first) + max(0.0, median(last) - median(first)) * size / last_size


CODEC_SIZES = (2**13, 2**20)
PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}
STREAM = Stream(seed=1)
BUCKETED = [scheme.name for scheme in SCHEMES if issubclass(scheme, Bucketed)]
"""Schemes whose buckets are as large as their user says; others have a size of their own."""

Calls = tuple[Callable[[], object], Callable[[], object], float, float]
"""Encode, decode, bits per value, and the error."""


def make_codec(name: str, bucket_size: int = BUCKET_SIZE) -> Codec:
    """A codec by a name with its bits (of dithered, its error), its coder, and after a slash its own bucket size.

    >>> make_codec("nuqsgd-4-rans").quantizer, make_codec("nuqsgd-4/512").quantizer.bucket_size
    (NUQSGD(bits=4, bucket_size=8192, p=0.5), 512)
    >>> make_codec("dithered-0.3").quantizer, make_codec("dithered-1/512").quantizer
    (Dithered(error=0.3), Dithered(error=1.0, bucket_size=512))
    """
    if name in PLAIN:
        return codec(name)
    name, _, own = name.partition("/")
    _, wrapped, name = name.rpartition("ef-")
    scheme, *more = name.split("-")
    options: dict[str, Any] = {"bucket_size": int(own or bucket_size)} if own or scheme in BUCKETED else {}
    if more:
        options |= {"error": float(more[0])} if scheme == Dithered.name else {"bits": int(more[0])}
    return codec(wrapped + scheme, *more[1:], **options)


def sample_values(n: int, gradient: torch.Tensor | None = None) -> torch.Tensor:
    """n values to measure codecs on: of a gradient, again and again; or random signs with log-normal magnitudes."""
    if gradient is not None:
        return gradient.repeat(-(-n // gradient.numel()))[:n]
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, generator=g).exp().copysign(torch.randn(n, generator=g))


def measure_codec(
    clock: Stopwatch, name: str, base: CodecRates | None = None, gradient: torch.Tensor | None = None
) -> tuple[CodecRates, list[Rounds]]:
    """Rates of one codec on a gradient.

    base  rates of the same scheme at fixed width, which an entropy coder comes on top of
    """
    timings, seconds, bits, error = [], {}, 0.0, 0.0
    for n in CODEC_SIZES:
        encode, decode, bits, error = _calls(name, sample_values(n, gradient).to(clock.device), clock)
        for what, run in (("encode", encode), ("decode", decode)):
            timing = clock.time(run, rounds=3)
            timings.append(timing)
            seconds[what, n] = median(timing)
    small, large = CODEC_SIZES
    each = {what: max(0.0, (seconds[what, large] - seconds[what, small]) / (large - small)) for what in _WHAT}
    call = max(0.0, sum(seconds[what, small] - small * each[what] for what in _WHAT) / 2)
    plain = each if base is None else {"encode": base.quantize_seconds, "decode": base.decode_seconds}
    code, uncode = (max(0.0, each[what] - plain[what]) for what in _WHAT)
    return CodecRates(bits, call, plain["encode"], code, plain["decode"], uncode, error), timings


def scaled(rates: CodecRates, factor: float) -> CodecRates:
    """The same codec, slower by a factor."""
    times = {f.name: factor * getattr(rates, f.name) for f in fields(rates) if f.name.endswith("_seconds")}
    return replace(rates, **times)


_WHAT = ("encode", "decode")


def _calls(name: str, v: torch.Tensor, clock: Stopwatch) -> Calls:
    out = torch.zeros_like(v)
    if name in PLAIN:
        wire = torch.empty_like(v, dtype=PLAIN[name])
        back: Callable[[], object] = (lambda: out.copy_(wire)) if name == "bf16" else (lambda: None)
        error = float((v.to(wire.dtype) - v).norm() / v.norm()) ** 2
        return lambda: wire.copy_(v).div_(clock.comm.size), back, 8.0 * wire.element_size(), error
    made = make_codec(name)
    payload = made.encode(v, STREAM)
    return (
        lambda: made.encode(v, STREAM),
        lambda: made.decode_sum([payload], out, weight=0.5),
        payload.bits_per_coordinate,
        float((made.decode(payload) - v).norm() / v.norm()) ** 2,
    )
