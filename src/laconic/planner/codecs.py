"""γ of codecs on the actual device, while all ranks encode and decode at once."""

from collections.abc import Callable
from dataclasses import fields, replace

import torch

from laconic.codec import Codec, codec
from laconic.kernels import Stream
from laconic.planner.cluster import CodecRates
from laconic.planner.timing import Stopwatch, Timing

SIZES = (2**13, 2**20)
PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}
STREAM = Stream(seed=1)

Calls = tuple[Callable[[], object], Callable[[], object], float]
"""Encode, decode, and bits a value."""


def make_codec(name: str) -> Codec:
    """A codec by a name such as nuqsgd-4-rans.

    >>> make_codec("nuqsgd-4-rans").quantizer
    NUQSGD(bits=4, bucket_size=8192, p=0.5)
    """
    if name in PLAIN:
        return codec(name)
    scheme, bits, *coder = name.split("-")
    return codec(scheme, *coder, bits=int(bits))


def measure_codec(clock: Stopwatch, name: str, base: CodecRates | None = None) -> tuple[CodecRates, list[Timing]]:
    """Rates of one codec; `base` is that of the same scheme at fixed width, which an entropy coder comes on top of."""
    timings, seconds, bits = [], {}, 0.0
    for n in SIZES:
        encode, decode, bits = _calls(name, n, clock)
        for what, run in (("encode", encode), ("decode", decode)):
            timing = clock.time(run, rounds=3)
            timings.append(timing)
            seconds[what, n] = timing.median
    small, large = SIZES
    each = {what: max(0.0, (seconds[what, large] - seconds[what, small]) / (large - small)) for what in _WHAT}
    call = max(0.0, sum(seconds[what, small] - small * each[what] for what in _WHAT) / 2)
    if base is None:
        return CodecRates(bits, call, each["encode"], 0.0, each["decode"], 0.0), timings
    code, uncode = (
        max(0.0, each[w] - b) for w, b in zip(_WHAT, (base.quantize_seconds, base.decode_seconds), strict=True)
    )
    return CodecRates(bits, call, base.quantize_seconds, code, base.decode_seconds, uncode), timings


def scaled(rates: CodecRates, factor: float) -> CodecRates:
    """The same codec, slower by a factor."""
    times = {f.name: factor * getattr(rates, f.name) for f in fields(rates) if f.name.endswith("_seconds")}
    return replace(rates, **times)


_WHAT = ("encode", "decode")


def _calls(name: str, n: int, clock: Stopwatch) -> Calls:
    v = torch.randn(n, generator=torch.Generator().manual_seed(0)).to(clock.device)
    out = torch.zeros_like(v)
    if name in PLAIN:
        wire = torch.empty_like(v, dtype=PLAIN[name])
        back: Callable[[], object] = (lambda: out.copy_(wire)) if name == "bf16" else (lambda: None)
        return lambda: wire.copy_(v).div_(clock.comm.size), back, 8.0 * wire.element_size()
    made = make_codec(name)
    payload = made.encode(v, STREAM)
    return (
        lambda: made.encode(v, STREAM),
        lambda: made.decode_sum([payload], out, weight=0.5),
        payload.bits_per_coordinate,
    )
