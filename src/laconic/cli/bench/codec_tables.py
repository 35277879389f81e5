"""The tables of `laconic bench codec`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType

from laconic.bench import Environment, Options, Row
from laconic.report.table import Column, number, table

PACK, UNPACK = "quantize + pack", "unpack + dequantize + add"
BUSY = 1.5
"""A copy that varies by more than this from one contender to the next had to share its cores."""

Group = dict[str, Row]
"""The rows of one contender, by operation."""


def page(rows: Sequence[Row], options: Options, environment: Environment) -> Iterator[RenderableType]:
    """All that a person is shown."""
    here = environment
    yield (
        f"{here.cpu}, {here.n_threads} threads on {here.n_cores} cores; python {here.python}, torch {here.torch}, "
        f"numba {here.numba}, laconic {here.laconic}, commit {(here.commit or 'none')[:12]}; {here.date}"
    )
    yield (
        f"{options.size} values ({options.problem}), buckets of {options.bucket_size}, medians of {options.repeats} "
        "rounds; 20th and 80th percentiles are in --json"
    )
    yield f"{noise(rows)}\n"
    yield codecs([row for row in rows if row.via != "coder"])
    coding = [row for row in rows if row.via == "coder"]
    if coding:
        yield ""
        yield coders(coding)


def noise(rows: Sequence[Row]) -> str:
    """How steady the yardstick was: the copy is run beside every contender, and should take as long each time."""
    copies = [4e-9 * row.n / row.copy_seconds.median for row in rows if row.copy_seconds and row.via != "coder"]
    spread = f"copy_ ran at {number(min(copies))} to {number(max(copies))} GB/s beside the contenders"
    busy = max(copies) > BUSY * min(copies)
    return f"{spread}: the machine was busy, so take ratios with care" if busy else spread


def codecs(rows: Sequence[Row]) -> RenderableType:
    """One line a scheme: through `Codec`, then the bare kernels."""
    columns: list[Column[Group]] = [
        Column("scheme", lambda g: _any(g).contender, "left"),
        Column("bits", lambda g: number(_any(g).bits_per_coordinate)),
        Column("error", lambda g: number(_any(g).error)),
        Column("encode\nGB/s", _cell(_speed, "encode", "copy")),
        Column("÷copy", _cell(_ratio, "encode", "copy")),
        Column("decode\n+ add\nGB/s", _cell(_speed, "decode + add")),
        Column("÷copy", _cell(_ratio, "decode + add")),
        Column("quant.\n+ pack\n÷copy", _cell(_ratio, PACK)),
        Column("unpack\n+ dequant.\n+ add\n÷copy", _cell(_ratio, UNPACK)),
    ]
    return table(
        "Values to bytes and back, at fixed width",
        columns,
        _by_contender([row for row in rows if row.values_per_second]),
        "encode, decode + add: Codec, which allocates its payload; the last two columns: the bare kernels, into "
        "memory that is there. GB/s of float32 values. ÷copy: speed over a torch copy_ just before.",
    )


def coders(rows: Sequence[Row]) -> RenderableType:
    """One line a coder."""
    columns: list[Column[Group]] = [
        Column("coder", lambda g: _any(g).contender, "left"),
        Column("entropy", lambda g: number(_any(g).entropy, 4)),
        Column("bits", lambda g: number(_any(g).bits_per_coordinate, 4)),
        Column("bits ÷\nentropy", lambda g: number(_any(g).bits_over_entropy, 4)),
        Column("encode\nM symbols/s", _cell(_millions, "encode")),
        Column("decode\nM symbols/s", _cell(_millions, "decode")),
    ]
    return table(f"Symbols to bytes and back, {rows[0].n} symbols on one core", columns, _by_contender(rows))


def _by_contender(rows: Sequence[Row]) -> list[Group]:
    return [{row.operation: row for row in group} for _, group in groupby(rows, key=lambda row: row.contender)]


def _any(group: Group) -> Row:
    return next(iter(group.values()))


def _cell(show: Callable[[Row], str], *operations: str) -> Callable[[Group], str]:
    """The cell of the first of these operations that the contender has."""

    def cell(group: Group) -> str:
        return next((show(group[operation]) for operation in operations if operation in group), "–")

    return cell


def _speed(row: Row) -> str:
    return number(row.gb_per_second)


def _ratio(row: Row) -> str:
    return number(row.ratio_to_copy.median if row.ratio_to_copy else None)


def _millions(row: Row) -> str:
    return number(row.values_per_second / 1e6 if row.values_per_second else None)
