"""The chart and tables of docs/quantizers.md, from benchmarks/results/codec-error.json, once there is one."""

from collections.abc import Callable

from benchmarks.codec_error import DOTTED
from benchmarks.pages.common import RESULTS, goals, load, origin
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, Curve, curves
from laconic.report import charts, markdown, sections
from laconic.report.tables import Cells

NAME = "codec-error"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#c2255c", "#b08900", "#0b7285")
DASHES = ("", "6 3", "2 3")
HEIGHT = 460


def exists() -> bool:
    """Whether there is a result to write about."""
    return (RESULTS / f"{NAME}.json").is_file()


def error() -> str:
    """A figure for each gradient, the comparison at equal bytes, the goals, and the origin of the file."""
    if not exists():
        return ""
    drawn = "\n".join(f"![Error against bits: {one.title}](figures/{_file(one)})" for one in _charts())
    document = load(NAME)
    (section,) = sections(NAME, document)
    tables = [one for one in section.blocks if not isinstance(one, Cells) or one.title != "Goals"]
    return "\n\n".join([drawn, markdown(tables), goals(NAME), origin(NAME)])


def figures() -> dict[str, str]:
    """Figures by file name, as SVG; all have the same axes."""
    charts = _charts() if exists() else []
    drawn = {one.title: [_curve(curve) for curve in one.curves] for one in charts}
    beside = [curve for some in drawn.values() for curve in some]
    axes = ("bits per value", "error ‖Q(v) − v‖² / ‖v‖²")
    return {
        _file(one): curves(one.title, *axes, drawn[one.title], True, True, dots=True, beside=beside, height=HEIGHT)
        for one in charts
    }


def _charts() -> list[charts.Curves]:
    (section,) = sections(NAME, load(NAME))
    return [one for one in section.blocks if isinstance(one, charts.Curves)]


def _file(chart: charts.Curves) -> str:
    return f"error-{chart.title.lower().replace(',', '').replace(' ', '-')}.svg"


def _curve(curve: charts.Curve) -> Curve:
    colour = GREY if curve.ink == DOTTED else COLOURS[curve.ink % len(COLOURS)]
    points = [(point["bits"], point["error"]) for point in curve.points]
    return Curve(curve.name, colour, points, DASHES[curve.ink // len(COLOURS)])


WRITERS: dict[str, Callable[[], str]] = {"error": error}
"""Functions that write sections of a page, by the name of the marker."""
