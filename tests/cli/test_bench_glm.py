"""`laconic bench glm`, at sizes that take no time."""

import json

import pytest

from laconic.cli import main

SMALL = ["--scale", "2e-4", "--s", "4", "--batch-size", "4", "--iterations", "8", "--repeats", "1", "--recipe", "C"]
GLM = ["bench", "glm", "--problem", "susy", "--ranks", "2", *SMALL]


def test_json(published):
    made = published(GLM)
    assert made["suite"] == "glm"
    labels = ["sgd fp32", "sgd C", "ca_sgd C s=4", "sgd fp32, no messages", "ca_sgd C s=4, no messages"]
    assert [row["contender"] for row in made["rows"]] == labels
    assert all(row["environment"]["cpu"] for row in made["rows"])
    assert made["options"]["problems"] == ["susy"]


def test_tables(printed):
    out = printed(GLM)
    for word in ("Where we lose", "fp32"):
        assert word in out


def test_a_file_by_its_target(capsys, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("a,b,n\n" + "".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(60)))
    command = ["bench", "glm", "--ranks", "2", *SMALL[2:], "--data", str(path), "--target", "n", "--family", "poisson"]
    assert main([*command, "--standardize", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {(row["problem"], row["family"], row["n_features"]) for row in made["rows"]} == {("counts", "poisson", 2)}
    assert str(tmp_path) not in json.dumps(made)


WRONG = {
    "problem": (["--problem", "iris"], "unknown problem 'iris'"),
    "recipe": (["--recipe", "E"], "unknown --recipe E"),
    "s": (["--s", "7"], "--iterations must be a multiple of every s"),
    "no s": (["--s", ","], "at least one problem, one s"),
    "s is no number": (["--s", "many"], "expected a whole number"),
    "scale": (["--scale", "2"], "at most 1; got 2"),
    "no scale": (["--scale", "0"], "above 0 and at most 1; got 0"),
    "problem and file": (["--data", "a9a", "--problem", "susy"], "--problem is of the synthetic problems"),
    "scale of a file": (["--data", "a9a", "--scale", "0.1"], "--scale is of the synthetic problems"),
    "a dense problem": (["--dense"], "--dense is for files; give one with --data"),
    "one rank": (["--ranks", "1"], "ranks must be from 2 to 250"),
    "rate": (["--rate", "fast"], "such as 1gbit"),
    "target without a file": (["--target", "y"], "--target is for files; give one with --data"),
    "no such file": (["--data", "/nowhere/a9a"], "/nowhere/a9a"),
    "output": (["--output", "/nowhere/rows.json"], "/nowhere/rows.json: there is no folder"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(["bench", "glm", *arguments], said)
