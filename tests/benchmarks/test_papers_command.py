"""`python -m benchmarks papers`, at sizes that take no time."""

import pytest

PAPERS = ["papers", "--suite"]
CA_SGD = [
    *[*PAPERS, "ca-sgd", "--problem", "susy", "--scale", "2e-4", "--s", "4", "--batch-size", "4"],
    *["--iterations", "8", "--points", "3", "--ranks", "2", "--recipe", "C"],
]
NUQSGD = [
    *[*PAPERS, "nuqsgd", "--model", "resnet-8", "--images", "16", "--batch-size", "4", "--workers", "2"],
    *["--iterations", "1", "--points", "2", "--methods", "nuqsgd,qsgdinf"],
]


@pytest.mark.parametrize(("suite", "command"), [("papers-ca-sgd", CA_SGD), ("papers-nuqsgd", NUQSGD)])
def test_json_is_what_a_report_reads(suite, command, published):
    made = published(command)
    assert made["suite"] == suite
    assert made["title"]
    assert "ynthetic" in made["about"]
    for row in made["rows"]:
        assert {"problem", "contender", "baseline", "seconds", "loss", "curve", "environment"} <= set(row)
        assert [point["iteration"] for point in row["curve"]] == sorted({p["iteration"] for p in row["curve"]})
    assert [row["baseline"] for row in made["rows"]].count(True) == 1
    for claim in made["published"]:
        assert claim["what"]
        assert claim["source"]
        assert claim["published"] is not None
        assert claim["holds"] in (True, False, None)


@pytest.mark.parametrize("command", [CA_SGD, NUQSGD], ids=["ca-sgd", "nuqsgd"])
def test_tables(command, printed):
    out = printed(command)
    for word in ("Published and measured", "Where we lose", "Goals", "fp32"):
        assert word in out


WRONG = {
    "no suite": (["papers"], "Missing option '--suite'"),
    "suite": ([*PAPERS, "adam"], "unknown suite 'adam'; choose one of ca-sgd, nuqsgd"),
    "option of the other": ([*PAPERS, "nuqsgd", "--recipe", "C"], "--recipe is for --suite ca-sgd"),
    "and the other way": ([*PAPERS, "ca-sgd", "--bucket-size", "64"], "--bucket-size is for --suite nuqsgd"),
    "problem": ([*PAPERS, "ca-sgd", "--problem", "iris"], "unknown problem 'iris'"),
    "folder": ([*PAPERS, "ca-sgd", "--data", "/nowhere"], "there is no folder /nowhere"),
    "ranks on a GPU": ([*PAPERS, "ca-sgd", "--device", "cuda", "--ranks", "4"], "one process; leave --ranks"),
    "scale": ([*PAPERS, "ca-sgd", "--scale", "2"], "at most 1; got 2"),
    "no files": ([*PAPERS, "nuqsgd", "--dataset", "cifar10"], "give their folder with --data DIR"),
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
