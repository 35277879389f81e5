"""Measure α and β of the links of a process group, and γ of codecs on a device.

Collective: all ranks call these functions together and get the same numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median

import torch

from laconic.codec import make_codec
from laconic.errors import InvalidOption, Option
from laconic.exchange import Accounting, Exchanged, Pipeline, Scheduler, average_in_pieces, by_name
from laconic.kernels import Stream
from laconic.planner.cluster import LINKS, Cluster, CodecRates, Link
from laconic.planner.network import NETWORK_OPTIONS, NetworkJob, NetworkOption, cost
from laconic.planner.terms import Cost, all_reduce, all_to_all, doublings
from laconic.planner.timing import Rounds, Stopwatch, fit_rates, spread

LINK_SIZES = (64, 2**14, 2**17, 2**20, 2**22, 2**24)
QUICK_LINK_SIZES = (64, 2**17, 2**21)
LONGEST_SECONDS = 0.25
"""Messages expected to take longer are not timed: on slow links smaller ones already show the rate."""
ROUNDS = 3
LEAST_ALPHA = 0.1
"""Least share of an all-reduce's latency that is ascribed to messages (α) and not to waiting (ω)."""
UNIT, NOTHING = Link(1.0, 1.0), Link(0.0, 0.0)
DTYPES = {"all_reduce": torch.float32, "narrow": torch.bfloat16}

Samples = Mapping[int, Rounds]
"""Timings by message size in bytes."""


def sample_link(clock: Stopwatch, name: str, sizes: Sequence[int] = LINK_SIZES) -> Samples:
    """Time messages of growing size: all-reduce in float32 ("all_reduce") or bfloat16 ("narrow"), or "all_to_all"."""
    found: dict[int, Rounds] = {}
    for size in sizes if clock.comm.size > 1 else ():
        if found and _expected(found, size) > LONGEST_SECONDS:
            break
        found[size] = clock.time(_message(clock, name, size), rounds=ROUNDS)
    return found


def merge(one: Samples, other: Samples) -> Samples:
    """Samples of two measurements as one; sizes that only one has are dropped, so that both count equally.

    >>> merge({8: [1.0], 64: [5.0]}, {8: [3.0]})
    {8: [1.0, 3.0]}
    """
    return {size: [*one[size], *other[size]] for size in one if size in other}


def fit_link(name: str, samples: Samples, n_ranks: int) -> tuple[Link, list[float]]:
    """α and β fitted to timings of a collective by its formula, and the relative errors of the fit."""
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
    """Seconds that a message of `size` should take, extrapolated from the first and last ones."""
    (_, first), *_, (last_size, last) = [*found.items(), *found.items()]
    return median(first) + max(0.0, median(last) - median(first)) * size / last_size


CODEC_SIZES = (2**13, 2**20)
PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}
STREAM = Stream(seed=1)

Calls = tuple[Callable[[], object], Callable[[], object], float, float]
"""(encode, decode, bits per value, relative error) of a codec."""


