"""The suite `kernels`: GPU kernels beside a copy on the same GPU, in bytes moved per second.

Times are of one replay of a CUDA graph of one call, between two events, on data far larger than the second-level cache.
The copy and the contender take turns, so that a ratio compares neighbouring measurements.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.kernels_contenders import NAMES, Call, Contender, contenders, kernel_copy, members, n_contenders
from laconic.bench.protocol import Comparison, Spread
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.errors import InvalidOption, Option
from laconic.kernels import select
from laconic.options import check_counts, option
from laconic.report import BarChart, Column, Presentation, RowTable, speedups, text
from laconic.report.values import Row, number_in, text_in


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What to run."""

    device: str = option("cuda", "The GPU to run on: cuda, cuda:1, ...")
    size: int = option(2**28, "Number of values, far above the cache.")
    bucket_size: int = option(8192, "Values that share one norm.")
    repeats: int = option(21, "Timed rounds of each kernel.")
    schemes: Sequence[str] = option(NAMES, f"Only these: {', '.join(NAMES)}; or nuqsgd-4, ...", metavar="NAME,...")

    def __post_init__(self) -> None:
        list(members(self.bucket_size, self.schemes))
        check_counts(self)
        if not self.device.startswith("cuda"):
            raise InvalidOption(Option("device"), f" must be a CUDA GPU, such as cuda; got {self.device!r}")
        if not torch.cuda.is_available():
            raise InvalidOption("the suite kernels needs a CUDA GPU, and torch sees none here")
        select("gpu", torch.device(self.device))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar, one for each row."""
        return n_contenders(self.bucket_size, self.schemes)


class TimedCall:
    """A call that is timed on the GPU, including what it waits for."""

    def __init__(self, call: Call) -> None:
        self._run = call

    def begin(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Run once between two events, to be read after a synchronisation."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        self._run()
        last.record()
        return first, last


class TimedGraph(TimedCall):
    """A call captured in a CUDA graph, timed by replaying it."""

    def __init__(self, call: Call) -> None:
        call()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            call()
        super().__init__(self._graph.replay)


def compare_graphs(contender: TimedCall, baseline: TimedCall, repeats: int, warmup: int = 2) -> Comparison:
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
class KernelRow:
    """One kernel on one size.

    contender, config  short label and full configuration
    operation          that was timed
    n_payloads         payloads added up; 0 where none are
    dtype              of the values
    n                  number of values
    seconds            of one call
    n_bytes            that must be read and written once
    gb_per_second      n_bytes per second, in GB
    copy_seconds       of the fastest device copy of n float32 values, run in turn
    ratio_to_copy      bytes per second over those of the copy, round by round
    billions           10⁹ values per second, counting each payload's values
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
    billions: float | None = None

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
            billions=1e-9 * n * max(1, contender.n_payloads) / comparison.seconds.median,
        )


def kernel_rows(options: KernelOptions, progress: Progress = no_progress) -> Iterator[KernelRow]:
    """Run the suite: every contender is checked, then timed."""
    with arrays(options) as (v, out):
        yardstick = fastest_copy(v, out, options.repeats)
        for contender in contenders(options.bucket_size, options.schemes, v, out):
            progress(f"{contender.label} {contender.operation}")
            contender.call()
            contender.check()
            timed = TimedCall(contender.call) if contender.waits else TimedGraph(contender.call)
            times = compare_graphs(timed, yardstick, options.repeats)
            yield KernelRow.of(contender, times, v.numel())


def fastest_copy(v: torch.Tensor, out: torch.Tensor, repeats: int) -> TimedGraph:
    """The baseline: the driver's copy or our own kernel's, whichever is faster on this GPU."""
    driver, ours = TimedGraph(partial(out.copy_, v)), TimedGraph(kernel_copy(v, out))
    return ours if compare_graphs(ours, driver, repeats).ratio.median > 1 else driver


@contextmanager
def arrays(options: KernelOptions) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Normal values (n,) and an output buffer (n,), both float32 on the device."""
    device = torch.device(options.device)
    with torch.cuda.device(device):
        v = torch.randn(options.size, device=device, generator=torch.Generator(device).manual_seed(0))
        yield v, torch.empty_like(v)


def _label(row: Row) -> str:
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
                Column("10⁹ values/s", "billions"),
            ],
            "GB/s of the bytes that must be read and written once.",
        ),
        speedups("a copy on the same GPU, in bytes moved", "ratio_to_copy", group="operation", label=_label),
        BarChart("GB moved per second", "gb_per_second", "GB/s", group="operation", label=_label),
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
)
