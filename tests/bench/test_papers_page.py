"""docs/papers.md shows what the result files say."""

import importlib.util
import json
from pathlib import Path

import pytest

from laconic.cli import main

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "papers-ca-sgd": [
        "--problem",
        "synth",
        "--scale",
        "2e-3",
        "--s",
        "4",
        "--iterations",
        "4",
        "--points",
        "3",
        "--ranks",
        "2",
    ],
    "papers-nuqsgd": [
        "--model",
        "resnet-8",
        "--images",
        "16",
        "--batch-size",
        "4",
        "--workers",
        "2",
        "--iterations",
        "1",
    ],
}


@pytest.fixture
def maker():
    spec = importlib.util.spec_from_file_location("papers_page", ROOT / "benchmarks" / "papers_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_say(maker):
    page = maker.PAGE.read_text()
    assert maker.rendered(page) == page


@pytest.mark.parametrize("suite", COMMANDS)
def test_what_the_suites_write_can_be_shown(suite, maker, tmp_path, monkeypatch, capsys):
    target = tmp_path / f"{suite}-tiny.json"
    assert (
        main(["bench", "papers", "--suite", suite.removeprefix("papers-"), *COMMANDS[suite], "--output", str(target)])
        == 0
    )
    monkeypatch.setattr(maker, "RESULTS", tmp_path)
    shown = maker.section(suite)
    made = json.loads(target.read_text())
    assert f"### {suite}-tiny" in shown
    for row in made["rows"]:
        assert f"| {row['contender']} |" in shown
    for claim in made["published"]:
        assert claim["what"] in shown
    assert maker.section(next(name for name in COMMANDS if name != suite)) == maker.NOTHING
