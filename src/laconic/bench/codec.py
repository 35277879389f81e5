"""The suite `codec`: speed, size and error of codecs and coders, beside a torch copy of the same values."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from laconic import coders as coders_by
from laconic.bench.protocol import Run, Spread, check_codec, check_symbols, compare, measure, one_thread, relative_error
from laconic.bench.ranks import scheme_of
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import digits_gradient
from laconic.codec import Codec, make_codec
from laconic.coders import FixedWidth, Shape, SymbolCoder
from laconic.data import read_gradient
from laconic.errors import InvalidOption, Option
from laconic.kernels import Stream, select
from laconic.options import check_counts, check_names, option
from laconic.quantizers import NUQSGD, Bucketed, QSGDInf, Quantizer, Rotated
from laconic.report import BarChart, Column, Presentation, RowTable, Text, speedups, text
from laconic.report import Row as JsonRow
from laconic.report.values import number_in, rows_in, text_in
from laconic.units import shown

LEVELS = tuple(f"{scheme}-{bits}" for bits in (2, 4, 8) for scheme in ("qsgd", "nuqsgd", "qsgdinf"))
LABELS = ("fp32", "bf16", *LEVELS, "sign", "ef-sign", "rotated-2", "rotated-4", "dithered-1", "dithered-0.1")
NAMES = tuple(dict.fromkeys(map(scheme_of, LABELS)))
PROBLEMS = ("normal", "digits")
CODERS = ("fixed", "elias", "huffman", "rans")
MAX_SYMBOLS = 2**24
"""Symbols that coders are timed on: enough to leave the caches."""
BYTES_PER_VALUE = 16
"""Memory needed: the values, their copy, a payload as large as they are, an error memory."""
STREAM = Stream(seed=1)
BUSY = 1.5
"""Slowest over fastest copy beside the contenders, above which the machine was busy."""


def schemes(bucket_size: int, only: Sequence[str] = NAMES) -> dict[str, Quantizer]:
    """Quantizers by label, narrow before wide, of the schemes in `only`.

    >>> list(schemes(64, only=["nuqsgd"]))
    ['nuqsgd-2', 'nuqsgd-4', 'nuqsgd-8', 'nuqsgd-4 p=0.7']
    """
    check_names(only, NAMES, "scheme")
    found = {label: make_codec(label, bucket_size).quantizer for label in LABELS}
    found["nuqsgd-4 p=0.7"] = NUQSGD(bits=4, bucket_size=bucket_size, p=0.7)
    return {label: quantizer for label, quantizer in found.items() if scheme_of(label) in only}


@dataclass(frozen=True, slots=True)
class CodecOptions:
    """Options of the suite `codec`."""

    size: int = option(2**26, "Number of float32 values, as 1000000 or 2**20.")
    bucket_size: int = option(8192, "Values that share one norm.")
    repeats: int = option(11, "Timed rounds of each operation.")
    problem: str = option("normal", "normal (random values) or digits (a network's gradient, repeated).")
    schemes: Sequence[str] = option(NAMES, f"Only these: {', '.join(NAMES)}.", metavar="NAME,...")
    coders: Sequence[str] = option(CODERS, f"Only these: {', '.join(CODERS)}.", metavar="NAME,...")
    gradient: str | None = option(None, "On a gradient of your own instead: its first values.", metavar="FILE.npy")

    def __post_init__(self) -> None:
        check_counts(self)
        if self.gradient:
            read_gradient(self.gradient)
        check_names([self.problem], PROBLEMS, "problem")
        check_names(self.coders, CODERS, "coder")
        schemes(self.bucket_size, self.schemes)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.size * BYTES_PER_VALUE > memory:
            raise InvalidOption(
                Option("size"),
                f" {self.size} needs about {self.size * BYTES_PER_VALUE / 1e9:.1f} GB, this machine has "
                f"{memory / 1e9:.1f} GB; {memory // BYTES_PER_VALUE} values would fit",
            )

    @property
    def of(self) -> str:
        """Name of the values: the problem, or the file."""
        return Path(self.gradient).name if self.gradient else self.problem

    @property
    def n_parts(self) -> int:
        return 1 + len(schemes(self.bucket_size, self.schemes)) + len(coder_cases(self.bucket_size, self.coders))


@dataclass(frozen=True, slots=True)
class Row:
    """One operation of one contender on one problem.

    problem, n           the values, and how many
    contender, config    short label and full configuration
    via                  "torch" (a baseline), "codec" (the public API; allocates its result), "kernel" (the bare kernel
                         into preallocated memory), "coder" (the lossless half alone)
    n_threads            threads it could use
    seconds              of one call
    values_per_second    n / median seconds; None for the contender that does nothing
    gb_per_second        the same in GB of the values read or written (float32), or of the symbols (a byte each)
    copy_seconds         of a torch `copy_` of the same array, run just before in every round
    ratio_to_copy        speed over that of the copy, round by round
    bits_per_coordinate  on the wire: of the whole payload for a codec, of the coded symbols for a coder
    entropy              of the symbols, in bits, for a coder
    error                ‖decoded − v‖² / ‖v‖² of this run
    bound                proved upper bound of its mean
    """

    problem: str
    n: int
    contender: str
    config: str
    via: str
    operation: str
    n_threads: int
    seconds: Spread
    values_per_second: float | None = None
    gb_per_second: float | None = None
    copy_seconds: Spread | None = None
    ratio_to_copy: Spread | None = None
    bits_per_coordinate: float | None = None
    entropy: float | None = None
    error: float | None = None
    bound: float | None = None

    @classmethod
    def timed(cls, options: CodecOptions, call: Run, v: torch.Tensor, out: torch.Tensor, **fields: Any) -> "Row":
        """A row for `call`, timed beside a copy of v (n,) to `out`; `fields` are the row's other fields."""
        found = compare(call, lambda: out.copy_(v), repeats=options.repeats)
        per_second = v.numel() / found.seconds.median
        return cls(
            problem=options.of,
            n=v.numel(),
            n_threads=torch.get_num_threads(),
            seconds=found.seconds,
            values_per_second=per_second,
            gb_per_second=per_second * v.element_size() / 1e9,
            copy_seconds=found.baseline,
            ratio_to_copy=found.ratio,
            **fields,
        )

    @property
    def bits_over_entropy(self) -> float | None:
        """Coded size over the entropy of the symbols; 1 is optimal."""
        if self.bits_per_coordinate is None or not self.entropy:
            return None
        return self.bits_per_coordinate / self.entropy


