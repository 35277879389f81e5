"""The page in a browser: it renders, says nothing in the console, fits its window, and its buttons do what they say."""

import pytest

from laconic.report.runs import Run, report

from .browser import CHROMIUM, browser
from .documents import DOCUMENTS, PAPER_ROWS, UNKNOWN
from .test_page import HOSTILE, hostile

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")

SHOWN = [(width, dark) for width in (400, 1280) for dark in (False, True)]
LUMINANCE = """
(colour => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
})"""
CONTRASTS = f"""
(() => {{
  const light = {LUMINANCE}, ground = light(getComputedStyle(document.body).backgroundColor);
  const against = colour => {{
    const [a, b] = [light(colour), ground].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }};
  const all = selector => [...document.querySelectorAll(selector)];
  const of = (selector, property) => all(selector).map(e => against(getComputedStyle(e)[property]));
  return {{
    text: of("p, li, td, th, h1, h2, h3, h4, figcaption, summary, dt, dd, a, .legend button", "color"),
    drawn: of("polyline.curve", "stroke").concat(of(".bar", "fill")),
    labels: of(".plot text", "fill"),
  }};
}})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    runs = [Run(suite, suite, document) for suite, document in DOCUMENTS.items()]
    runs += [Run("unknown", "of tomorrow", UNKNOWN), Run(HOSTILE, "papers-nuqsgd", hostile(DOCUMENTS["papers-nuqsgd"]))]
    every_ink = [{**PAPER_ROWS[0], "contender": f"number {i}"} for i in range(9)]
    runs += [Run("every ink", "papers-ca-sgd", {"suite": "papers-ca-sgd", "rows": every_ink})]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report("All of it", runs)[0])
    return path


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def watched(chromium, page, *how):
    """The page, opened so; it says nothing in the console for as long as it is used."""
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.open(page, *how)
    yield chromium
    assert chromium.complaints == []


@pytest.fixture
def opened(chromium, page):
    yield from watched(chromium, page)


@pytest.fixture(scope="module", params=SHOWN, ids=lambda how: f"{how[0]}-{'dark' if how[1] else 'light'}")
def shown(request, chromium, page):
    """Opened once in each width and colour, for all tests that only look at it."""
    yield from watched(chromium, page, *request.param)


def test_it_renders_without_a_complaint_or_a_request(shown, page):
    assert shown.run("document.querySelectorAll('.plot > svg .curve').length") > 10
    assert shown.run("document.querySelectorAll('.bar').length") > 20
    assert set(shown.requests) == {page.resolve().as_uri()}


def test_it_never_scrolls_sideways(shown, request):
    """By the width of the screen: a phone's innerWidth grows with what does not fit."""
    width, _ = request.node.callspec.params["shown"]
    shown.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown.settle()
    assert shown.run("document.documentElement.scrollWidth") <= width
    past = "[...document.querySelectorAll('main h2, main p, figure, .plot, .legend, .scroll, .bars li')]"
    assert shown.run(f"{past}.every(e => e.getBoundingClientRect().right <= {width})")


def test_text_and_curves_stand_out_from_the_ground(shown, request):
    found = shown.run(CONTRASTS)
    assert min(found["text"]) >= 4.5
    assert min(found["labels"]) >= 4.5
    assert min(found["drawn"]) >= 3.0
    _, dark = request.node.callspec.params["shown"]
    assert shown.run(f"{LUMINANCE}(getComputedStyle(document.body).backgroundColor) < 0.5") is dark


ALL_CHARTS = "[...document.querySelectorAll(':not(.panels) > figure.chart')]"
CHART = f"{ALL_CHARTS}.find(chart => chart.textContent.includes('bytes sent'))"
PANELS = "document.querySelector('.panels')"


def count(opened, what):
    return opened.run(f"{CHART}.querySelectorAll('{what}').length")


def test_a_click_on_the_legend_hides_a_curve_and_brings_it_back(opened):
    shown = count(opened, "polyline")
    button = f"{CHART}.querySelector('.legend button')"
    opened.run(f"{button}.click()")
    assert count(opened, "polyline") == shown - 1
    assert opened.run(f"{button}.getAttribute('aria-pressed')") == "false"
    opened.run(f"{button}.click()")
    assert count(opened, "polyline") == shown


