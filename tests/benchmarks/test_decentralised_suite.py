"""The suite `decentralised`: ranks and simulated nodes train alike; goals say what they were set for."""

from dataclasses import replace

import pytest

from benchmarks.decentralised.goals import decentralised_outcomes, setting
from benchmarks.decentralised.options import DecentralisedOptions
from benchmarks.decentralised.suite import decentralised_rows
from laconic.bench.protocol import Spread

TINY = {"ranks": 2, "topologies": ["ring"], "members": ["dpsgd", "ecd"], "codecs": ["nuqsgd-4"], "size": 3000}


@pytest.fixture(scope="module")
def rows():
    return decentralised_rows(DecentralisedOptions(repeats=2, batch_size=4, **TINY))


@pytest.fixture(scope="module")
def simulated(rows):
    return decentralised_rows(DecentralisedOptions(simulated=True, repeats=rows[0].n_steps, batch_size=4, **TINY))


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


def test_goals_speak_of_a_slow_link_where_there_is_one(rows, simulated):
    slow = [replace(row, slow_rate="10mbit") for row in rows]
    for some in (rows, simulated):
        assert "10mbit" not in setting(some)
        assert [goal.name for goal in decentralised_outcomes(some)] == ["ecd nuqsgd-4 ring: loss ÷ fp32"]
    assert "10mbit" in setting(slow)
    assert [goal.name for goal in decentralised_outcomes(slow)][1:] == ["ecd nuqsgd-4 ring: step over fp32"]
