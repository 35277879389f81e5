"""A suite is one file: its command is derived from its options, and what it shows from one declaration."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from laconic import report
from laconic.bench import SUITES
from laconic.bench.suite import load
from laconic.cli import main
from laconic.report import presentations

EXTENDING = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.mark.parametrize("name", SUITES)
def test_every_field_of_the_options_is_an_option_of_the_command(name, capsys):
    assert main(["bench", name, "--help"]) == 0
    said = capsys.readouterr().out
    for one in fields(load(SUITES[name]).options):
        assert (one.metadata["flag"] or f"--{one.name.replace('_', '-')}") + " " in said


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_can_be_shown(name):
    assert presentations(name)[0].parts


MOVED = {
    "papers": ["papers"],
    "decentralised": ["decentralised", "--ranks", "2"],
    "plan": ["plan"],
    "kernels": ["kernels"],
    "glm-time-to": ["glm", "--rows", "3", "--time-to"],
    "codec-error": ["codec", "--error"],
}


@pytest.mark.parametrize(("suite", "arguments"), MOVED.items(), ids=MOVED)
def test_what_has_moved_says_where_it_is(suite, arguments, capsys):
    assert main(["bench", *arguments]) == 2
    assert f"is now `python -m benchmarks {suite}`" in capsys.readouterr().err


def test_the_suite_of_the_documentation_runs(capsys, monkeypatch):
    monkeypatch.setattr("laconic.report.presentation._REGISTERED", dict(report.presentation._REGISTERED))
    blocks = re.findall(r"```python\n(.*?)```", EXTENDING.read_text().split("# Adding a benchmark suite")[1], re.S)
    made = {"__name__": "sort_suite"}
    for block in blocks[:2]:
        exec(compile(block, "extending.md", "exec"), made)  # noqa: S102 (our own page)
    command = typer.main.get_command(made["app"])
    command(["--size", "100", "--stable", "yes,no", "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in document["rows"]] == ["yes", "no"]
    command(["--size", "100"], standalone_mode=False)
    assert "One sort" in capsys.readouterr().out