def codec_rows(options: CodecOptions, progress: Progress = no_progress) -> list[Row]:
    """Run the suite on the values that the options name."""
    return rows_of(values(options), options, progress)


def rows_of(v: torch.Tensor, options: CodecOptions, progress: Progress) -> list[Row]:
    """Baselines, then codecs and bare kernels of each scheme, then coders on one core; every result is checked."""
    scratch = torch.zeros_like(v)
    progress("baselines")
    rows = baselines(options, v, scratch)
    for label, scheme in schemes(options.bucket_size, options.schemes).items():
        progress(label)
        rows += scheme_rows(label, scheme, options, v, scratch)
    for quantizer, coder in coder_cases(options.bucket_size, options.coders):
        progress(f"{coder} on {quantizer.name}-{quantizer.bits}")
        rows += coder_rows(quantizer, coders_by.by_name(coder), options, v[:MAX_SYMBOLS])
    return rows


def values(options: CodecOptions) -> torch.Tensor:
    """The values (n,) of the problem, the same in every run, or of the file."""
    n = options.size
    if options.gradient:
        return read_gradient(options.gradient)[:n]
    if options.problem == "normal":
        return torch.randn(n, generator=torch.Generator().manual_seed(0))
    gradient = digits_gradient()
    return gradient.repeat(-(-n // gradient.numel()))[:n]


def baselines(options: CodecOptions, v: torch.Tensor, scratch: torch.Tensor) -> list[Row]:
    """Rows of a do-nothing call, a copy (against itself: the noise of the machine) and a cast to bfloat16."""
    half = torch.empty_like(v, dtype=torch.bfloat16)
    calls: dict[tuple[str, str], Run] = {
        ("copy_ fp32", "copy"): lambda: scratch.copy_(v),
        ("cast bf16", "encode"): lambda: half.copy_(v),
        ("cast bf16", "decode + add"): lambda: scratch.add_(half),
    }
    nothing = measure(lambda: None, repeats=options.repeats)
    n_threads = torch.get_num_threads()
    rows = [Row(options.of, v.numel(), "do nothing", "lambda: None", "torch", "nothing", n_threads, nothing)]
    for (contender, operation), call in calls.items():
        bits = 16.0 if "bf16" in contender else 32.0
        about = {"contender": contender, "config": "preallocated", "via": "torch", "operation": operation}
        rows.append(Row.timed(options, call, v, scratch, bits_per_coordinate=bits, **about))
    return rows


def scheme_rows(label: str, q: Quantizer, options: CodecOptions, v: torch.Tensor, scratch: torch.Tensor) -> list[Row]:
    """Time a scheme's encode and decode of v (n,), through `Codec` and by bare kernels; overwrites `scratch`."""
    check_codec(label, q, v, STREAM)
    codec = Codec(q)
    memory = codec.new_memory(v)
    payload = codec.encode(v, STREAM, memory)
    codec.decode_add(payload, scratch.zero_())
    about = {"contender": label, "config": repr(q), "bits_per_coordinate": payload.bits_per_coordinate}
    about |= {"error": relative_error(scratch, v), "bound": q.variance_bound(v.numel())}
    calls: dict[tuple[str, str], Run] = {
        ("codec", "encode"): lambda: codec.encode(v, STREAM, memory),
        ("codec", "decode + add"): lambda: codec.decode_add(payload, scratch),
        **bare(q, v, scratch),
    }
    return [
        Row.timed(options, call, v, scratch, via=via, operation=operation, **about)
        for (via, operation), call in calls.items()
    ]


def bare(q: Quantizer, v: torch.Tensor, out: torch.Tensor) -> dict[tuple[str, str], Run]:
    """The two fused kernels, into preallocated memory; none for a scheme without kernels or a wrapper of a scheme."""
    if not isinstance(q, Bucketed | Rotated):
        return {}
    key, norms = STREAM.key, torch.zeros(q.n_norms(v.numel()))
    data = torch.zeros(FixedWidth().max_bytes(Shape(v.numel(), q.bits, q.bucket_size)), dtype=torch.uint8)
    pack, unpack = ("kernel", "quantize + pack"), ("kernel", "unpack + dequantize + add")
    kernels = select("auto", v.device)
    if isinstance(q, Rotated):
        sizes, keys = (q.bits, q.bucket_size), torch.from_numpy(np.array([[key]], np.uint64).view(np.int32))
        return {
            pack: lambda: kernels.rotate_pack(v, *sizes, key, norms, data),
            unpack: lambda: kernels.unpack_rotate(data[None], norms[None], keys, *sizes, out, 1.0, True),
        }
    return {
        pack: lambda: kernels.quantize_pack(v, q.norm, q.grid, q.bucket_size, key, norms, data),
        unpack: lambda: kernels.unpack_dequantize(data[None], norms[None], q.grid, q.bucket_size, out, 1.0, True),
    }


def coder_cases(bucket_size: int, only: Sequence[str]) -> list[tuple[Bucketed, str]]:
    """All coders on 4-bit NUQSGD; on 8-bit QSGDInf those that adapt to a large alphabet.

    >>> [coder for _, coder in coder_cases(64, only=["elias", "rans"])]
    ['elias', 'rans', 'rans']
    """
    cases: list[tuple[Bucketed, str]] = [(NUQSGD(bits=4, bucket_size=bucket_size), coder) for coder in CODERS]
    cases += [(QSGDInf(bits=8, bucket_size=bucket_size), coder) for coder in ("huffman", "rans")]
    return [(quantizer, coder) for quantizer, coder in cases if coder in only]


def coder_rows(quantizer: Bucketed, coder: SymbolCoder, options: CodecOptions, v: torch.Tensor) -> list[Row]:
    """Time a lossless coder's encode and decode of the symbols of v (n,), on one core."""
    label = f"{coder.name} on {quantizer.name}-{quantizer.bits}"
    symbols = quantizer.quantize(v, STREAM).symbols
    shape, kernels = Shape(v.numel(), quantizer.bits, quantizer.bucket_size), select("auto", v.device)
    data, target = coder.encode(symbols, shape, kernels), torch.zeros_like(symbols)
    check_symbols(label, coder.decode(data, shape, kernels), symbols)
    about: dict[str, Any] = {"contender": label, "config": f"{coder!r} on {quantizer!r}", "via": "coder"}
    about["bits_per_coordinate"] = 8 * data.numel() / v.numel()
    about["entropy"] = empirical_entropy(symbols, quantizer.bits)
    calls: dict[str, Run] = {
        "encode": lambda: coder.encode(symbols, shape, kernels),
        "decode": lambda: coder.decode(data, shape, kernels),
    }
    with one_thread():
        return [Row.timed(options, call, symbols, target, operation=name, **about) for name, call in calls.items()]


def empirical_entropy(symbols: torch.Tensor, bits: int) -> float:
    """Σ −f log₂ f over the relative frequencies f of the symbols, in bits per symbol.

    >>> empirical_entropy(torch.tensor([0, 1, 2, 3], dtype=torch.uint8), bits=2)
    2.0
    """
    counts = select("auto", symbols.device).histogram(symbols, bits).double()
    shares = counts[counts > 0] / max(1, symbols.numel())
    return abs(float(-(shares * shares.log2()).sum()))


def speeds(rows: list[JsonRow], *, coders: bool = False) -> list[JsonRow]:
    """One row per codec, or per coder: its first row, plus the speeds of each operation under "encode ÷ copy" etc."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        if row.get("values_per_second") and is_coder(row) == coders:
            operation = {"copy": "encode"}.get(text_in(row, "operation"), text_in(row, "operation"))
            merged = found.setdefault(text_in(row, "contender"), dict(row))
            merged[f"{operation} GB/s"] = row.get("gb_per_second")
            merged[f"{operation} ÷ copy"] = row.get("ratio_to_copy")
            merged[f"{operation} values/s"] = row.get("values_per_second")
    return list(found.values())


def is_coder(row: JsonRow) -> bool:
    """Whether a row is of a lossless coder alone."""
    return text_in(row, "via") == "coder"


def _noise(document: JsonRow) -> list[str]:
    """A sentence on how much the speed of the copy varied; it runs beside every contender and should be constant."""
    times = [(number_in(row, "n"), number_in(row, "copy_seconds")) for row in rows_in(document) if not is_coder(row)]
    copies = [4e-9 * n / seconds for n, seconds in times if n and seconds]
    if not copies:
        return []
    spread = f"copy_ ran at {shown(min(copies))} to {shown(max(copies))} GB/s beside the contenders"
    busy = max(copies) > BUSY * min(copies)
    return [f"{spread}: the machine was busy, so take ratios with care" if busy else spread]


def _working(rows: list[JsonRow]) -> list[JsonRow]:
    return [row for row in rows if text_in(row, "operation") not in ("nothing", "copy")]


def _firsts(rows: list[JsonRow]) -> list[JsonRow]:
    """The first row of each contender, which has its bits and error."""
    return list({text_in(row, "contender"): row for row in reversed(_working(rows))}.values())[::-1]


def _label(row: JsonRow) -> str:
    via = text_in(row, "via")
    return text_in(row, "contender", "?") + (f", {via}" if via in ("codec", "kernel") else "")


PRESENTATION = Presentation(
    "Codecs and coders",
    [
        Text(_noise),
        RowTable(
            "Values to bytes and back",
            [
                text("scheme", "contender"),
                Column("bits", "bits_per_coordinate"),
                Column("error", "error"),
                Column("encode, GB/s", "encode GB/s"),
                Column("÷ copy", "encode ÷ copy"),
                Column("decode + add, GB/s", "decode + add GB/s"),
                Column("÷ copy", "decode + add ÷ copy"),
                Column("quantize + pack ÷ copy", "quantize + pack ÷ copy"),
                Column("unpack + dequantize + add ÷ copy", "unpack + dequantize + add ÷ copy"),
            ],
            "encode, decode + add: Codec, which allocates its payload; the last two columns: the bare kernels, into "
            "memory that is there. GB/s of float32 values. ÷ copy: speed over a torch copy_ just before.",
            rows=speeds,
        ),
        RowTable(
            "Symbols to bytes and back, on one core",
            [
                text("coder", "contender"),
                Column("entropy", "entropy", digits=4),
                Column("bits", "bits_per_coordinate", digits=4),
                Column("bits ÷ entropy", "bits_over_entropy", digits=4),
                Column("encode, M symbols/s", "encode values/s", "M"),
                Column("decode, M symbols/s", "decode values/s", "M"),
            ],
            rows=partial(speeds, coders=True),
        ),
        BarChart(
            "Bits per coordinate on the wire",
            "bits_per_coordinate",
            "bits",
            limit=("entropy", "entropy of the symbols"),
            reference=32.0,
            note="float32 has 32.",
            rows=_firsts,
        ),
        BarChart(
            "Variance: error ‖Q(v) − v‖² / ‖v‖²",
            "error",
            log=True,
            limit=("bound", "proved bound"),
            rows=lambda rows: [row for row in _firsts(rows) if row.get("error")],
        ),
        speedups("a torch copy of the same values", "ratio_to_copy", group="operation", label=_label, rows=_working),
    ],
    "Every scheme and coder beside a copy of the same values.",
)
SUITE = Suite(
    "codec",
    CodecOptions,
    codec_rows,
    """Speed and size of every scheme and coder, next to a torch copy of the same values.

    Takes a few minutes at the default size. Every operation is checked before it is timed. With
    --gradient: bits and errors are those on a gradient of your own.
    """,
)