def sample_values(n: int, gradient: torch.Tensor | None = None) -> torch.Tensor:
    """n values to measure codecs on: a gradient, repeated; or by default random signs and log-normal magnitudes."""
    if gradient is not None:
        return gradient.repeat(-(-n // gradient.numel()))[:n]
    g = torch.Generator().manual_seed(0)
    sizes, signs = (torch.randn(n, dtype=torch.float32, generator=g) for _ in range(2))
    return sizes.exp().copysign(signs)


def measure_codec(
    clock: Stopwatch, name: str, base: CodecRates | None = None, gradient: torch.Tensor | None = None
) -> tuple[CodecRates, list[Rounds]]:
    """Rates of one codec on a gradient.

    base  rates of the same scheme at fixed width, for a codec that adds an entropy coder to it
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
    """The rates of a codec with all times multiplied by a factor."""
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


CODECS = ("fp32", "bf16", "nuqsgd-8", "nuqsgd-4", "nuqsgd-4-rans", "rotated-4", "dithered-0.1")
QUICK_CODECS = CODECS[:4]
DEVICES = ("cpu", "cuda")
EXCHANGED, QUICK_EXCHANGED = 2**20, 2**17
"""Values of the exchange by which a codec's rates are adjusted."""
LEAST_FACTOR, MOST_FACTOR = 0.5, 4.0
CHECKED = (*NETWORK_OPTIONS[:2], NetworkOption("nuqsgd-4", "all_gather"))
SMALL, SMALL_VALUES = NetworkOption("nuqsgd-4", "all_gather"), 2**13
CHECKED_VALUES = 2**18
"""Values of the exchanges that check the adjusted predictions."""

Progress = Callable[[str], None]


@dataclass(slots=True)
class Measurements:
    """Rates measured so far, with spreads and residuals of timings, by name; `gradient` as for `sample_values`."""

    gradient: torch.Tensor | None = None
    links: dict[str, Link] = field(default_factory=dict)
    codecs: dict[str, CodecRates] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, timings: Sequence[Rounds], residuals: Sequence[float] = ()) -> None:
        """Record the median spread of the timings, and the worst residual."""
        self.noise[name] = median(map(spread, timings)) if timings else 0.0
        if residuals:
            self.residuals[name] = max(residuals, key=abs)

    def cluster(self, n_ranks: int, memory_bytes: float | None = None) -> Cluster:
        """The cluster with the links and codecs measured so far; solvers are measured elsewhere."""
        a, b, c = (self.links[name] for name in LINKS)
        return Cluster(
            n_ranks, a, b, c, codecs=dict(self.codecs), memory_bytes=memory_bytes, uncertainty=self.uncertainty
        )

    @property
    def uncertainty(self) -> float:
        """The larger of two medians: half the spread of message timings, and the error of the checked exchanges."""
        spreads = [self.noise[name] / 2 for name in LINKS if name in self.noise]
        checks = [abs(self.residuals[option.label]) for option in CHECKED if option.label in self.residuals]
        return max(median(x) if x else 0.0 for x in (spreads, checks))


def find_device(name: str) -> torch.device:
    """A device by name; raises `InvalidOption` if it is unknown or not available."""
    if name not in DEVICES:
        raise InvalidOption("unknown ", Option("device", name), f"; choose one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        cpu = Option("device", "cpu")
        raise InvalidOption("there is no CUDA device here; use ", cpu, ", or plan from a calibration made elsewhere")
    return torch.device(name)


def measure(
    clock: Stopwatch,
    *,
    quick: bool = False,
    progress: Progress = lambda label: None,
    gradient: torch.Tensor | None = None,
) -> Measurements:
    """Measure links, codecs, links again, then whole exchanges.

    quick     fewer sizes and codecs, for a short start
    gradient  to measure codecs on, since the bits and errors of some depend on it; see `sample_values`

    Links are measured twice, seconds apart, so that a brief disturbance does not decide the result.
    """
    found, sizes = Measurements(gradient), QUICK_LINK_SIZES if quick else LINK_SIZES
    samples = {name: sample_link(clock, name, sizes) for name in announced(LINKS, progress, "link")}
    for name in announced(QUICK_CODECS if quick else CODECS, progress, "codec"):
        base = found.codecs.get(name.removesuffix("-rans")) if name.endswith("-rans") else None
        found.codecs[name], timings = measure_codec(clock, name, base, gradient)
        found.note(name, timings)
    again = not (quick or clock.late())
    for name in announced(LINKS, progress, "link again"):
        if again:
            samples[name] = merge(samples[name], sample_link(clock, name, sizes))
        found.links[name], errors = fit_link(name, samples[name], clock.comm.size)
        found.note(name, list(samples[name].values()), errors)
    if clock.comm.size >= 4 and clock.comm.size % 2 == 0 and not quick:
        _split_latency(clock, found)
    if clock.comm.size > 1:
        progress("exchanges")
        _adjust_rates(clock, found, quick=quick)
    return found


def _split_latency(clock: Stopwatch, found: Measurements) -> None:
    """Split the latency of all-reduces into messages and waiting, by an all-reduce of two ranks, all pairs at once."""
    pair, v = clock.comm.split(clock.comm.size // 2), torch.zeros(1, dtype=torch.float32, device=clock.device)
    timing = clock.time(lambda: pair.all_reduce(v)(), rounds=ROUNDS)
    found.note("pairs", [timing])
    for name in DTYPES:
        found.links[name] = with_waiting(found.links[name], median(timing), clock.comm.size)


def with_waiting(link: Link, pair_seconds: float, n_ranks: int) -> Link:
    """Split a link's latency into α (messages) and ω (waiting), given the time of an all-reduce of two ranks.

        P ranks: 2 (P − 1) α + ⌈log₂ P⌉ ω,   2 ranks: 2 α + ω

    The latency for P ranks is unchanged; for other counts, messages and waiting scale differently. α keeps at least
    LEAST_ALPHA of the latency, should something have disturbed the timing of the pairs.

    >>> with_waiting(Link(2e-4, 1e-9), 5e-4, 4)
    Link(alpha_seconds=0.0001, seconds_per_byte=1e-09, wait_seconds=0.0003)
    """
    steps, depth = 2 * (n_ranks - 1), doublings(n_ranks)
    alpha = (steps * link.alpha_seconds - depth * pair_seconds) / (steps - 2 * depth)
    alpha = min(max(LEAST_ALPHA * link.alpha_seconds, float(f"{alpha:.6g}")), link.alpha_seconds)
    return replace(link, alpha_seconds=alpha, wait_seconds=float(f"{steps * (link.alpha_seconds - alpha) / depth:.6g}"))


def announced(names: Sequence[str], progress: Progress, what: str) -> Iterator[str]:
    """Yield each name after reporting it as progress."""
    for name in names:
        progress(f"{what}: {name}")
        yield name


def _adjust_rates(clock: Stopwatch, found: Measurements, *, quick: bool) -> None:
    """Adjust the rates so that they predict some real exchanges, then check the predictions of others.

    1. α of all_to_all is raised to what an exchange of few values shows: it wakes threads, which single messages do
    not. 2. Each codec's times are scaled: beside the threads of an exchange it has less of a core and of the memory
    bandwidth than by itself.
    """
    pipeline = Pipeline(clock.comm)
    seconds, predicted = _time_exchange(pipeline, clock, found, SMALL, SMALL_VALUES)
    link = found.links["all_to_all"]
    more = max(0.0, seconds - predicted.seconds) / (clock.comm.size - 1)
    found.links["all_to_all"] = replace(link, alpha_seconds=link.alpha_seconds + more)
    for name, rates in list(found.codecs.items()):
        if name not in PLAIN:
            option = NetworkOption(name, "scatter_reduce")
            seconds, predicted = _time_exchange(pipeline, clock, found, option, QUICK_EXCHANGED if quick else EXCHANGED)
            factor = (seconds - predicted.wire_seconds) / predicted.work_seconds
            found.codecs[name] = scaled(rates, min(max(factor, LEAST_FACTOR), MOST_FACTOR))
    for option in () if quick else CHECKED:
        _time_exchange(pipeline, clock, found, option, CHECKED_VALUES)
    pipeline.close()


def _time_exchange(
    pipeline: Pipeline, clock: Stopwatch, found: Measurements, option: NetworkOption, n: int
) -> tuple[float, Cost]:
    """Measured seconds of an exchange of n values, and its predicted cost."""
    v = sample_values(n, found.gradient).roll(pipeline.comm.rank).to(clock.device)
    call = exchange_call(pipeline, option, v)
    timing = clock.time(lambda: call(0), rounds=3)
    predicted = cost(NetworkJob(n), option, found.cluster(clock.comm.size))
    found.note(option.label, [timing], (predicted.seconds / median(timing) - 1,))
    return median(timing), predicted


def exchange_call(
    pipeline: Scheduler,
    option: NetworkOption,
    v: torch.Tensor,
    bucket_size: int | None = None,
    piece_values: int | None = None,
) -> Callable[[int], Exchanged]:
    """A function of the step that averages v (n,) over ranks as under DistributedDataParallel.

    The process group's own all-reduce runs at its best: in one call, into preallocated memory.
    """
    comm, codec, out = pipeline.comm, make_codec(option.codec, bucket_size), v.clone()
    exchange, memory = by_name(option.exchange, codec, comm.size), codec.new_memory(v)
    if option.exchange == "nothing":
        return lambda step: exchange.average(v, codec, comm=comm, out=out)
    if option.exchange != "all_reduce":
        return lambda step: average_in_pieces(
            pipeline, exchange, v, codec, Stream(step=step), memory, piece_values=piece_values, out=out
        )
    n_bytes = exchange.bytes_received(codec, v.numel(), comm.size)
    wire = torch.empty_like(v, dtype=PLAIN[option.codec])

    def reduce(step: int) -> Exchanged:
        accounting = Accounting(n_exchanges=1, n_values=v.numel(), bytes_sent=n_bytes, bytes_received=n_bytes)
        with accounting.timed("encode"):
            torch.div(v, comm.size, out=wire) if wire.dtype == v.dtype else wire.copy_(v).div_(comm.size)
        with accounting.timed("wire"):
            comm.all_reduce(wire)()
        with accounting.timed("decode"):
            value = wire if wire.dtype == v.dtype else out.copy_(wire)
        return Exchanged(value, accounting)

    return reduce
