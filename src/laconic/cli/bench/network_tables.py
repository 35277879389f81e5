"""The tables of `laconic bench exchange` and `laconic bench ddp`."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from laconic.bench import DDPOptions, DDPRow, Environment, ExchangeOptions, ExchangeRow, Spread
from laconic.cli.bench.tables import between, machine, noise
from laconic.report.table import Column, number, table


def page(
    rows: Sequence[ExchangeRow] | Sequence[DDPRow],
    options: ExchangeOptions | DDPOptions,
    environment: Environment,
    show: Callable[[Sequence[ExchangeRow | DDPRow]], RenderableType],
) -> Iterator[RenderableType]:
    """All that a person is shown."""
    first = rows[0]
    yield machine(environment)
    where = f"hosts on links of {first.rate}, emulated" if first.rate else "processes over loopback, unlimited"
    yield f"{first.ranks} ranks of one thread, {where}; {first.n} values; medians of {options.repeats} rounds"
    yield f"{noise(first.seconds)}\n"
    yield show(rows)
    yield ""
    yield phases(rows)


def exchange(rows: Sequence[ExchangeRow]) -> RenderableType:
    """One line a contender."""
    columns: list[Column[ExchangeRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("ms", lambda r: _ms(r.seconds.median)),
        Column("20–80 %", lambda r: between(r.seconds, 1e3)),
        Column("×\nfp32", lambda r: _times(r.speedup_over_fp32)),
        Column("×\nbf16", lambda r: _times(r.speedup_over_bf16)),
        Column("MB\nsent", lambda r: number(r.bytes_sent / 1e6)),
        Column("error", lambda r: number(r.nmse)),
    ]
    return table(
        "One average, everything included",
        columns,
        rows,
        "ms: the slowest rank's. × fp32, × bf16: speed over the all-reduce of the same round. MB sent by a rank. "
        "error: ‖result − mean‖² over the mean ‖v‖².",
    )


def ddp(rows: Sequence[DDPRow]) -> RenderableType:
    """One line a contender."""
    columns: list[Column[DDPRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("ms a\nstep", lambda r: _ms(r.seconds.median)),
        Column("20–80 %", lambda r: between(r.seconds, 1e3)),
        Column("×\nfp32", lambda r: _times(r.speedup_over_fp32)),
        Column("×\nbf16", lambda r: _times(r.speedup_over_bf16)),
        Column("MB\nsent", lambda r: number(None if r.bytes_sent is None else r.bytes_sent / 1e6)),
        Column("loss", lambda r: number(r.loss)),
        Column("÷\nfp32", lambda r: f"{r.loss_over_fp32:.3f}"),
    ]
    return table(
        f"A step of training, and the loss after {rows[0].n_steps}",
        columns,
        rows,
        "ms: the slowest rank's, forward to update. × fp32: speed over DDP as it is; × bf16: over PyTorch's bf16 hook. "
        "MB sent by a rank, where laconic sent them.",
    )


def phases(rows: Sequence[ExchangeRow | DDPRow]) -> RenderableType:
    """Where the time goes, one line a contender."""
    columns: list[Column[ExchangeRow | DDPRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("ms", lambda r: _ms(r.seconds.median)),
        Column("encode", lambda r: _ms(r.encode_seconds)),
        Column("wait", lambda r: _ms(r.wire_seconds)),
        Column("decode", lambda r: _ms(r.decode_seconds)),
    ]
    return table(
        "Where the time goes, in ms",
        columns,
        [row for row in rows if row.encode_seconds],
        "encode, wait (for other ranks), decode: sums over pieces that overlap, of the slowest rank in each.",
    )


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1e3 * seconds)


def _times(x: Spread) -> str:
    return number(x.median) if x.median < 1000 else ">999"
