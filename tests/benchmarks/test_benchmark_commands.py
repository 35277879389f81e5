"""What docs and docstrings show of `python -m benchmarks` is what happens; a report knows its suites."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
import typer

import benchmarks
from benchmarks import PRESENTATIONS, SUITES
from benchmarks.__main__ import app, main
from laconic.bench.suite import load
from laconic.report import presentations

ROOT = Path(__file__).parents[2]
MODULES = [m.name for m in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.") if not m.ispkg]


def shown():
    """Every line of a block that begins with `python -m benchmarks`."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^```[^\n]*\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for line in re.sub(r"\s*\\\n\s*", " ", "".join(blocks)).splitlines():
            if found := re.match(r"(?:\$ )?python -m benchmarks (.*)", line):
                yield pytest.param(found[1], id=f"{path.name}: {found[1][:60]}")


@pytest.mark.parametrize("line", list(shown()))
def test_a_shown_command_can_be_parsed(line):
    name, *words = shlex.split(line, comments=True)
    group = typer.main.get_command(app)
    command = group.get_command(None, name)
    assert command.make_context(name, words, resilient_parsing=False).params


def test_the_docs_show_some_commands():
    assert len(list(shown())) > 10


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_has_the_name_it_is_asked_for_by(suite):
    assert load(SUITES[suite]).name == suite


@pytest.mark.parametrize("suite", PRESENTATIONS)
def test_a_suite_has_a_presentation(suite):
    assert presentations(suite)


def test_a_report_knows_these_suites(tmp_path):
    target = tmp_path / "report.html"
    assert main(["report", str(ROOT / "benchmarks" / "results" / "plan.json"), "-o", str(target)]) == 0
    assert "Predictions and what was measured" in target.read_text()


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
