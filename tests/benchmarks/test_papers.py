"""`python -m benchmarks papers`, at sizes that take no time: its document, its tables, and the page that shows it."""

import contextlib
import copy
import io
import json

import pytest

from benchmarks.__main__ import main
from benchmarks.pages import papers as maker

PAPERS = ["papers", "--suite"]
CA_SGD = [
    *[*PAPERS, "ca-sgd", "--problem", "susy", "--scale", "2e-4", "--s", "4", "--batch-size", "4"],
    *["--iterations", "8", "--points", "3", "--ranks", "2", "--recipe", "C"],
]
NUQSGD = [
    *[*PAPERS, "nuqsgd", "--model", "resnet-8", "--images", "16", "--batch-size", "4", "--workers", "2"],
    *["--iterations", "1", "--points", "2", "--methods", "nuqsgd,qsgdinf"],
]
COMMANDS = {"papers-ca-sgd": CA_SGD, "papers-nuqsgd": NUQSGD}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By suite, what a tiny run writes and what it prints on a terminal of 80 columns."""
    found = {}
    for suite, command in COMMANDS.items():
        target, out = tmp_path_factory.mktemp(suite) / "made.json", io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
            patch.setenv("COLUMNS", "80")
            assert main([*command, "-q", "--output", str(target)]) == 0
        found[suite] = json.loads(target.read_text()), out.getvalue()
    return found


@pytest.mark.parametrize("suite", COMMANDS)
def test_the_document_is_what_a_report_reads(suite, made):
    document, _ = made[suite]
    assert document["suite"] == suite
    assert document["title"]
    assert "ynthetic" in document["about"]
    for row in document["rows"]:
        assert {"problem", "contender", "baseline", "seconds", "loss", "curve", "environment"} <= set(row)
        assert [point["iteration"] for point in row["curve"]] == sorted({p["iteration"] for p in row["curve"]})
    assert [row["baseline"] for row in document["rows"]].count(True) == 1
    for claim in document["published"]:
        assert claim["what"]
        assert claim["source"]
        assert claim["published"] is not None
        assert claim["holds"] in (True, False, None)


@pytest.mark.parametrize("suite", COMMANDS)
def test_tables_fit(suite, made):
    _, out = made[suite]
    for word in ("Published and measured", "Where we lose", "Goals", "fp32"):
        assert word in out
    assert "…" not in out
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("suite", COMMANDS)
def test_what_the_suites_write_can_be_shown_on_the_page(suite, made, tmp_path, monkeypatch):
    document, _ = made[suite]
    (tmp_path / f"{suite}-tiny.json").write_text(json.dumps(document))
    monkeypatch.setattr(maker.common, "RESULTS", tmp_path)
    shown = maker.section(suite)
    for row in document["rows"]:
        assert f"| {row['contender']} |" in shown
    for claim in document["published"]:
        assert claim["what"] in shown
    assert f"`benchmarks/results/{suite}-tiny.json`" in shown
    for name, drawing in maker.figures().items():
        assert f"(figures/{name})" in shown
        assert drawing.startswith("<svg")
        assert "nan" not in drawing
    assert maker.section(next(name for name in COMMANDS if name != suite)) == maker.NOTHING


def test_runs_with_other_seeds_are_one_section_with_means(made, tmp_path, monkeypatch):
    document = copy.deepcopy(made["papers-nuqsgd"][0])
    for seed, loss in enumerate((0.5, 0.25)):
        document["options"]["seed"], document["rows"][1]["loss"] = seed, loss
        (tmp_path / f"papers-nuqsgd-tiny{f'-seed{seed}' if seed else ''}.json").write_text(json.dumps(document))
    monkeypatch.setattr(maker.common, "RESULTS", tmp_path)
    shown = maker.section("papers-nuqsgd")
    assert shown.count("### ") == 1
    assert "seeds 0, 1" in shown
    assert "| 0.375 (0.25 to 0.5) |" in shown


@pytest.mark.parametrize(
    ("found", "said"), [([True], "yes"), ([False, False], "no"), ([True, False, True], "in 2 of 3"), ([None], "–")]
)
def test_a_finding_holds_for_all_seeds_or_for_some(found, said):
    assert maker.holds(found) == said


WRONG = {
    "no suite": (["papers"], "give --suite ca-sgd or --suite nuqsgd"),
    "suite": ([*PAPERS, "adam"], "unknown suite 'adam'; choose from ca-sgd, nuqsgd"),
    "option of the other": ([*PAPERS, "nuqsgd", "--recipe", "C"], "--recipe is for --suite ca-sgd"),
    "and the other way": ([*PAPERS, "ca-sgd", "--bucket-size", "64"], "--bucket-size is for --suite nuqsgd"),
    "problem": ([*PAPERS, "ca-sgd", "--problem", "iris"], "unknown problem 'iris'"),
    "folder": ([*PAPERS, "ca-sgd", "--data", "/nowhere"], "there is no folder /nowhere"),
    "a link of one process": (
        [*PAPERS, "ca-sgd", "--device", "cuda", "--rate", "1gbit"],
        "--rate is for several ranks; give --ranks 4",
    ),
    "scale": ([*PAPERS, "ca-sgd", "--scale", "2"], "at most 1; got 2"),
    "no files": ([*PAPERS, "nuqsgd", "--dataset", "cifar10"], "give their folder with --data"),
    "not in there": (
        [*PAPERS, "nuqsgd", "--dataset", "cifar10", "--data", "/nowhere"],
        "/nowhere has neither cifar10.npz",
    ),
    "imagenet": ([*PAPERS, "nuqsgd", "--dataset", "imagenet", "--model", "resnet-18"], "give their folder"),
    "workers and ranks": ([*PAPERS, "nuqsgd", "--ranks", "2", "--workers", "2"], "each rank is a worker"),
    "exchange": ([*PAPERS, "nuqsgd", "--exchange", "auto"], "--exchange is for real processes; give --ranks"),
    "too few images": ([*NUQSGD, "--images", "4"], "more than the 4 training images"),
    "output": ([*NUQSGD, "--output", "/nowhere/rows.json"], "/nowhere/rows.json: there is no folder"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(arguments, said)
