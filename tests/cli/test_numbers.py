"""Numbers on the command line."""

import re

import pytest
import typer

from laconic.cli.command import duration, link_rate, whole_number
from laconic.units import shown


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


SPELLINGS = {
    "a rate": (link_rate, ["25gbit", "25Gbit", "25 Gbit/s", " 25000 mbit/s "], 25e9),
    "a time": (duration, ["20us", "20 us", "20\N{MICRO SIGN}s", "20 \N{GREEK SMALL LETTER MU}s", "0.02ms"], 20e-6),
}


@pytest.mark.parametrize(("parse", "texts", "value"), SPELLINGS.values(), ids=SPELLINGS)
def test_rates_and_times_in_every_spelling(parse, texts, value):
    assert [parse(text) for text in texts] == [value] * len(texts)


@pytest.mark.parametrize("seconds", [2e-9, 20e-6, 0.0041, 0.9996, 75.0])
def test_a_time_can_be_typed_as_it_is_printed(seconds):
    assert duration(shown(seconds, "s")) == pytest.approx(seconds, rel=5e-3)


@pytest.mark.parametrize("bits_per_second", [2e7, 99.6e6, 3.1e9, 4e11, 1.2e12])
def test_a_rate_can_be_typed_as_it_is_printed(bits_per_second):
    assert link_rate(shown(bits_per_second, "bit/s", 2)) == pytest.approx(bits_per_second, rel=5e-2)


@pytest.mark.parametrize("text", ["25", "25gb", "25gbyte", "-1gbit", "0gbit", "nan", "1e3gbit", ""])
def test_what_is_no_rate(text):
    with pytest.raises(typer.BadParameter, match="expected a rate such as 25gbit"):
        link_rate(text)


@pytest.mark.parametrize("text", ["20", "20m", "-1s", "nan", "inf s", "1e3s", ""])
def test_what_is_no_time(text):
    with pytest.raises(typer.BadParameter, match="expected a time such as 20us"):
        duration(text)
