"""`python -m benchmarks papers`, at sizes that take no time: its document, its tables, and the page that shows it."""

import contextlib
import io
import json
import re

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
    *["--methods", "nuqsgd-4/8192,qsgdinf-4/8192"],
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
            own = ["--out", str(target.parent / "runs")] if suite == "papers-nuqsgd" else []
            assert main([*command, *own, "-q", "--output", str(target)]) == 0
        found[suite] = json.loads(target.read_text()), out.getvalue()
    return found


@pytest.mark.parametrize("suite", COMMANDS)
def test_the_document_is_what_a_report_reads(suite, made):
    document, _ = made[suite]
    assert document["suite"] == suite
    assert document["title"]
    assert "ynthetic" in document["about"]
    for row in document["rows"]:
        assert {"problem", "contender", "baseline", "loss", "curve", "environment"} <= set(row)
        assert [point["iteration"] for point in row["curve"]] == sorted({p["iteration"] for p in row["curve"]})
    assert [row["baseline"] for row in document["rows"]].count(True) == 1
    for claim in document["published"]:
        assert claim["what"]
        assert claim["source"]
        assert claim["published"] is not None
        assert claim["verdict"] in ("holds", "beyond", "no", None)


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
    assert maker.section(next(name for name in COMMANDS if name != suite)) == maker.common.NOTHING


def test_each_claim_stands_once_and_every_no_is_explained():
    """Of the committed results."""
    made = maker.claims_table()
    lines = [line.split(" | ") for line in made.splitlines() if line.startswith("| ")][2:]
    assert len({line[0] for line in lines}) == len(lines) > 5
    explained = re.findall(r"^\*\*No: (.+?)\.\*\* (\S.*)$", made, re.MULTILINE)
    verdicts = [verdict.partition(": ")[2] or verdict for line in lines for verdict in line[4].split("; ")]
    assert verdicts.count("no") == sum(len(claims.split("; ")) for claims, _ in explained) > 0


def test_the_run_to_trust_most_stands_in_the_claims_table(made, tmp_path, monkeypatch):
    monkeypatch.setattr(maker.common, "RESULTS", tmp_path)
    document, _ = made["papers-nuqsgd"]
    for name, seeds, accuracy in (("one", [0], 0.9), ("three", [0, 1, 2], 0.2)):
        rows = [{**row, "seeds": seeds, "accuracies": [accuracy] * len(seeds)} for row in document["rows"]]
        rows[0] |= {"accuracies": [0.9] * len(seeds)}
        (tmp_path / f"papers-nuqsgd-{name}.json").write_text(json.dumps({**document, "rows": rows}))
    (line,) = (line for line in maker.claims_table(["full precision − NUQSGD"]).splitlines() if "NUQSGD" in line)
    assert "| 70 points | -0.5 to 0.5 | no; resnet-8 on 2 × 4 images at rate 0.1, fp32: holds |" in line
    assert "3 seeds (`papers-nuqsgd-three`)" in line


WRONG = {
    "no suite": (["papers"], "give --suite ca-sgd or --suite nuqsgd"),
    "suite": ([*PAPERS, "adam"], "unknown suite 'adam'; choose from ca-sgd, nuqsgd"),
    "option of the other": ([*PAPERS, "nuqsgd", "--recipe", "C"], "--recipe is for --suite ca-sgd"),
    "and the other way": ([*PAPERS, "ca-sgd", "--workers", "4"], "--workers is for --suite nuqsgd"),
    "problem": ([*PAPERS, "ca-sgd", "--problem", "iris"], "unknown problem 'iris'"),
    "folder": ([*PAPERS, "ca-sgd", "--data", "/nowhere"], "there is no folder /nowhere"),
    "a link of one process": (
        [*PAPERS, "ca-sgd", "--device", "cuda", "--rate", "1gbit"],
        "--rate is for several ranks; give --ranks 4",
    ),
    "scale": ([*PAPERS, "ca-sgd", "--scale", "2"], "at most 1; got 2"),
    "no sample": ([*PAPERS, "ca-sgd", "--problem", "higgs-sample"], "has no higgs_sample.*; give a folder"),
    "not in there": ([*PAPERS, "nuqsgd", "--data", "/nowhere"], "--data: there is no folder /nowhere"),
    "half an epoch": ([*PAPERS, "nuqsgd", "--epochs", "0.5"], "--epochs must be a whole number for nuqsgd"),
    "output": ([*NUQSGD, "--output", "/nowhere/rows.json"], "/nowhere/rows.json: there is no folder"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(arguments, said)
