"""The tables and figures of docs/training.md, from benchmarks/results/{training,lm}.json."""

from collections.abc import Callable

from benchmarks.goals import NEAR
from benchmarks.lm import about as about_lm
from benchmarks.pages.common import Document, goals, link, load, origin, presented
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, curves
from benchmarks.training.suite import about

NAME, LM = "training", "lm"
CODECS = {
    "fp32": GREY,
    "bf16": ORANGE,
    "nuqsgd-4/512": GREEN,
    "dithered-0.1@metric": BLUE,
    "rotated-4": PURPLE,
    "powersgd-32": "#8d6e4b",
    "bf16+bf16": "#f06595",
    "nuqsgd-4/512+differences-8": BLUE,
}
COLOURS = {
    "Dithered in the metric": BLUE,
    "Dithered, one Δ": ORANGE,
    "Dithered, Δ per bucket": GREEN,
    "Dithered, Δ per tensor": PURPLE,
    "NUQSGD, buckets of 512": "#c2255c",
    "NUQSGD, buckets of 8192": "#f06595",
    "NUQSGD in the metric": "#0b7285",
    "QSGDInf": "#b08900",
    "Rotated": "#5c940d",
    "Sign with error feedback": "#8d6e4b",
}
"""Colours of the families drawn; float32 and bfloat16 would be far to the right."""
HIGHEST = 1.08
"""Largest loss over that of fp32 that is drawn; larger ones are only in the tables."""


def tables() -> str:
    """The setting, a figure and a table for each task and number of workers, goals, and the origin of the file."""
    made = load(NAME)
    note = f"Members whose loss is more than {100 * (HIGHEST - 1):.0f} % above float32's are not drawn."
    drawn = "\n".join(f"![{title}](figures/{file})" for file, (title, _) in _drawings(made).items())
    aims = ["### Goals", goals(NAME)] if made["goals"] else []
    return "\n\n".join([about(made), drawn, note, presented(made, level=3), *aims, origin(NAME)])


def language_model() -> str:
    """Time to a loss on slow links: a figure and a table for each link, goals, and the origin of the file."""
    made = load(LM)
    drawn = "\n".join(f"![{title}](figures/{file})" for file, (title, _) in _over_seconds(made).items())
    aims = ["### Goals of the language model", goals(LM)]
    return "\n\n".join([about_lm(made), drawn, presented(made, level=3), *aims, origin(LM)])


def figures() -> dict[str, str]:
    """Figures by file name, as SVG."""
    drawn = _drawings(load(NAME)) | _over_seconds(load(LM))
    return {file: drawing for file, (_, drawing) in drawn.items()}


def _over_seconds(made: Document) -> dict[str, tuple[str, str]]:
    found = {}
    for way, rate in dict.fromkeys((row["way"], row["rate"]) for row in made["rows"]):
        of_link = [row for row in made["rows"] if (row["way"], row["rate"]) == (way, rate)]
        rows = {row["contender"]: row for row in of_link if row["curve"]}
        shown = [
            Curve(name, colour, [(point["seconds"], point["loss"]) for point in rows[name]["curve"][1:]])
            for name, colour in CODECS.items()
            if name in rows
        ]
        title = f"A language model under {way} at {link(rate)}"
        found[f"lm-{way.lower()}-{rate}.svg"] = title, curves(title, "seconds", "validation loss", shown, x_log=True)
    return found


def _drawings(made: Document) -> dict[str, tuple[str, str]]:
    found = {}
    for task, workers in dict.fromkeys((row["task"], row["workers"]) for row in made["rows"]):
        rows = [row for row in made["rows"] if (row["task"], row["workers"]) == (task, workers)]
        shown = [curve for name, colour in COLOURS.items() if (curve := _curve(rows, name, colour)).points]
        if shown:
            bits = [x for curve in shown for x, _ in curve.points]
            limit = Curve("0.5 % above fp32", GREY, [(min(bits), NEAR), (max(bits), NEAR)])
            title = f"{task}, {workers} workers"
            drawing = curves(title, "bits per value", "validation loss ÷ fp32's", [*shown, limit], True, dots=True)
            found[f"{NAME}-{task}-{workers}.svg"] = title, drawing
    return found


def _curve(rows: list[Document], family: str, colour: str) -> Curve:
    own = [row for row in rows if row["family"] == family and (row["loss_over_fp32"] or HIGHEST) < HIGHEST]
    return Curve(family, colour, sorted((row["bits"], row["loss_over_fp32"]) for row in own))


WRITERS: dict[str, Callable[[], str]] = {NAME: tables, LM: language_model}
