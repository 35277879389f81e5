"""docs/papers.md and its figures show what the result files say."""

import copy
import json

import pytest

from benchmarks.__main__ import main
from benchmarks.pages import papers as maker

COMMANDS = {
    "papers-ca-sgd": "--problem synth --scale 2e-3 --s 4 --iterations 4 --points 3 --ranks 2",
    "papers-nuqsgd": "--model resnet-8 --images 16 --batch-size 4 --workers 2 --iterations 1",
}


def test_the_page_is_what_the_results_say():
    page = maker.PAGE.read_text()
    assert maker.rendered(page) == page
    for name, drawing in maker.figures().items():
        assert (maker.DOCS / "figures" / name).read_text() == drawing
        assert f"(figures/{name})" in page


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """By suite, the document of a tiny run."""
    found = {}
    for suite, options in COMMANDS.items():
        target = tmp_path_factory.mktemp(suite) / "made.json"
        command = ["papers", "--suite", suite.removeprefix("papers-"), *options.split(), "-q"]
        assert main([*command, "--output", str(target)]) == 0
        found[suite] = json.loads(target.read_text())
    return found


@pytest.mark.parametrize("suite", COMMANDS)
def test_what_the_suites_write_can_be_shown(suite, written, tmp_path, monkeypatch):
    made = written[suite]
    (tmp_path / f"{suite}-tiny.json").write_text(json.dumps(made))
    monkeypatch.setattr(maker.tables, "RESULTS", tmp_path)
    shown = maker.section(suite)
    for row in made["rows"]:
        assert f"| {row['contender']} |" in shown
    for claim in made["published"]:
        assert claim["what"] in shown
    assert f"`benchmarks/results/{suite}-tiny.json`" in shown
    for name, drawing in maker.figures().items():
        assert f"(figures/{name})" in shown
        assert drawing.startswith("<svg")
        assert "nan" not in drawing
    assert maker.section(next(name for name in COMMANDS if name != suite)) == maker.NOTHING


def test_runs_with_other_seeds_are_one_section_with_means(written, tmp_path, monkeypatch):
    made = copy.deepcopy(written["papers-nuqsgd"])
    for seed, loss in enumerate((0.5, 0.25)):
        made["options"]["seed"], made["rows"][1]["loss"] = seed, loss
        (tmp_path / f"papers-nuqsgd-tiny{f'-seed{seed}' if seed else ''}.json").write_text(json.dumps(made))
    monkeypatch.setattr(maker.tables, "RESULTS", tmp_path)
    shown = maker.section("papers-nuqsgd")
    assert shown.count("### ") == 1
    assert "seeds 0, 1" in shown
    assert "| 0.375 (0.25 to 0.5) |" in shown


@pytest.mark.parametrize(
    ("found", "said"), [([True], "yes"), ([False, False], "no"), ([True, False, True], "in 2 of 3"), ([None], "–")]
)
def test_a_finding_holds_for_all_seeds_or_for_some(found, said):
    assert maker.holds(found) == said