def test_panels_share_one_legend_and_their_scales(opened):
    figures = f"[...{PANELS}.querySelectorAll('figure')]"
    lines = f"{figures}.map(f => f.querySelectorAll('polyline').length)"
    ticks = f"{figures}.map(f => [...f.querySelectorAll('text')].map(t => t.textContent))"
    assert opened.run(lines) == [3, 3]
    assert opened.run(ticks)[0] == opened.run(ticks)[1]
    assert opened.run(f"{PANELS}.querySelectorAll('.legend').length") == 1
    opened.run(f"{PANELS}.querySelector('.legend button').click()")
    assert opened.run(lines) == [2, 2]


def test_a_point_with_a_name_of_its_own_tells_it(opened):
    opened.run(f"{PANELS}.querySelector('.plot > svg').focus()")
    opened.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    assert opened.run(f"{PANELS}.querySelector('.tip').innerText").startswith("dithered: dithered, bits=1")


def test_what_a_chart_is_chosen_by_stands_above_it(opened):
    assert opened.run(f"[...{CHART}.children].map(c => c.className)")[1:4] == ["controls", "legend", "plot"]


def test_all_curves_can_be_hidden(opened):
    opened.run(f"{CHART}.querySelectorAll('.legend button').forEach(b => b.click())")
    assert "No curve is shown" in opened.run(f"{CHART}.querySelector('.plot').textContent")


def test_the_axis_can_be_chosen(opened):
    drawn = []
    for i, name in enumerate(["iterations", "seconds", "bytes sent"]):
        opened.run(f"{CHART}.querySelectorAll('.controls button')[{i}].click()")
        label = opened.run(f"{CHART}.querySelector('.plot > svg').getAttribute('aria-label')")
        assert label.endswith(f"over {name}")
        drawn.append(opened.run(f"{CHART}.querySelector('.plot').textContent"))
    assert len(set(drawn)) == 3
    pressed = f"[...{CHART}.querySelectorAll('.controls button')].map(b => b.getAttribute('aria-pressed'))"
    assert opened.run(pressed)[:3] == ["false", "false", "true"]


@pytest.mark.parametrize("scale", ["log y", "log x"])
def test_scales_can_be_logarithmic(scale, opened):
    points = f"{CHART}.querySelector('polyline').getAttribute('points')"
    before = opened.run(points)
    opened.run(f"[...{CHART}.querySelectorAll('.controls button')].find(b => b.textContent === '{scale}').click()")
    assert opened.run(points) != before
    assert "NaN" not in opened.run(points)


def test_pointing_at_a_curve_tells_its_values(opened):
    opened.run(f"{CHART}.scrollIntoView()")
    box = opened.run(
        f"(b => [b.left + b.width / 2, b.top + b.height / 2])({CHART}.querySelector('.plot').getBoundingClientRect())"
    )
    opened.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    opened.settle()
    said = opened.run(f"{CHART}.querySelector('.tip').innerText")
    assert all(name in said for name in ("loss: ", "iterations: ", "seconds: ", "bytes sent: "))


def test_arrow_keys_walk_along_a_curve_and_to_the_next(opened):
    tips = []
    opened.run(f"{CHART}.querySelector('.plot > svg').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        opened.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        tips.append(opened.run(f"{CHART}.querySelector('.tip').innerText").splitlines())
    assert tips[0][0] == tips[1][0] != tips[2][0]
    assert tips[0][1:] != tips[1][1:]


def test_a_table_is_sorted_by_a_click_on_a_heading_with_what_is_missing_last(opened):
    table = "[...document.querySelectorAll('table')].find(t => t.tHead.textContent.includes('distance'))"
    place = "[...t.tHead.rows[0].cells].findIndex(c => c.textContent === 'distance')"
    column = f"(t => [...t.tBodies[0].rows].map(row => row.cells[{place}].textContent))({table})"
    click = f"(t => t.tHead.rows[0].cells[{place}].firstChild.click())({table})"
    assert opened.run(column) == ["–", "0.100"]
    opened.run(click)
    assert opened.run(column) == ["0.100", "–"]
    opened.run(click)
    assert opened.run(column) == ["0.100", "–"]
    assert opened.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_every_control_is_reached_by_the_keyboard_and_has_a_name(opened):
    named = "[...document.querySelectorAll('button, a, summary')].every(e => e.tabIndex >= 0 && e.textContent.trim())"
    assert opened.run(named)
    assert opened.run("[...document.querySelectorAll('svg[role=img]')].every(e => e.getAttribute('aria-label'))")


def test_without_scripts_tables_and_bars_are_there(opened, page):
    opened.open(page, scripts=False)
    root = opened.call("DOM.getDocument", depth=0)["root"]["nodeId"]
    for selector in (".bar", "figure.chart noscript p", "figure.chart tbody tr"):
        assert opened.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"], selector
    opened.open(page)
