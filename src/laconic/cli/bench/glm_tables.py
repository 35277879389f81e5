"""The tables of `laconic bench glm`."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from laconic.bench import Environment
from laconic.bench.glm.losses import losses
from laconic.bench.glm.suite import GLMOptions, GLMRow
from laconic.cli.bench.tables import between, lost, machine, noise, percent
from laconic.report.table import Column, number, table


def page(rows: Sequence[GLMRow], options: GLMOptions, environment: Environment) -> Iterator[RenderableType]:
    """All that a person is shown of iterations on ranks."""
    yield machine(environment)
    where = f"hosts on links of {options.rate}, emulated" if options.rate else "processes over loopback, unlimited"
    yield (
        f"{options.ranks} ranks of one thread, {where}; batches of {options.batch_size}; "
        f"medians of {options.repeats} rounds of {options.iterations} iterations"
    )
    yield f"{noise(rows[0].seconds)}\n"
    for problem in dict.fromkeys(row.problem for row in rows):
        yield iterations([row for row in rows if row.problem == problem])
        yield ""
    yield from lost(losses(rows))


def iterations(rows: Sequence[GLMRow]) -> RenderableType:
    """One line a contender."""
    first = rows[0]
    columns: list[Column[GLMRow]] = [
        Column("contender", lambda r: r.contender, "left"),
        Column("µs", lambda r: _us(r.seconds.median)),
        Column("20–80 %", lambda r: between(r.seconds, 1e6)),
        Column("×\nfp32", lambda r: number(r.speedup_over_fp32.median)),
        Column("×\nbf16", lambda r: number(r.speedup_over_bf16.median)),
        Column("CPU\nµs", lambda r: _us(r.cpu_seconds)),
        Column("mes-\nsages", lambda r: number(r.messages)),
        Column("bytes\nsent", lambda r: number(r.bytes_sent)),
        Column("loss\ngap %", lambda r: percent(r.loss_gap)),
    ]
    return table(
        f"{first.problem}: {first.n_rows:,} × {first.n_features:,}, {first.family}; an iteration",
        columns,
        rows,
        f"µs: the slowest rank's. × fp32, × bf16: speed over sgd fp32 and sgd C in the same round. CPU µs, messages, "
        f"bytes: of a rank. loss gap: above that of sgd fp32 after {first.n_iterations} iterations on the same "
        "batches. no messages: the same work, each rank alone.",
    )


def _us(seconds: float) -> str:
    return number(1e6 * seconds)
