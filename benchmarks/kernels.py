"""The suite `kernels`: GPU kernels beside a copy on the same GPU, in bytes moved per second.

Times are of one replay of a CUDA graph that holds one call, between two events, with everything the call touches far
larger than the second-level cache. The copy and the contender take turns, so that a ratio is of neighbours in time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.goals import goals_of_rows
from laconic.bench.protocol import Comparison, Spread, WrongResult
from laconic.bench.schemes import Scheme, schemes
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.kernels import Stream, select
from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.options import check_counts, check_names, option
from laconic.quantizers import Bucketed
from laconic.report import BarChart, Column, Presentation, RowTable, speedups, text
from laconic.report.values import Row, number_in, text_in

NAMES = ("nuqsgd", "qsgd", "qsgdinf", "sign")
Call = Callable[[], object]
PAYLOADS = (1, 4, 8)
COPY, PACK, SUM = "copy", "quantize + pack", "unpack + dequantize + sum"
CHECKED_BUCKETS = 16
KEY = Stream(seed=1).key


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What to run."""

    device: str = option("cuda", "The GPU to run on: cuda, cuda:1, ...")
    size: int = option(2**28, "Number of values, far above the cache.")
    bucket_size: int = option(8192, "Values that share one norm.")
    repeats: int = option(21, "Timed rounds of each kernel.")
    schemes: Sequence[str] = option(NAMES, f"Only these: {', '.join(NAMES)}.", metavar="NAME,...")

    def __post_init__(self) -> None:
        check_names(self.schemes, NAMES, "scheme")
        check_counts(self)
        schemes(self.bucket_size, self.schemes)
        if not self.device.startswith("cuda"):
            raise InvalidOption(Option("device"), f" must be a CUDA GPU, such as cuda; got {self.device!r}")
        if not torch.cuda.is_available():
            raise InvalidOption("the suite kernels needs a CUDA GPU, and torch sees none here")
        select("gpu", torch.device(self.device))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar, one for each row."""
        return 4 + len(schemes(self.bucket_size, self.schemes)) * (1 + len(PAYLOADS))


class TimedGraph:
    """A call as a CUDA graph of its own, and the seconds of one replay."""

    def __init__(self, call: Call) -> None:
        call()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            call()

    def begin(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Replay once between two events, which are to be read after a synchronisation."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        self._graph.replay()
        last.record()
        return first, last


def compare_graphs(contender: TimedGraph, baseline: TimedGraph, repeats: int, warmup: int = 2) -> Comparison:
    """Seconds of both, and the ratio of baseline to contender, round by round."""
    for _ in range(warmup):
        baseline.begin()
        contender.begin()
    rounds = [(baseline.begin(), contender.begin()) for _ in range(repeats)]
    torch.cuda.synchronize()
    return Comparison.of([(_seconds(*theirs), _seconds(*ours)) for theirs, ours in rounds])


def _seconds(first: torch.cuda.Event, last: torch.cuda.Event) -> float:
    return 1e-3 * float(first.elapsed_time(last))


@dataclass(frozen=True, slots=True)
class Contender:
    """What is timed: a label, what it does, the bytes it must move, and a check that it did it."""

    label: str
    config: str
    operation: str
    n_payloads: int
    dtype: str
    n_bytes: int
    call: Call
    check: Call


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel on one size.

    contender, config  who, by label and in full
    operation          what was timed
    n_payloads         payloads added up; 0 where none are
    dtype              of the values
    n                  how many of them
    seconds            of one call
    n_bytes            that must be read and written once
    gb_per_second      the same per second, in GB
    copy_seconds       of the fastest device copy of n float32 values, run in turn
    ratio_to_copy      bytes per second over those of the copy, round by round
    """

    contender: str
    config: str
    operation: str
    n_payloads: int
    dtype: str
    n: int
    seconds: Spread
    n_bytes: int
    gb_per_second: float
    copy_seconds: Spread
    ratio_to_copy: Spread

    @classmethod
    def of(cls, contender: Contender, comparison: Comparison, n: int) -> "KernelRow":
        """The contender's row, with bytes per second and their ratio to the copy's."""
        share = contender.n_bytes / (8 * n)
        ratio = comparison.ratio
        return cls(
            contender=contender.label,
            config=contender.config,
            operation=contender.operation,
            n_payloads=contender.n_payloads,
            dtype=contender.dtype,
            n=n,
            seconds=comparison.seconds,
            n_bytes=contender.n_bytes,
            gb_per_second=contender.n_bytes / comparison.seconds.median / 1e9,
            copy_seconds=comparison.baseline,
            ratio_to_copy=Spread(share * ratio.median, share * ratio.p20, share * ratio.p80),
        )


