"""The page: nothing that a document says is markup, nothing is fetched, and what is embedded comes out again."""

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from laconic.report.charts import Axis, Bar, BarChart, Bars, Curve, Curves, LineChart
from laconic.report.html import thinned, web_page
from laconic.report.presentation import Section
from laconic.report.runs import Run, report
from laconic.report.tables import Cell, Cells, Facts, Words

from .documents import DOCUMENTS, UNKNOWN

HOSTILE = "\"><img src=x onerror=alert(1)></script><script>alert(2)</script><!-- ' & \u2028 {title}"
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Parsed(HTMLParser):
    """Tags with their attributes, and the text inside scripts and styles. Complains about tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.inside, self.text, self._open = [], [], "", []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] in (["script"], ["style"]):
            self.inside.append((self._open[-1], data))
        else:
            self.text += data


def hostile(value):
    """The same document with every text and every key of a row turned hostile, the suite aside."""
    if isinstance(value, dict):
        return {key: inner if key in ("suite", "verdict") else hostile(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [hostile(inner) for inner in value]
    return HOSTILE if isinstance(value, str) else value


ALL = {**DOCUMENTS, "of tomorrow": {**UNKNOWN, "rows": [{HOSTILE: 1, "b": 2}, {HOSTILE: 2, "b": 3}]}}


@pytest.mark.parametrize("suite", ALL)
def test_what_a_document_says_is_never_markup(suite):
    document = hostile(copy.deepcopy(ALL[suite]))
    page, _ = report(HOSTILE, [Run(HOSTILE, suite, document), Run("b", "of tomorrow", UNKNOWN)])
    parsed = Parsed(page)
    assert "alert(2)" in parsed.text
    assert "<" not in dict(reversed(parsed.inside))["script"]
    assert not [tag for tag, _ in parsed.tags if tag in ("img", "iframe", "object", "link", "base", "form")]
    assert [attributes.get("type") for tag, attributes in parsed.tags if tag == "script"] == ["application/json", None]
    assert not [
        name for _, attributes in parsed.tags for name in attributes if name.startswith("on") or name == "style"
    ]


def test_a_hostile_suite_is_a_heading():
    parsed = Parsed(report("t", [Run("a", HOSTILE, {**UNKNOWN, "suite": HOSTILE})])[0])
    assert HOSTILE in parsed.text
    assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 2


@pytest.fixture(scope="module")
def whole():
    return report("All", [Run(suite, suite, document) for suite, document in ALL.items()])[0]


def test_nothing_is_fetched(whole):
    parsed = Parsed(whole)
    for _, attributes in parsed.tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", whole)


def test_the_policy_allows_this_script_and_this_style_alone(whole):
    parsed = Parsed(whole)
    policy = next(a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a)
    scripts = [text for kind, text in parsed.inside if kind == "script"]
    styles = [text for kind, text in parsed.inside if kind == "style"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for rule, text in (("style-src", styles[0]), ("script-src", scripts[-1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert len(styles) == 1


def test_links_lead_to_sections_and_ids_are_unique(whole):
    parsed = Parsed(whole)
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"][1:] for tag, attributes in parsed.tags if tag == "a"} <= set(ids)


def test_headings_and_language(whole):
    parsed = Parsed(whole)
    assert ("html", {"lang": "en"}) in parsed.tags
    assert [tag for tag, _ in parsed.tags].count("h1") == 1
    assert "<title>All</title>" in whole


def charts(page):
    return json.loads(next(text for kind, text in Parsed(page).inside if kind == "script"))


def test_points_come_out_as_they_went_in():
    points = [{"iteration": 0, "seconds": None, "loss": 2.5}, {"iteration": 7, "seconds": 0.1, "loss": None}]
    curves = Curves("<a>", LineChart(Axis("loss", "loss"), log=True), [Curve("</script>", points, 3)])
    (chart,) = charts(web_page("t", "", [Section("s", [curves])]))
    assert chart["title"] == "<a>"
    assert chart["log"] is True
    assert [axis["key"] for axis in chart["axes"]] == ["iteration"]
    assert chart["curves"] == [{"name": "</script>", "ink": 3, "points": [[2.5, 0.0], [None, 7.0]]}]


def test_numbers_whose_differences_would_overflow_are_left_out():
    points = [{"iteration": i, "loss": loss} for i, loss in enumerate([1e300, -1e300, 1e-300, 1.0])]
    (chart,) = charts(
        web_page("t", "", [Section("s", [Curves("c", LineChart(Axis("loss", "loss")), [Curve("a", points)])])])
    )
    assert [point[0] for point in chart["curves"][0]["points"]] == [None, None, 0.0, 1.0]


def test_long_curves_are_thinned_to_their_ends():
    points = [{"iteration": i} for i in range(100_000)]
    kept = thinned(points, 400)
    assert len(kept) == 400
    assert (kept[0], kept[-1]) == (points[0], points[-1])


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Words(["one", "two"], listed=True), "<li>one</li><li>two</li>"),
        (Facts([("cpu", "a < b")]), "<dt>cpu</dt><dd>a &lt; b</dd>"),
        (Cells("t", ["a"], [[Cell("x", 2.0, "bad")]]), '<th scope="row" class="n bad" data-v="2.0">'),
        (Bars(BarChart("t", "", "×"), [Bar("a", 2.0, (1.0, 4.0))]), 'width="48.00%"'),
        (Bars(BarChart("t", "", log=True), [Bar("a", 1e-2), Bar("b", 1.0)]), 'width="32.00%"'),
        (Bars(BarChart("t", ""), [Bar("a", None), Bar("b", 0.0)]), '<span class="value">–</span>'),
        (Cells("t", ["a"], [], folded=True), "<details"),
    ],
)
def test_blocks(block, said):
    page = web_page("t", "", [Section("s", [block])])
    Parsed(page)
    assert said in page
