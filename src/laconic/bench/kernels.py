"""The suite `kernels`: GPU kernels next to a copy on the same GPU, in bytes moved a second.

Times are of one replay of a CUDA graph that holds one call, between two events, with everything the call touches far
larger than the second-level cache; the copy and the contender take turns, so that a ratio is of neighbours in time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from laconic.bench.checks import WrongResult
from laconic.bench.cuda_timing import Call, Timed, compare
from laconic.bench.environment import GPUEnvironment
from laconic.bench.options import require_at_least, require_known
from laconic.bench.protocol import Comparison, Spread
from laconic.bench.schemes import Scheme, schemes
from laconic.kernels import Stream, select
from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.quantizers import Bucketed

__all__ = [
    "COPY", "NAMES", "PACK", "PAYLOADS", "SETTING", "SUM", "Contender", "GPUEnvironment", "KernelOptions", "KernelRow",
    "Timed", "arrays", "compare", "contenders", "fastest_copy", "kernel_rows", "row",
]  # fmt: skip

NAMES = ("nuqsgd", "qsgd", "qsgdinf", "sign")
PAYLOADS = (1, 4, 8)
COPY, PACK, SUM = "copy", "quantize + pack", "unpack + dequantize + sum"
CHECKED_BUCKETS = 16
KEY = Stream(seed=1).key
SETTING = "one H200, 2**28 float32 values, buckets of 8192; ÷ copy is bytes moved a second over the fastest copy's"


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What to run.

    device       "cuda", or "cuda:1" and so on
    size         number of values
    bucket_size  values that share a norm
    repeats      timed rounds
    schemes      names of schemes to run
    """

    device: str = "cuda"
    size: int = 2**28
    bucket_size: int = 8192
    repeats: int = 21
    schemes: Sequence[str] = field(default=NAMES)

    def __post_init__(self) -> None:
        require_known(self.schemes, NAMES, "scheme")
        require_at_least(1, self, "size", "bucket_size", "repeats")
        schemes(self.bucket_size, self.schemes)
        if not self.device.startswith("cuda"):
            raise ValueError(f"bench kernels runs on a CUDA GPU, such as --device cuda; got {self.device!r}")
        if not torch.cuda.is_available():
            raise ValueError("bench kernels needs a CUDA GPU, and torch sees none here")
        select("gpu", torch.device(self.device))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar, one a row."""
        return 4 + len(schemes(self.bucket_size, self.schemes)) * (1 + len(PAYLOADS))


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
    gb_per_second      the same a second, in GB
    copy_seconds       of the fastest device copy of n float32 values, run in turn
    ratio_to_copy      bytes a second over those of the copy, round by round
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


def kernel_rows(options: KernelOptions, begin: Callable[[str], None] = lambda label: None) -> list[KernelRow]:
    """Every contender, checked and then timed; `begin` is called with a label before each."""
    with arrays(options) as (v, out):
        yardstick = fastest_copy(v, out, options.repeats)
        rows = []
        for contender in contenders(options, v, out):
            begin(f"{contender.label} {contender.operation}")
            contender.call()
            contender.check()
            rows.append(row(contender, compare(Timed(contender.call), yardstick, options.repeats), v.numel()))
    return rows


def fastest_copy(v: torch.Tensor, out: torch.Tensor, repeats: int) -> Timed:
    """The yardstick: the driver's copy or our own kernel's, whichever is faster on this GPU."""
    driver, ours = Timed(partial(out.copy_, v)), Timed(_kernel_copy(v, out))
    return ours if compare(ours, driver, repeats).ratio.median > 1 else driver


def _kernel_copy(v: torch.Tensor, out: torch.Tensor) -> Call:
    return partial(select("gpu", v.device).scale, v, out, 1.0, False)


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
    same = partial(_require_same, out, v, "kernel copy fp32")
    yield Contender("kernel copy fp32", "one Triton kernel", COPY, 0, "float32", 8 * n, _kernel_copy(v, out), same)
    for (label, dtype, n_bytes), (target, source) in runs.items():
        call = partial(target.copy_, source)
        yield Contender(
            label, "preallocated", COPY, 0, dtype, n_bytes, call, partial(_require_same, target, source, label)
        )


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
    _require_same(out[:n].to(device), ours, label)


def _require_same(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    if not torch.equal(ours, theirs.to(ours.dtype)):
        raise WrongResult(f"{label}: the values differ from the reference")


def row(contender: Contender, comparison: Comparison, n: int) -> KernelRow:
    """The contender's row, with bytes a second and their ratio to the copy's."""
    share = contender.n_bytes / (8 * n)
    ratio = comparison.ratio
    return KernelRow(
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
