"""The tables of `python -m benchmarks decentralised`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from benchmarks.decentralised.goals import setting
from benchmarks.decentralised.suite import DecentralisedRow
from benchmarks.goals.outcome import Outcome, goals_table
from laconic.bench import Spread
from laconic.cli.bench.tables import between, machine, noise
from laconic.measure import Environment
from laconic.report.table import Column, number, table


def page(
    rows: Sequence[DecentralisedRow], outcomes: Sequence[Outcome], environment: Environment
) -> Iterator[RenderableType]:
    """All that a person is shown."""
    first = rows[0]
    yield machine(environment)
    yield f"{where(first)}; {first.n} values; {first.n_steps} steps"
    if first.seconds is not None:
        yield noise(first.seconds)
        yield ""
        yield speeds(rows)
    yield ""
    yield losses(rows)
    yield from goals_table(outcomes, setting(rows))


def where(row: DecentralisedRow) -> str:
    """What the nodes are and what is between them."""
    if row.simulated:
        return f"{row.ranks} nodes, simulated"
    if row.rate is None:
        return f"{row.ranks} ranks of one thread, processes over loopback, unlimited"
    slow = f", the last one's of {row.slow_rate}" if row.slow_rate else ""
    return f"{row.ranks} ranks of one thread, hosts on links of {row.rate}{slow}, emulated"


def speeds(rows: Sequence[DecentralisedRow]) -> RenderableType:
    """Seconds and bytes, one line a contender."""
    columns: list[Column[DecentralisedRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("ms a\nstep", lambda r: number(None if r.seconds is None else 1e3 * r.seconds.median)),
        Column("20–80 %", lambda r: between(r.seconds, 1e3)),
        Column("×\nfp32", lambda r: _times(r.speedup_over_fp32)),
        Column("× scatter\nreduce", lambda r: _times(r.speedup_over_scatter)),
        Column("MB\nsent", lambda r: number(r.bytes_sent / 1e6)),
        Column("MB by\nthe last", lambda r: number(None if r.slow_bytes_sent is None else r.slow_bytes_sent / 1e6)),
    ]
    return table(
        "A step of training",
        columns,
        rows,
        "ms: the slowest rank's, forward to update. × fp32: speed over DDP as it is; × scatter reduce: over nuqsgd-4 "
        "under DDP. MB sent by the rank that sends most, and by the last.",
    )


def losses(rows: Sequence[DecentralisedRow]) -> RenderableType:
    """Where training got to, one line a contender."""
    columns: list[Column[DecentralisedRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("loss at\nhalf", lambda r: number(r.losses[(len(r.losses) - 1) // 2])),
        Column("loss at\nthe end", lambda r: number(r.loss, 4)),
        Column("÷\nfp32", lambda r: _ratio(r.loss_over_fp32)),
        Column("MB sent\nin all", lambda r: number(r.bytes_sent * r.n_steps / 1e6)),
        Column("distance", lambda r: number(r.distance)),
    ]
    return table(
        "Loss of the average model",
        columns,
        rows,
        "distance: √(1/n Σ ‖x_i − x̄‖²) of the nodes' models from their average.",
    )


def _ratio(x: float | None) -> str:
    return ">999" if x is None or x >= 1000 else f"{x:.4f}"


def _times(x: Spread | None) -> str:
    return number(None if x is None else x.median)
