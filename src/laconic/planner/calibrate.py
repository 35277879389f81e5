"""Measure links and codecs of a process group: all ranks call this together, and all get the same numbers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from laconic.exchange import Pipeline, ScatterReduce, average_in_pieces
from laconic.planner.cluster import LINKS, Cluster, CodecRates, Link
from laconic.planner.codecs import PLAIN, make_codec, measure_codec, scaled
from laconic.planner.links import QUICK_SIZES, SIZES, fit_link, merge, sample_link
from laconic.planner.network import NetworkJob, NetworkOption, cost
from laconic.planner.timing import Clock, Timing

CODECS = ("fp32", "bf16", "nuqsgd-8", "nuqsgd-4", "nuqsgd-4-rans")
QUICK_CODECS = CODECS[:-1]
DEVICES = ("cpu", "cuda")
EXCHANGED = 2**20
"""Values of the exchange that settles a codec's rates."""
LEAST_FACTOR, MOST_FACTOR = 0.5, 4.0

Tell = Callable[[str], None]


@dataclass(slots=True)
class Findings:
    """What has been measured so far, by name."""

    links: dict[str, Link] = field(default_factory=dict)
    codecs: dict[str, CodecRates] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, timings: list[Timing], residuals: tuple[float, ...] = ()) -> None:
        """Keep the worst spread and the worst residual."""
        self.noise[name] = max((timing.noise for timing in timings), default=0.0)
        if residuals:
            self.residuals[name] = max(residuals, key=abs)

    def cluster(self, n_ranks: int, memory_bytes: float | None = None) -> Cluster:
        """As far as it is known; solvers are measured elsewhere."""
        a, b, c = (self.links[name] for name in LINKS)
        return Cluster(n_ranks, a, b, c, codecs=dict(self.codecs), memory_bytes=memory_bytes)


def find_device(name: str) -> torch.device:
    """A device by name; `ValueError` for one that is not known or not here.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name not in DEVICES:
        raise ValueError(f"unknown device {name!r}; choose one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here; use --device cpu, or plan from a calibration made elsewhere")
    return torch.device(name)


def measure(clock: Clock, *, quick: bool = False, tell: Tell = lambda label: None) -> Findings:
    """Links, codecs, links again, then whole exchanges. Quick: fewer sizes and codecs, for a start that must be short.

    Links are looked at twice, seconds apart: a moment in which others use the machine must not be taken for it.
    """
    found, sizes = Findings(), QUICK_SIZES if quick else SIZES
    samples = {name: sample_link(clock, name, sizes) for name in told(LINKS, tell, "link")}
    for name in told(QUICK_CODECS if quick else CODECS, tell, "codec"):
        base = found.codecs.get(name.removesuffix("-rans")) if name.endswith("-rans") else None
        found.codecs[name], timings = measure_codec(clock, name, base)
        found.note(name, timings)
    for name in told(LINKS, tell, "link again"):
        if not quick:
            samples[name] = merge(samples[name], sample_link(clock, name, sizes))
        found.links[name], fitted = fit_link(name, samples[name], clock.comm.size)
        found.note(name, list(samples[name].values()), fitted.residuals)
    if clock.comm.size > 1:
        tell("exchanges")
        _settle(clock, found)
    return found


def told(names: Sequence[str], tell: Tell, what: str) -> Iterator[str]:
    """Each name, after it was told."""
    for name in names:
        tell(f"{what}: {name}")
        yield name


def _settle(clock: Clock, found: Findings) -> None:
    """Scale each codec's rates so that a real exchange takes as long as predicted.

    Beside the threads of an exchange, a codec gets less of a core and of the memory than by itself.
    """
    pipeline = Pipeline(clock.comm)
    v = torch.randn(EXCHANGED, generator=torch.Generator().manual_seed(clock.comm.rank)).to(clock.device)
    out = torch.empty_like(v)
    for name, rates in found.codecs.items():
        if name in PLAIN:
            continue
        codec = make_codec(name)
        run = partial(average_in_pieces, pipeline, ScatterReduce(), v, codec, out=out)
        timing = clock.time(run, rounds=3)
        way = NetworkOption(name, ScatterReduce.name)
        predicted = cost(NetworkJob(EXCHANGED), way, found.cluster(clock.comm.size))
        factor = (timing.median - predicted.wire_seconds) / predicted.work_seconds
        found.codecs[name] = scaled(rates, min(max(factor, LEAST_FACTOR), MOST_FACTOR))
        found.note(f"{name} scatter_reduce", [timing], (predicted.seconds / timing.median - 1,))
    pipeline.close()
