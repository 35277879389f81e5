"""The sentences say what the rows say, whatever that is."""

from dataclasses import replace

import pytest
import torch

from laconic.bench.survey import findings, schemes, survey


@pytest.fixture(scope="module")
def rows():
    v = torch.randn(3000, generator=torch.Generator().manual_seed(0)) ** 3
    return [survey(scheme, v, n_streams=3, repeats=1) for scheme in schemes(512)]


def with_variance(rows, label, variance):
    return [replace(row, variance=variance) if row.scheme == label else row for row in rows]


def test_survey_is_plausible(rows):
    for row in rows:
        assert row.variance <= row.bound * 1.5
        assert "fixed" not in row.coded_bits or row.coded_bits["fixed"] <= row.bits + 0.1
        assert row.total_bits >= min(row.coded_bits.values())
        assert row.entropy is None or row.coded_bits["rans"] >= row.entropy


@pytest.mark.parametrize(("variance", "said"), [(1e-3, "times below QSGD's"), (1e3, "times above QSGD's")])
def test_comparison_follows_the_rows(rows, variance, said):
    at_four = next(s for s in findings(with_variance(rows, "nuqsgd-4", variance)) if s.startswith("At 4 bits"))
    assert said in at_four


def test_a_broken_bound_is_said(rows):
    fine = [replace(row, variance=row.bound) for row in rows]
    assert findings(fine)[-1] == f"All {len(rows)} variances are within their proved bounds."
    assert findings(with_variance(fine, "qsgd-8", 1e9))[-1] == "Above its proved bound: qsgd-8."


def test_a_part_of_the_schemes_is_enough(rows):
    assert findings(rows[:2]) == ["All 2 variances are within their proved bounds."]
