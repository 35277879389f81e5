"""Curves as SVG: names as long as they are, one point, and nothing that a logarithm does not have."""

import xml.etree.ElementTree as ET

import pytest

from laconic.report import Axis, Bar, BarChart, LineChart, bars
from laconic.report.charts import Bars, Curve, Curves
from laconic.report.svg import lines

NAMES = ["a", "nuqsgd-4-rans scatter_reduce", "<b> & " * 20]


def chart(*names, x=(1.0, 10.0), y=(2.0, 20.0)):
    points = [{"x": one, "y": other} for one, other in zip(x, y, strict=True)]
    return Curves("title", LineChart(Axis("y", "y"), axes=[Axis("x", "x")]), [Curve(name, points) for name in names])


@pytest.mark.parametrize("name", NAMES)
def test_every_name_fits_into_the_picture(name):
    made = ET.fromstring(lines(chart("short", name)))  # noqa: S314
    width = float(made.get("viewBox").split()[2])
    (text,) = (element for element in made if element.text == name)
    assert float(text.get("x")) + 7 * len(name) <= width == float(made.get("width"))


@pytest.mark.parametrize(("x", "y"), [([3.0], [3.0]), ([1.0, 1.0], [1e-300, 1e300])])
def test_one_place_and_very_far_ones(x, y):
    assert ET.fromstring(lines(chart("a", x=x, y=y))) is not None  # noqa: S314


@pytest.mark.parametrize(("x", "y"), [([], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_what_has_no_logarithm_is_refused(x, y):
    with pytest.raises(ValueError, match="all above 0"):
        lines(chart("a", x=x, y=y))


def test_no_name_is_markup():
    assert "<i>" not in lines(chart("<i>"))


PICTURES = {
    "lines": lambda: lines(chart("a")),
    "bars": lambda: bars(Bars(BarChart("title", "", limit=("", "bound")), [Bar("a", 1.0, limit=2.0)])),
}


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_wherever_text_changes_its_colour_the_ground_does(picture):
    light, dark = picture().split("prefers-color-scheme:dark")
    assert [style.count("svg{background:") for style in (light, dark)] == [1, 1]
