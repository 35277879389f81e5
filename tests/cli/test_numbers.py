"""Numbers on the command line."""

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
