"""What `laconic plan` shows: one table, two sentences, and charts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from laconic.planner import Plan
from laconic.planner.calibration import Calibration
from laconic.planner.choice import Choice, precision
from laconic.planner.curves import Curves, against_rate, against_s
from laconic.planner.plan import rate
from laconic.planner.terms import duration
from laconic.report import Column, Table, text
from laconic.report.svg import Chart, Curve, lines, page
from laconic.report.terminal import grid

SHOWN = 12
CHARTS = (".html", ".svg")


def shown(made: Plan, calibration: Calibration | None) -> Iterator[RenderableType]:
    """All that a person is shown."""
    cluster, link = made.cluster, made.cluster.all_reduce
    if cluster.n_ranks == 1:
        yield "1 rank"
    else:
        bandwidth = rate(link.bits_per_second) if link.seconds_per_byte else "no limit to the bandwidth"
        yield f"{cluster.n_ranks} ranks; all-reduce: latency {duration(link.alpha_seconds)} a message, {bandwidth}"
    if calibration is not None:
        yield "\n".join(calibration.lines())
    yield ""
    yield options(made)
    yield ""
    yield made.verdict()
    yield made.crossing()


def options(made: Plan) -> RenderableType:
    """The fastest options and the baselines, one per line."""
    order = sorted(made.choices, key=lambda choice: choice.seconds)
    kept = order[:SHOWN]
    kept += [c for c in (made.recommended, made.fp32, made.bf16) if c.option not in [k.option for k in kept]]
    unit, plain = ("an iteration", "sgd in that recipe") if made.kind == "glm" else ("a step", "that all-reduce")
    more = len(made.choices) - len(kept)
    table = Table(
        f"Predicted time of {unit}",
        [
            text("", "mark"),
            text("option", "option"),
            Column("predicted", "seconds", "s"),
            Column("work", "work", "s"),
            Column("wire", "wire", "s"),
            Column(f"× {precision(made.fp32.option)}", "over_fp32"),
            Column(f"× {precision(made.bf16.option)}", "over_bf16"),
            Column("MB per rank", "memory", "MB"),
        ],
        f"work: this rank's own; wire: messages, some of which may pass behind the work; ×: times as fast as {plain}."
        + (f" {more} more are in --json." if more > 0 else ""),
    )
    return grid(table.grid([_row(made, choice) for choice in kept]))


def _row(made: Plan, choice: Choice) -> dict[str, Any]:
    seconds, cost = choice.seconds, choice.cost
    return {
        "mark": "→" if choice.option == made.recommended.option else " ",
        "option": choice.option.label,
        "seconds": seconds,
        "work": cost.work_seconds / cost.iterations,
        "wire": cost.wire_seconds / cost.iterations,
        "over_fp32": made.fp32.seconds / seconds if seconds else None,
        "over_bf16": made.bf16.seconds / seconds if seconds else None,
        "memory": choice.memory_bytes,
    }


def charts(made: Plan) -> list[Chart]:
    """Time against s, where there is one, and against the rate of the links."""
    unit = "an iteration" if made.kind == "glm" else "a step"
    found, by_s, n_ranks = [], against_s(made), made.cluster.n_ranks
    if by_s:
        blocks = next(iter(by_s.values()))[0]
        mark = (float(getattr(made.recommended.option, "s", 1)), made.recommended.seconds)
        title, axis = f"Time of {unit} against s, {n_ranks} ranks", "s, iterations that share a message"
        found.append(Chart(title, axis, "time", _curves(by_s), y_text=duration, mark=mark, x_ticks=blocks))
    if n_ranks > 1:
        title, axis = f"Time of {unit} against the link, {n_ranks} ranks", "rate of the links"
        found.append(Chart(title, axis, "time", _curves(against_rate(made)), x_text=rate, y_text=duration))
    return found


def draw(made: Plan, path: Path) -> str:
    """The charts as one HTML page with the explanation, or as one SVG."""
    found = charts(made)
    if not found:
        raise ValueError("one rank sends nothing, so that there is nothing to draw")
    if path.suffix == ".html":
        return page("A plan by laconic", made.explain(), found)
    return lines(found[0])


def _curves(found: Curves) -> list[Curve]:
    return [Curve(name, xs, ys) for name, (xs, ys) in found.items()]