def kernel_rows(options: KernelOptions, progress: Progress = no_progress) -> list[KernelRow]:
    """Run the suite: every contender is checked, then timed."""
    with arrays(options) as (v, out):
        yardstick = fastest_copy(v, out, options.repeats)
        rows = []
        for contender in contenders(options, v, out):
            progress(f"{contender.label} {contender.operation}")
            contender.call()
            contender.check()
            times = compare_graphs(TimedGraph(contender.call), yardstick, options.repeats)
            rows.append(KernelRow.of(contender, times, v.numel()))
    return rows


def fastest_copy(v: torch.Tensor, out: torch.Tensor, repeats: int) -> TimedGraph:
    """The yardstick: the driver's copy or our own kernel's, whichever is faster on this GPU."""
    driver, ours = TimedGraph(partial(out.copy_, v)), TimedGraph(kernel_copy(v, out))
    return ours if compare_graphs(ours, driver, repeats).ratio.median > 1 else driver


@contextmanager
def arrays(options: KernelOptions) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Normal values (n,) and somewhere to write as many, both float32, on the device."""
    device = torch.device(options.device)
    with torch.cuda.device(device):
        v = torch.randn(options.size, device=device, generator=torch.Generator(device).manual_seed(0))
        yield v, torch.empty_like(v)


def contenders(options: KernelOptions, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Copies, then for each scheme its two kernels."""
    yield from copies(v, out)
    for scheme in schemes(options.bucket_size, options.schemes):
        yield from coded(scheme, v, out)


