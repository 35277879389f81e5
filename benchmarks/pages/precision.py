"""The tables of docs/precision.md, from benchmarks/results/analyze-*.json."""

from collections.abc import Callable
from statistics import median

from benchmarks.pages.common import Document, load, origin, table

PROBLEMS = ("a9a", "bike", "fremtpl2")


def error(value: float | None) -> str:
    return "none" if value is None else "0" if value == 0 else f"{value:.1e}"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def section(name: str) -> str:
    made, hopper = (load(f"analyze-{name}{kind}") for kind in ("", "-hopper"))
    ratios = [row["ratio"] for row in made["rows"] if row["ratio"] is not None]
    bounds = "every bound holds" if all(row["holds"] for row in made["rows"]) else "a bound does not hold"
    return "\n\n".join(
        [
            f"### {made['options']['data']}, {made['family']}",
            f"{made['n_rows']:,} rows × {made['n_features']:,} columns, steps of {made['eta0']:.3g}; {bounds}; "
            f"bound ÷ measured is {median(ratios):.3g} in the median. Most sensitive first, in bf16: {ranking(made)}.",
            terms(made),
            recipes(made),
            choices(made),
            "On a Hopper GPU, by the formats it has, emulated:",
            operands(hopper),
            choices(hopper),
            origin(f"analyze-{name}") + " " + origin(f"analyze-{name}-hopper"),
        ]
    )


def overall() -> str:
    """How tight the bounds are, over all problems."""
    usual, hopper = (
        [row["ratio"] for name in PROBLEMS for row in load(f"analyze-{name}{kind}")["rows"] if row["ratio"] is not None]
        for kind in ("", "-hopper")
    )
    return (
        f"Over the three problems bound ÷ measured is {median(usual):.3g} in the median, and {max(usual):.3g} at most; "
        f"with the formats of a Hopper GPU, {max(hopper):,.0f} at most."
    )


def ranking(made: Document) -> str:
    own = sorted((row for row in made["rows"] if row["format"] == "bf16"), key=lambda row: -row["measured"])
    return ", ".join(f"`{row['knob']}`" for row in own if row["measured"] > 0)


def terms(made: Document) -> str:
    found = {(row["knob"], row["format"]): row for row in made["rows"]}
    formats = ("bf16", "fp16", "fp32")
    rows = []
    for knob in dict.fromkeys(row["knob"] for row in made["rows"]):
        line = [f"`{knob}`"]
        for name in formats:
            row = found[knob, name]
            line += [error(row["bound"]), error(row["measured"]), ratio(row["ratio"])]
            line += [f"{row['share']:.0%}"] if name == "bf16" else []
        rows.append(line)
    headings = ["knob", "bf16: bound", "measured", "ratio", "share"]
    return table([*headings, *[text for name in formats[1:] for text in (f"{name}: bound", "measured", "ratio")]], rows)


def operands(made: Document) -> str:
    """Terms of formats used only for operands."""
    rows = [
        [f"`{row['knob']}`", row["format"], error(row["bound"]), error(row["measured"]), ratio(row["ratio"])]
        for row in made["rows"]
        if row["format"] not in ("fp32", "bf16", "fp16")
    ]
    return table(["knob", "format", "bound", "measured", "ratio"], rows)


def recipes(made: Document) -> str:
    rows = [
        [row["recipe"], error(row["measured"]), error(row["predicted"]), f"{row['predicted'] / row['measured']:.2f}"]
        for row in made["recipes"]
    ]
    return table(["recipe", "measured", "sum of terms", "ratio"], rows)


def choices(made: Document) -> str:
    rows = []
    for row in made["choices"]:
        step = row["stopped_by"][0] if row["stopped_by"] else None
        stopped = "nothing lower" if step is None else f"`{step['knob']}` ({step['format']}: {error(step['error'])})"
        share = f"{row['bytes'] / row['fp32_bytes']:.2f}"
        rows.append([f"{row['tolerance']:.0e}", row["recipe"], error(row["measured"]), share, stopped])
    return table(
        ["tolerance", f"cheapest recipe ({made['options']['device']})", "measured", "bytes ÷ fp32", "stopped by"], rows
    )


def precision() -> str:
    return "\n\n".join([overall(), *(section(name) for name in PROBLEMS)])


WRITERS: dict[str, Callable[[], str]] = {"precision": precision}
