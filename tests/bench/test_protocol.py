"""The protocol: how often things run, in which order, and what is made of the times."""

import pytest
import torch

from laconic.bench.protocol import Spread, compare, measure, one_thread


def test_spread_is_ordered():
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert spread.p20 < spread.median < spread.p80
    assert spread.median == 3.0


def test_one_sample_has_no_spread():
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)


def test_warm_up_runs_but_is_not_timed():
    calls = []
    measure(lambda: calls.append(1), repeats=3, warmup=2)
    assert len(calls) == 5


def test_baseline_runs_just_before_the_contender():
    calls = []
    compare(lambda: calls.append("us"), lambda: calls.append("them"), repeats=3, warmup=1)
    assert calls == ["them", "us"] * 4


def test_one_thread_is_given_back_even_after_an_error():
    before = torch.get_num_threads()

    def fail():
        with one_thread():
            assert torch.get_num_threads() == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before