def copies(v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """The driver's copy and our kernel's in float32, the driver's in bfloat16, and the cast between the two."""
    n = v.numel()
    half, other = v.bfloat16(), torch.empty(n, dtype=torch.bfloat16, device=v.device)
    runs = {
        ("copy_ fp32", "float32", 8 * n): (out, v),
        ("copy_ bf16", "bfloat16", 4 * n): (other, half),
        ("cast bf16", "float32", 6 * n): (other, v),
    }
    same = partial(check_equal, out, v, "kernel copy fp32")
    yield Contender("kernel copy fp32", "one Triton kernel", COPY, 0, "float32", 8 * n, kernel_copy(v, out), same)
    for (label, dtype, n_bytes), (target, source) in runs.items():
        call = partial(target.copy_, source)
        yield Contender(
            label, "preallocated", COPY, 0, dtype, n_bytes, call, partial(check_equal, target, source, label)
        )


def kernel_copy(v: torch.Tensor, out: torch.Tensor) -> Call:
    """Our own kernel's copy."""
    return partial(select("gpu", v.device).scale, v, out, 1.0, False)


def coded(scheme: Scheme, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Round and pack; then unpack and add up 1, 4 and 8 payloads, each of another rank."""
    q: Any = scheme.quantizer
    n, size, kernels = v.numel(), q.bucket_size, select("gpu", v.device)
    data = torch.empty(max(PAYLOADS), -(-packed_bytes(n, q.bits, size) // 16) * 16, dtype=torch.uint8, device=v.device)
    data = data[:, : packed_bytes(n, q.bits, size)]
    norms = torch.empty(max(PAYLOADS), n_buckets(n, size), dtype=torch.float32, device=v.device)
    for p in range(max(PAYLOADS)):
        kernels.quantize_pack(v, q.norm, q.grid, size, KEY + p, norms[p], data[p])
    packed = data.shape[1] + 4 * norms.shape[1]
    shared = {"label": scheme.label, "config": repr(q), "dtype": "float32"}
    yield Contender(
        operation=PACK,
        n_payloads=0,
        n_bytes=4 * n + packed,
        call=partial(kernels.quantize_pack, v, q.norm, q.grid, size, KEY, norms[0], data[0]),
        check=partial(check_pack, scheme.label, q, v, norms[0], data[0]),
        **shared,
    )
    for count in PAYLOADS:
        rows = (data[:count], norms[:count])
        yield Contender(
            operation=SUM,
            n_payloads=count,
            n_bytes=4 * n + count * packed,
            call=partial(kernels.unpack_dequantize, *rows, q.grid, size, out, 1 / count, False),
            check=partial(check_sum, scheme.label, q, *rows, out),
            **shared,
        )


def check_pack(label: str, q: Bucketed, v: torch.Tensor, norms: torch.Tensor, data: torch.Tensor) -> None:
    """The first buckets' bytes are those of the reference on the CPU, given the norms, and the norms are right."""
    reference, device = select("reference", torch.device("cpu")), torch.device("cpu")
    n = min(v.numel(), CHECKED_BUCKETS * q.bucket_size)
    some, theirs = v[:n].to(device), norms[: n_buckets(n, q.bucket_size)].to(device)
    if not torch.allclose(theirs, reference.norms(some, q.bucket_size, q.norm), rtol=2.0**-23):
        raise WrongResult(f"{label}: norms differ from the reference")
    symbols = reference.quantize(some, theirs, q.grid, q.bucket_size, KEY)
    ours = reference.pack(symbols, q.bits, q.bucket_size)
    if not torch.equal(data[: ours.numel()].to(device), ours):
        raise WrongResult(f"{label}: packed symbols differ from the reference")


def check_sum(label: str, q: Bucketed, data: torch.Tensor, norms: torch.Tensor, out: torch.Tensor) -> None:
    """The first buckets' sums are those of the reference on the CPU."""
    reference, device = select("reference", torch.device("cpu")), torch.device("cpu")
    n = min(out.numel(), CHECKED_BUCKETS * q.bucket_size)
    rows = data[:, : packed_bytes(n, q.bits, q.bucket_size)].to(device)
    ours = torch.empty(n)
    some = norms[:, : n_buckets(n, q.bucket_size)].to(device)
    reference.unpack_dequantize(rows, some, q.grid, q.bucket_size, ours, 1 / len(data), False)
    check_equal(out[:n].to(device), ours, label)


def check_equal(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    """Value by value."""
    if not torch.equal(ours, theirs.to(ours.dtype)):
        raise WrongResult(f"{label}: the values differ from the reference")


def _who(row: Row) -> str:
    payloads = number_in(row, "n_payloads")
    said = f", {payloads:.0f} payload{'s' if payloads != 1 else ''}" if payloads else ""
    dtype = text_in(row, "dtype", "float32")
    return f"{text_in(row, 'contender', '?')}{said}" + (f", {dtype}" if dtype != "float32" else "")


PRESENTATION = Presentation(
    "GPU kernels",
    [
        RowTable(
            "GPU kernels",
            [
                text("contender", "contender"),
                text("operation", "operation"),
                Column("payloads", "n_payloads", "n"),
                Column("ms", "seconds", "ms", 4),
                Column("GB/s", "gb_per_second", digits=4),
                Column("÷ copy", "ratio_to_copy"),
            ],
            "GB/s of the bytes that must be read and written once.",
        ),
        speedups("a copy on the same GPU, in bytes moved", "ratio_to_copy", group="operation", label=_who),
        BarChart("GB moved per second", "gb_per_second", "GB/s", group="operation", label=_who),
    ],
    "Bytes that must be read and written once, beside the fastest copy.",
)
SUITE = Suite(
    "kernels",
    KernelOptions,
    kernel_rows,
    """Bytes per second of every GPU kernel, next to a copy on the same GPU. Needs a CUDA GPU.

    Every kernel is compared with the reference before it is timed.
    """,
    more=lambda options, rows: goals_of_rows("kernels", rows),
)
