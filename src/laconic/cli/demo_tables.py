"""The tables of `laconic demo`, and what they say."""

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType

from laconic.bench import Finding, findings
from laconic.bench.glm.suite import GLMRow
from laconic.cli.bench.network_tables import ddp
from laconic.cli.demo_curves import CurveRow
from laconic.cli.demo_parts import Found
from laconic.report.table import Column, number, table


def tables(found: Found, bucket_size: int) -> Iterator[RenderableType]:
    """All that a person is shown."""
    snapshot, rows = found.snapshot, found.schemes
    yield (
        f"A network of {snapshot.gradient.numel():,} parameters after {snapshot.n_steps} steps of SGD on handwritten "
        f"digits: loss {snapshot.first_loss:.2f} → {snapshot.loss:.2f}, {100 * snapshot.accuracy:.0f} % right. "
        f"Its gradient v, in buckets of {bucket_size}:\n"
    )
    yield losses(rows)
    yield ""
    yield sizes(rows)
    yield ""
    yield "\n".join(f"• {sentence}" for sentence in findings(rows))
    yield from _curves(found.curves)
    yield from _on_ranks(found)


def _curves(rows: Sequence[CurveRow]) -> Iterator[RenderableType]:
    n_workers, last = rows[0].n_workers, rows[0].curve[-1]
    steps = last["iteration"]
    yield f"\n{n_workers} simulated workers train another network for {steps} steps, on the same batches each time.\n"
    yield endings(rows)


def _on_ranks(found: Found) -> Iterator[RenderableType]:
    if found.trained:
        trained = found.trained[0]
        yield (
            f"\n{trained.ranks} ranks on this machine train a convolutional network of {trained.n:,} parameters "
            "on the digits. Over loopback compression does not pay; `laconic bench ddp --rate 1gbit` emulates a link.\n"
        )
        yield ddp(found.trained)
    if found.fitted:
        first = found.fitted[0]
        yield (
            f"\nThe same ranks fit a logistic regression of {first.n_features} features, each with its own columns, in "
            f"{first.n_iterations} iterations on batches of {first.batch_size}: SGD says something in every one, "
            "CA-SGD once in 32. Recipe C keeps data and margins in bfloat16.\n"
        )
        yield fits(found.fitted)


def losses(rows: Sequence[Finding]) -> RenderableType:
    """Variance against bound."""
    columns: list[Column[Finding]] = [
        Column("scheme", lambda r: r.scheme, "left"),
        Column("bits", lambda r: str(r.bits)),
        Column("unbiased", lambda r: "yes" if r.unbiased else "no"),
        Column("variance", lambda r: number(r.variance)),
        Column("bound", lambda r: number(r.bound)),
        Column("variance ÷ bound", lambda r: number(r.over_bound, 2)),
    ]
    return table(
        "What is lost",
        columns,
        rows,
        f"variance: E‖Q(v) − v‖² / ‖v‖² over {rows[0].n_streams} streams of random numbers. "
        "ef-sign: of its first message; error feedback sends the rest later.",
    )


def sizes(rows: Sequence[Finding]) -> RenderableType:
    """Bits a coordinate for each coder, and speed."""
    columns: list[Column[Finding]] = [
        Column("scheme", lambda r: r.scheme, "left"),
        Column("entropy", lambda r: _bits(r.entropy)),
        *(Column(coder, _coded(coder)) for coder in ("fixed", "elias", "huffman", "rans")),
        Column("total", lambda r: _bits(r.total_bits)),
        Column("fp32 ÷\ntotal", lambda r: number(32 / r.total_bits)),
        Column("enc.\nGB/s", lambda r: number(r.encode_gb_per_second)),
        Column("dec.\nGB/s", lambda r: number(r.decode_gb_per_second)),
    ]
    return table(
        "What is sent, in bits a coordinate",
        columns,
        rows,
        "total: the shortest of the four with norms and header. GB/s of float32 values, encoded and decoded at "
        "fixed width.",
    )


def endings(rows: Sequence[CurveRow]) -> RenderableType:
    """Where each scheme's training ends, and what it sent on the way."""
    columns: list[Column[CurveRow]] = [
        Column("scheme", lambda r: r.contender, "left"),
        Column("first loss", lambda r: number(r.curve[0]["loss"], 4)),
        Column("last loss", lambda r: number(r.curve[-1]["loss"], 4)),
        Column("kB sent\na worker", lambda r: number(1e-3 * r.curve[-1]["bytes"])),
        Column("variance", lambda r: number(r.curve[-1]["variance"])),
    ]
    return table("The loss over all images", columns, rows, "variance: of the last step's gradients.")


def fits(rows: Sequence[GLMRow]) -> RenderableType:
    """Time, messages, bytes and loss of each solver."""
    columns: list[Column[GLMRow]] = [
        Column("solver", lambda r: r.contender, "left"),
        Column("µs", lambda r: number(1e6 * r.seconds.median)),
        Column("×\nsgd fp32", lambda r: number(r.speedup_over_fp32.median)),
        Column("messages", lambda r: number(r.messages)),
        Column("bytes", lambda r: number(r.bytes_sent)),
        Column("loss", lambda r: number(r.loss, 5)),
    ]
    return table(
        "An iteration, and the loss after all of them",
        columns,
        [row for row in rows if not row.is_floor],
        "µs: the slowest rank's. messages, bytes: sent by a rank, an iteration. CA-SGD sends more bytes in fewer "
        "messages. `laconic bench glm` has more shapes, and emulates links.",
    )


def _bits(x: float | None) -> str:
    return "–" if x is None else f"{x:.3f}" if x < 10 else f"{x:.2f}"


def _coded(coder: str) -> Callable[[Finding], str]:
    return lambda row: _bits(row.coded_bits.get(coder))
