"""Ranks for a suite: those of torchrun, or new processes, on an emulated network if asked for."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from laconic.bench.protocol import Spread, WrongResult, speedup
from laconic.bench.suite import Progress
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator, launch
from laconic.exchange.emulated_network import MAX_HOSTS, bits_per_second, emulated_network
from laconic.exchange.launch import inside_torchrun, join_ranks, start_ranks
from laconic.kernels import require_gpu
from laconic.options import check_counts, check_names, option
from laconic.report import Column, text
from laconic.report.values import Row, number_in, percentiles, rows_in

TIMEOUT_SECONDS = 3600.0
PAPERS_BUCKET = 8192
"""Values per bucket of a codec whose name in a benchmark does not say, as in the papers."""
BUSY = 1.5
"""80th over 20th percentile of a baseline above which the machine was busy."""


def n_ranks(asked: int | None, rate: str | None) -> int:
    """The number of ranks; raises `InvalidOption` if the network cannot be emulated, as under torchrun."""
    if rate is not None and inside_torchrun():
        raise InvalidOption(
            Option("rate"), " emulates a network on this machine, which torchrun's ranks do not use; leave it out"
        )
    ranks = launch.n_ranks(asked)
    if not 2 <= ranks <= MAX_HOSTS:
        raise InvalidOption(Option("ranks"), f" must be from 2 to {MAX_HOSTS}, got {ranks}")
    if rate is not None:
        bits_per_second(rate)
    return ranks


RANKS = "Ranks to start, each a process; 4 if not given, torchrun's under it."
RATE = (
    "Emulate a host for each rank, on links of this rate: 1gbit, 100mbit, 20mbit. Needs root and iproute2. "
    "Otherwise loopback, unlimited."
)


@dataclass(frozen=True, slots=True)
class RankOptions(ABC):
    """Base of the options of suites that run on ranks; see `resolve_network`.

    function  called on each rank, with the values of `asked`
    """

    ranks: int = option(None, RANKS)
    rate: str | None = option(None, RATE, metavar="RATE")
    device: str | None = option(
        None, "cuda: ranks with a GPU each, over NCCL; they share GPUs where there are fewer.", metavar="DEVICE"
    )
    threads: int = option(1, "Threads of each rank.")

    function: ClassVar[str]

    @property
    @abstractmethod
    def asked(self) -> dict[str, Any]:
        """Arguments of `function`, as JSON values."""

    def results(self, progress: Progress) -> list[Any] | None:
        """What `function` returned on each rank; see `on_ranks`."""
        return on_ranks(self.function, self.asked, self.ranks, self.rate, progress, self.device, self.threads)


def resolve_network(options: Any) -> None:
    """Set the number of ranks in a suite's options; raise `InvalidOption` if device or network are not possible."""
    device = getattr(options, "device", None)
    if device not in (None, "cpu", "cuda"):
        raise InvalidOption(Option("device"), f" of ranks must be cpu or cuda, got {device!r}")
    require_gpu(device)
    object.__setattr__(options, "ranks", n_ranks(options.ranks, options.rate))


def on_ranks(
    function: str,
    arguments: Mapping[str, Any],
    ranks: int,
    rate: str | Sequence[str] | None,
    progress: Progress,
    device: str | None = None,
    threads: int = 1,
) -> list[Any] | None:
    """Run `function` on ranks and return its results, one per rank; None on the ranks of torchrun other than the first.

    rate  of all links, or one per host; None for loopback

    A `LaconicError` of a rank is raised again here.
    """
    how: dict[str, Any] = {"device": device or "cpu", "timeout_seconds": TIMEOUT_SECONDS}
    if inside_torchrun():
        return join_ranks(function, arguments, **how)
    with emulated_network(ranks, rate) as hosts:
        return start_ranks(function, arguments, hosts, threads=threads, progress=progress, **how)


EVERY = "every"
"""Name that selects all contenders, including those not run by default."""


def choose(only: Sequence[str] | None, asked_by: Mapping[str, Sequence[str]], baselines: Sequence[str]) -> list[str]:
    """The labels of the baselines and of all contenders selected by one of their names.

    only      selected names; None for all contenders but those whose first name is "every"
    asked_by  the names that select each label

    >>> choose(["sign"], {"fp32": ["fp32"], "sign/512": ["sign", "sign/512"], "sum": ["sum"]}, ["fp32"])
    ['fp32', 'sign/512']
    """
    if only is None:
        return [label for label, names in asked_by.items() if names[0] != EVERY]
    check_names(only, list(dict.fromkeys(name for names in asked_by.values() for name in names)), "codec")
    return [label for label, names in asked_by.items() if label in baselines or set(names) & set(only)]


def scheme_of(codec: str) -> str:
    """The scheme in a codec's name, which also selects the codec.

    >>> scheme_of("nuqsgd-4-rans"), scheme_of("ef-sign")
    ('nuqsgd', 'ef-sign')
    """
    return codec if codec == "ef-sign" else codec.partition("-")[0]


