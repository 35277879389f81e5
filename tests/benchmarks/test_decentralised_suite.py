"""The suite `decentralised`: ranks and simulated nodes train alike; its document, tables, goals and mistakes."""

from dataclasses import replace

import pytest

from benchmarks.decentralised import DecentralisedOptions, decentralised_rows
from benchmarks.goals import goals_of_rows
from laconic.bench.protocol import Spread
from laconic.bench.suite import document
from laconic.measure.environment import Environment
from laconic.report import show, terminal

SMALL = ["decentralised", "--size", "3000", "--repeats", "2", "--batch-size", "4", "--codec", "nuqsgd-4"]
TINY = {"topologies": ["ring"], "members": ["dpsgd", "ecd"], "codecs": ["nuqsgd-4"], "size": 3000}


@pytest.fixture(scope="module")
def rows():
    return decentralised_rows(DecentralisedOptions(ranks=2, repeats=2, batch_size=4, **TINY))


@pytest.fixture(scope="module")
def simulated(rows):
    return decentralised_rows(DecentralisedOptions(simulate=2, repeats=rows[0].n_steps, batch_size=4, **TINY))


def test_simulated_nodes_train_as_ranks_do(rows, simulated):
    on_ranks = {row.contender: row for row in rows}
    assert [row.contender for row in simulated] == ["DDP fp32", "dpsgd ring", "ecd nuqsgd-4 ring"]
    for row in simulated:
        other = on_ranks[row.contender]
        assert row.n_steps == other.n_steps
        assert row.loss == pytest.approx(other.loss, rel=1e-5)
        assert row.distance == pytest.approx(other.distance or 0.0, rel=1e-5)
        assert row.bytes_sent == other.bytes_sent


def test_only_ranks_have_seconds(rows, simulated):
    assert all(row.seconds is None and row.slow_bytes_sent is None for row in simulated)
    assert all(row.seconds is not None and row.slow_bytes_sent == row.bytes_sent for row in rows)
    assert rows[0].speedup_over_fp32 == Spread(1.0, 1.0, 1.0)


def goals(rows):
    said = goals_of_rows("decentralised", rows)
    return [goal["name"] for goal in said["goals"]], said["goals_for"]


def test_goals_speak_of_a_slow_link_where_there_is_one(rows, simulated):
    for some in (rows, simulated):
        names, setting = goals(some)
        assert "10mbit" not in setting
        assert names == ["ecd nuqsgd-4 ring: loss ÷ fp32"]
    names, setting = goals([replace(row, slow_rate="10mbit") for row in rows])
    assert "10mbit" in setting
    assert names[1:] == ["ecd nuqsgd-4 ring: step over fp32"]


def test_tables_over_ranks(rows, capsys):
    made = document("decentralised", rows, Environment.here(), **goals_of_rows("decentralised", rows))
    show(terminal("decentralised", made))
    out = capsys.readouterr().out
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
    "slow link alone": (["--slow", "10mbit"], "give --rate"),
    "slow rate": (["--rate", "1gbit", "--slow", "slow"], "got 'slow'"),
    "one rank": (["--ranks", "1"], "ranks must be from 2 to 250"),
    "both": (["--ranks", "4", "--simulate", "8"], "--simulate starts no processes; leave out --ranks"),
    "simulated network": (["--simulate", "8", "--rate", "1gbit"], "--simulate starts no processes; leave out --rate"),
    "topology": (["--topology", "line"], "unknown topology 'line'; choose from ring, torus"),
    "member": (["--member", "choco"], "unknown member 'choco'"),
    "codec": (["--codec", "zip"], "unknown codec 'zip'"),
    "problem": (["--problem", "digit"], "unknown problem 'digit'"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(arguments, said, complains):
    complains(["decentralised", *arguments], said)
