"""Every suite has a view; no view trips over what a document may hold."""

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.planner import DEFAULT, GlmJob, plan
from laconic.report import registered
from laconic.report import sections as sections_by_name
from laconic.report.charts import Bars, Curves
from laconic.report.runs import Run, report, sections_of
from laconic.report.tables import Cells

from .documents import DOCUMENTS, UNKNOWN


def sections(suite, document):
    """As `laconic report` makes them: fits come as rows."""
    return sections_by_name(suite, {"rows": [document]} if suite == "fit" else document)


def blocks(suite, kind, document=None):
    made = sections(suite, DOCUMENTS[suite] if document is None else document)
    return [block for section in made for block in section.blocks if isinstance(block, kind)]


def test_every_view_has_a_document_here():
    assert set(registered()) == set(DOCUMENTS)


@pytest.mark.parametrize("suite", DOCUMENTS)
def test_a_view_shows_a_table_or_bars(suite):
    assert blocks(suite, Cells)
    assert blocks(suite, Bars | Curves)


ISSUE = {
    "loss over iterations, seconds and bytes": ["decentralised", "demo", "fit", "papers-ca-sgd", "papers-nuqsgd"],
    "speed-up": ["ddp", "decentralised", "demo", "exchange", "glm", "glm-device", "papers-ca-sgd", "kernels", "codec"],
    "bits per coordinate": ["codec", "demo", "papers-nuqsgd"],
    "variance": ["demo", "exchange", "papers-nuqsgd"],
}


@pytest.mark.parametrize("suite", ISSUE["loss over iterations, seconds and bytes"])
def test_loss_is_drawn_over_all_three_axes(suite):
    loss = next(chart for chart in blocks(suite, Curves) if chart.chart.y.key == "loss")
    assert [axis.key for axis in loss.used_axes()] == ["iteration", "seconds", "bytes"]


@pytest.mark.parametrize(("words", "suite"), [(words, suite) for words in list(ISSUE)[1:] for suite in ISSUE[words]])
def test_bars_of(words, suite):
    assert any(words in bars.chart.title.lower() for bars in blocks(suite, Bars))


def test_published_figures_stand_beside_ours():
    published = next(grid for grid in blocks("papers-ca-sgd", Cells) if "published" in grid.headings)
    shown = [[cell.text for cell in row] for row in published.rows]
    assert shown[0][:4] == ["speed-up", "5.1 to 6.8 ×", "5.50 ×", "holds"]
    assert shown[1][2:4] == ["–", "not comparable"]
    assert [row[3].mark for row in published.rows] == ["good", "", "bad"]


def test_a_contender_keeps_its_ink_when_others_have_no_curve():
    document = copy.deepcopy(DOCUMENTS["papers-nuqsgd"])
    for point in document["rows"][0]["curve"]:
        point.pop("variance", None)
    document["rows"][1] |= {"curve": DOCUMENTS["demo"]["curves"][1]["curve"]}
    inks = {
        (chart.chart.y.key, curve.name): curve.ink
        for chart in blocks("papers-nuqsgd", Curves, document)
        for curve in chart.curves
    }
    assert ("variance", "fp32") not in inks
    assert inks["variance", "nuqsgd-4"] == inks["loss", "nuqsgd-4"] == 1


def test_losses_of_nodes_are_placed_at_the_steps_they_were_looked_at():
    loss = blocks("decentralised", Curves)[0]
    assert [[p["iteration"], p["loss"]] for p in loss.curves[1].points] == [[3, 2.0], [6, None], [10, 0.6]]
    assert loss.curves[0].points[1]["bytes"] == 6e6


def test_the_parts_of_a_plan_s_options_add_up_to_all_told():
    made = plan(GlmJob(400_000, 2000, batch_size=8), DEFAULT).to_json()
    made["options"][0] |= {"hidden_seconds": 1e-5, "seconds": made["options"][0]["seconds"] - 1e-5}
    grids = [block for block in sections_by_name("plan-made", made)[0].blocks if isinstance(block, Cells)]
    assert [len(grid.rows) for grid in grids] == [14, 22]
    for grid in grids:
        assert grid.headings[2:6] == ["predicted", "work", "wire", "hidden"]
        for row in grid.rows:
            predicted, work, wire, hidden = (cell.value or 0.0 for cell in row[2:6])
            assert work + wire - hidden == pytest.approx(predicted)


def test_curves_of_a_fit_say_when_they_were_looked_at():
    notes = {chart.chart.y.key: chart.chart.note for chart in blocks("fit", Curves)}
    assert notes["loss"].startswith("The mean over each epoch")
    assert notes["eta"] == "At the end of each epoch."


def test_an_unknown_suite_is_shown_as_it_is():
    (section,) = sections_by_name("of tomorrow", UNKNOWN)
    grid = next(block for block in section.blocks if isinstance(block, Cells) and block.title == "The rows")
    assert grid.headings == ["name", "nested", "speed"]
    assert [cell.text for cell in grid.rows[0]] == ["a", '{"x": [1]}', "2 (1.5–2.5)"]
    assert grid.rows[1][2].text == "–"


def test_the_machine_and_the_versions_are_named_once():
    section = sections_of(Run("file", "kernels", DOCUMENTS["kernels"]))[0]
    assert dict(section.blocks[0].facts) == {
        "cpu": "some CPU",
        "n cores": "2",
        "torch": "2.9",
        "commit": "0123456789ab+dirty",
        "date": "2026-01-02 03:04 UTC",
    }


def test_fits_of_the_same_data_share_a_chart():
    fits = [Run("a", "fit", DOCUMENTS["fit"]), Run("b", "fit", DOCUMENTS["fit"])]
    _, summary = report("t", [fits[0], Run("g", "glm", DOCUMENTS["glm"]), fits[1]])
    assert [run["suite"] for run in summary["runs"]] == ["fit", "glm"]
    both = {"rows": [{**fit.document, "name": fit.name} for fit in fits]}
    charts = [b for b in sections_by_name("fit", both)[0].blocks if isinstance(b, Curves)]
    assert [curve.name for curve in charts[0].curves] == ["a", "b"]
    other = replace(fits[1], document={**DOCUMENTS["fit"], "data": "other.csv"})
    assert len(sections_by_name("fit", {"rows": [fits[0].document, other.document]})) == 2


def places(document, path=()):
    """Every place in a document where there is a value."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


SCALARS = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS | st.sampled_from([1e308, -1e308, 5e-324, "\ud800", "<script>"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.sampled_from(["median", "p20", "loss"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_no_value_anywhere_is_too_strange_for_a_page(data):
    suite = data.draw(st.sampled_from([*DOCUMENTS, "of tomorrow"]))
    document = copy.deepcopy(DOCUMENTS.get(suite, UNKNOWN))
    for _ in range(data.draw(st.integers(1, 4))):
        *path, last = data.draw(st.sampled_from(list(places(document))))
        where = document
        for key in path:
            where = where[key]
        where[last] = data.draw(VALUES)
    page, _ = report("t", [Run("a", suite, document)])
    page.encode()