@dataclass(frozen=True, slots=True)
class CodecOptions(RankOptions):
    """Options of a suite that compares codecs on ranks; see `compared`.

    baselines  the contenders in float32 and in bfloat16
    asked_by   the names that select each contender
    """

    codecs: Sequence[str] | None = option(
        None, "Only these besides the baselines: nuqsgd, nuqsgd-4-rans, ...", flag="--codec", metavar="NAME,..."
    )

    baselines: ClassVar[tuple[str, str]]
    asked_by: ClassVar[Mapping[str, Sequence[str]]]

    def __post_init__(self) -> None:
        check_counts(self)
        resolve_network(self)
        self.labels  # noqa: B018 (raises if there is no such codec)

    @property
    def labels(self) -> list[str]:
        """Labels of the baselines and of all selected contenders."""
        return choose(self.codecs, self.asked_by, self.baselines)


def compared(options: CodecOptions, results: Sequence[Any]) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """`rank_fields` of the results, after checking that the ranks agree."""
    check_replicas(results)
    return rank_fields(options, results)


def run_share(jobs: Sequence[Callable[[], object]]) -> None:
    """Run this rank's share of the jobs: every P-th, from its own rank on."""
    comm = Communicator.over()
    for job in jobs[comm.rank :: comm.size]:
        job()


def finish(device: torch.device) -> None:
    """Synchronize a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(comm: Communicator) -> None:
    """Wait until all ranks are here."""
    comm.all_reduce(torch.zeros(1))()


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """A hash of all bits of the tensors, for `check_replicas`."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def slowest(ranks: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds of the slowest rank in each round.

    >>> slowest([{"seconds": [1.0, 4.0]}, {"seconds": [2.0, 3.0]}])
    [2.0, 4.0]
    """
    return [max(turn) for turn in zip(*(rank["seconds"] for rank in ranks), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """Fields that rows of every suite on ranks have for a contender.

    seconds            of one exchange, step or iteration, on the slowest rank
    speedup_over_fp32  seconds of the float32 baseline over its own, round by round
    speedup_over_bf16  the same for the bfloat16 baseline
    bytes_sent         by the rank that sends most; None where laconic did not send
    wire_seconds       waiting for other ranks, of the rank that waits most
    rate, device       of the links (None for loopback) and of the ranks (None for the CPU)
    threads            of each rank
    """

    contender: str
    ranks: int
    rate: str | None = None
    device: str | None = None
    threads: int = 1
    seconds: Spread
    speedup_over_fp32: Spread
    speedup_over_bf16: Spread
    bytes_sent: float | None = None
    wire_seconds: float | None = None


def columns_of(time: Column, *more: Column) -> list[Column]:
    """Columns of a table of contenders: label, time, speedup over both baselines, and `more`."""
    speeds = (Column("× fp32", "speedup_over_fp32"), Column("× bf16", "speedup_over_bf16"))
    return [text("contender", "contender"), time, *speeds, *more]


MOST = ("bytes_sent", "weight_bytes_sent", "encode_seconds", "wire_seconds", "decode_seconds")
"""Quantities of which the largest over ranks counts."""


def rank_fields(options: Any, results: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """By contender, its result on each rank, and the fields of its `RankRow`.

    options  of the suite, with rate, device, threads and baselines
    results  of each rank: by contender, the seconds of its rounds and other values
    """
    said = {label: [result[label] for result in results] for label in results[0]}
    rounds = {label: slowest(ranks) for label, ranks in said.items()}
    found = {}
    for label, ranks in said.items():
        common = {name: getattr(options, name) for name in ("rate", "device", "threads")}
        common |= {"contender": label, "ranks": len(results), "seconds": Spread.of(rounds[label])}
        for key, baseline in zip(("speedup_over_fp32", "speedup_over_bf16"), options.baselines, strict=True):
            common[key] = speedup(rounds[baseline], rounds[label])
        common |= {key: max(rank[key] for rank in ranks) for key in MOST if key in ranks[0]}
        found[label] = ranks, common
    return found


def check_replicas(results: Sequence[Mapping[str, Any]]) -> None:
    """Raise `WrongResult` unless all ranks hold the same bits after every exchange but `nothing`."""
    for label in results[0]:
        digests = {result[label]["digest"] for result in results}
        if label != "nothing" and len(digests) > 1:
            raise WrongResult(f"{label}: the ranks do not hold the same bits")


def noise(document: Row) -> list[str]:
    """Sentences on cores or GPUs that ranks share, and on how much the fp32 baseline varies from round to round."""
    first = next(iter(rows_in(document)), {})
    ranks, threads, here = number_in(first, "ranks") or 1, number_in(first, "threads") or 1, first.get("environment")
    cores, gpus = number_in(here, "n_cores") or ranks * threads, number_in(here, "n_gpus") or ranks
    what = f"{ranks:.0f} ranks" + (f" of {threads:.0f} threads" if threads > 1 else "")
    found = [f"{what} on {cores:.0f} cores: they wait for each other's turns"] if ranks * threads > cores else []
    found += [f"{ranks:.0f} ranks share {gpus:.0f} GPU{'s' * (gpus > 1)}"] if ranks > gpus else []
    spread = percentiles(first.get("seconds"))
    if spread is None or not spread[0]:
        return found
    ratio = spread[1] / spread[0]
    busy = "; the machine is busy, mistrust these times" if ratio > BUSY else ""
    return [*found, f"80th over 20th percentile of the fp32 baseline: {ratio:.2f}{busy}"]
