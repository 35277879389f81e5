"""One declaration, three renderings: terminal, page and Markdown show the same cells."""

import io

import pytest
from rich.console import Console

from laconic.report import Axis, BarChart, Cell, Column, LineChart, Presentation, RowTable, Text, markdown, text
from laconic.report.html import web_page
from laconic.report.tables import Cells
from laconic.report.terminal import section_lines

SPREAD = {"median": 0.2724, "p20": 0.265, "p80": 0.281}
ROWS = [
    {"contender": "a", "problem": "p", "seconds": SPREAD, "ratio": SPREAD, "verdict": "missed", "gap": 0.005},
    {"contender": "b|c", "problem": "q", "seconds": 1.5, "ratio": None, "verdict": "aim", "gap": None},
]
COLUMNS = [
    text("who", "contender"),
    Column("ms", "seconds", "ms"),
    Column("ratio", "ratio"),
    Column("gap", lambda row: row.get("gap"), "%"),
    Column("verdict", "verdict", None, words={"missed": Cell("no", mark="bad")}),
    Column("nowhere", "nothing"),
]
TABLE = RowTable("Times", COLUMNS, "A note.")
SHOWN = Presentation("A suite", [TABLE, Text(lambda document: ["A sentence."])], all_rows=False)


def rendered(document):
    (section,) = SHOWN.sections(document)
    file = io.StringIO()
    console = Console(file=file, width=200, highlight=False, markup=False)
    for part in section_lines(section):
        console.print(part)
    return {
        "terminal": file.getvalue(),
        "page": web_page("t", "", [section]),
        "markdown": markdown(section.blocks).replace("\\|", "|"),
    }


@pytest.mark.parametrize("way", ["terminal", "page", "markdown"])
def test_every_rendering_shows_every_cell(way):
    out = rendered({"rows": ROWS})[way]
    for said in ("who", "ms (20–80 %)", "a", "b|c", "272 (265–281)", "1,500", "0.272", "0.500 %", "–", "no", "aim"):
        assert said in out
    for said in ("A note.", "A sentence."):
        assert said in out
    assert "nowhere" not in out


def test_markdown_sets_numbers_to_the_right_and_cannot_be_broken_out_of():
    lines = markdown(TABLE.blocks({"rows": ROWS})).splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: | --- |"
    assert lines[3].startswith("| b\\|c | 1,500 |")
    assert markdown(TABLE.blocks({"rows": ROWS}), level=3).startswith("### Times")


def test_on_a_terminal_only_the_first_spread_is_shown():
    out = rendered({"rows": ROWS})["terminal"]
    assert out.count("(20–80 %)") == 1
    assert "0.272 (" not in out


def test_rows_are_chosen_and_grouped():
    by = RowTable(lambda rows: f"of {rows[0]['problem']}", COLUMNS, by="problem")
    assert [grid.title for grid in by.blocks({"rows": ROWS})] == ["of p", "of q"]
    first = RowTable("t", COLUMNS, rows=lambda rows: rows[:1])
    assert [len(grid.rows) for grid in first.blocks({"rows": ROWS})] == [1]


@pytest.mark.parametrize(
    "part", [TABLE, BarChart("t", "seconds"), LineChart(Axis("loss", "loss")), Text(lambda document: [])]
)
@pytest.mark.parametrize("document", [{}, {"rows": []}, {"rows": [{}]}, {"rows": [{"seconds": "soon", "curve": 3}]}])
def test_a_document_without_the_values_shows_nothing(part, document):
    assert not part.blocks(document)


def test_a_section_for_each_document_that_is_split_off():
    split = Presentation("t", [TABLE], split=lambda document: [{"rows": [row]} for row in document["rows"]])
    assert [[type(block) for block in section.blocks] for section in split.sections({"rows": ROWS})] == [
        [Cells] * 2
    ] * 2
