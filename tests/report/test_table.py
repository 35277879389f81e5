"""Tables on a terminal: every number whole at every width, and every text as it is."""

import pytest

from laconic.report import Cell, show
from laconic.report.tables import Cells
from laconic.report.terminal import grid

ROWS = [("nuqsgd-4-rans scatter_reduce", "1,234.5 ms"), ("data[final].csv :x:", "0.88")]
HEADINGS = ["option [×]", *["time"] * 4]
CELLS = [[Cell(name), *[Cell(number, 1.0)] * 4] for name, number in ROWS]


def table(title, cells=CELLS, note=""):
    return grid(Cells(title, HEADINGS, cells, note))


@pytest.mark.parametrize("width", [1, 20, 40, 80, 300])
def test_every_number_is_whole_at_every_width(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    show([table("title")])
    out = capsys.readouterr().out
    assert [out.count(number) for _, number in ROWS] == [4, 4]
    assert out.count("time") == 4


def test_a_table_that_fits_is_no_wider_than_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show([table("title", note="caption " * 20)])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_brackets_and_colons_are_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    show(["[bold]a[/bold] :x: [/]", table("[red]title")])
    out = capsys.readouterr().out
    assert "[bold]a[/bold] :x: [/]" in out
    assert all(text in out for text in ("[red]title", "option [×]", "data[final].csv :x:"))


def test_a_table_of_nothing(capsys):
    show([table("title", [])])
    assert "time" in capsys.readouterr().out
