"""Numbers on the command line."""

import re

import pytest
import typer

from laconic.cli.numbers import whole_number


@pytest.mark.parametrize(("text", "value"), [("1", 1), (" 12 ", 12), ("2**10", 1024), ("2^10", 1024), (7, 7)])
def test_numbers(text, value):
    assert whole_number()(text) == value


@pytest.mark.parametrize("text", ["", "0", "-3", "abc", "1.5", "2**", "**2", "2**3**4", "9**99", "1" * 30, "٣", "1e3"])
def test_what_is_no_number(text):
    with pytest.raises(typer.BadParameter, match="expected a whole number"):
        whole_number()(text)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (whole_number(), "abc", "a whole number, at least 1, such as"),
        (whole_number(0), "-1", "a whole number, at least 0, such as"),
        (whole_number(most=1024), "1025", "a whole number from 1 to 1024, such as"),
        (whole_number(), "9**99", "a whole number below 2**63, such as"),
    ],
)
def test_a_limit_is_told_where_it_is_one(parse, text, said):
    with pytest.raises(typer.BadParameter, match=re.escape(said)):
        parse(text)
