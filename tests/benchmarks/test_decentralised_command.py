"""`python -m benchmarks decentralised`, at sizes that take no time."""

import pytest

SMALL = ["decentralised", "--size", "3000", "--repeats", "2", "--batch-size", "4", "--codec", "nuqsgd-4"]


def test_tables_over_ranks(printed):
    out = printed([*SMALL, "--ranks", "2", "--topology", "ring", "--member", "dpsgd,ecd"])
    for word in ("DDP fp32", "nuqsgd-4 scatter_reduce", "dpsgd ring", "ecd nuqsgd-4 ring", "loopback", "Goals"):
        assert word in out


def test_json_of_simulated_nodes(published):
    options = ["--simulate", "6", "--topology", "ring,torus", "--member", "ecd,dcd,ecd-paper"]
    document = published([*SMALL, *options])
    assert document["suite"] == "decentralised"
    rows = {row["contender"]: row for row in document["rows"]}
    assert list(rows) == [
        "DDP fp32",
        *(f"{member} nuqsgd-4 {graph}" for graph in ("ring", "torus") for member in ("ecd", "dcd", "ecd-paper")),
    ]
    assert all(row["simulated"] and row["ranks"] == 6 and row["seconds"] is None for row in rows.values())
    assert all(len(row["losses"]) == 2 and row["losses"][-1] == row["loss"] for row in rows.values())
    assert rows["ecd nuqsgd-4 torus"]["bytes_sent"] > rows["ecd nuqsgd-4 ring"]["bytes_sent"] > 0
    assert [goal["verdict"] for goal in document["goals"]] == ["aim"]


WRONG = {
    "rate": (["--rate", "fast"], "such as 1gbit"),
    "slow link alone": (["--slow", "10mbit"], "give --rate, too"),
    "slow rate": (["--rate", "1gbit", "--slow", "slow"], "got 'slow'"),
    "one rank": (["--ranks", "1"], "ranks must be from 2 to 250"),
    "both": (["--ranks", "4", "--simulate", "8"], "give --ranks or --simulate, not both"),
    "simulated network": (["--simulate", "8", "--rate", "1gbit"], "simulated nodes use no network"),
    "topology": (["--topology", "line"], "unknown topology 'line'; choose from ring, torus"),
    "member": (["--member", "choco"], "unknown member 'choco'"),
    "codec": (["--codec", "zip"], "unknown codec 'zip'"),
    "problem": (["--problem", "digit"], "unknown problem 'digit'"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(["decentralised", *arguments], said)
