"""Calibration: fits find the rates they were made from, files are whole or not there, a dead rank is told."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from laconic.exchange import Communicator
from laconic.measure.calibrate import Calibration, CalibrationFailed, calibrate, calibrate_here
from laconic.planner import DEFAULT, Link
from laconic.planner.calibrate import (
    LINK_SIZES,
    Measurements,
    find_device,
    fit_link,
    measure,
    measure_codec,
    merge,
    scaled,
    with_waiting,
)
from laconic.planner.terms import all_reduce, all_to_all, total
from laconic.planner.timing import Stopwatch, fit_rates


@pytest.mark.parametrize("name", ["all_reduce", "all_to_all"])
@pytest.mark.parametrize("n_ranks", [2, 4, 9])
def test_a_link_is_found_from_its_times(name, n_ranks):
    link = Link(3e-4, 5e-9)
    way = all_reduce if name == "all_reduce" else lambda n, link, ranks: all_to_all("", n, link, ranks)
    samples = {size: [total(way(size, link, n_ranks))] for size in LINK_SIZES}
    found, errors = fit_link(name, samples, n_ranks)
    assert found.alpha_seconds == pytest.approx(link.alpha_seconds, rel=1e-4)
    assert found.seconds_per_byte == pytest.approx(link.seconds_per_byte, rel=1e-4)
    assert max(map(abs, errors)) < 1e-4


@pytest.mark.parametrize("n_ranks", [4, 6, 16])
@pytest.mark.parametrize("pair", [0.0, 4e-4, 1.0])
def test_waiting_is_told_from_messages_by_what_two_ranks_take(n_ranks, pair):
    link = Link(3e-5, 5e-9, 4e-4)
    latency = total(all_reduce(0, link, n_ranks))
    fitted = Link(latency / (2 * (n_ranks - 1)), 5e-9)
    exact = with_waiting(fitted, total(all_reduce(0, link, 2)), n_ranks)
    assert (exact.alpha_seconds, exact.wait_seconds) == pytest.approx((3e-5, 4e-4), rel=1e-4)
    found = with_waiting(fitted, pair, n_ranks)
    assert total(all_reduce(0, found, n_ranks)) == pytest.approx(latency, rel=1e-4)
    assert found.alpha_seconds >= 0.0999 * fitted.alpha_seconds
    assert found.wait_seconds >= 0
    assert total(all_reduce(0, exact, 64)) < total(all_reduce(0, fitted, 64))


def test_a_fit_is_deaf_to_an_outlier_and_knows_no_negative_rates():
    x = np.array([1.0, 10, 100, 1000, 10_000, 100_000])
    t = 1e-3 + 1e-7 * x
    t[2] *= 5  # disturbed timings are long ones
    assert fit_rates([[1, value] for value in x], t)[0] == pytest.approx((1e-3, 1e-7), rel=0.02)
    falling = fit_rates([[1, value] for value in x], 1e-3 / x**0.1)
    assert min(falling[0]) >= 0


def test_samples_of_two_occasions_are_one():
    a, b = {8: [1.0, 3.0], 64: [9.0]}, {8: [4.0]}
    assert merge(a, b)[8] == [1.0, 3.0, 4.0]
    assert list(merge(a, b)) == [8]


def test_one_rank_measures_no_link():
    found = measure(Stopwatch(Communicator(), torch.device("cpu"), budget_seconds=0.0, round_seconds=1e-3), quick=True)
    assert all(link == Link(0.0, 0.0) for link in found.links.values())
    assert set(found.codecs) == {"fp32", "bf16", "nuqsgd-8", "nuqsgd-4"}
    assert [found.codecs[name].bits for name in ("fp32", "bf16")] == [32.0, 16.0]
    assert 4 < found.codecs["nuqsgd-4"].bits < 4.1


@pytest.mark.parametrize("name", ["fp32", "nuqsgd-4", "rotated-4", "dithered-0.1"])
def test_bits_and_errors_are_of_the_gradient(name):
    clock = Stopwatch(Communicator(), torch.device("cpu"), budget_seconds=0.0, round_seconds=1e-3)
    sparse = torch.zeros(3000)
    sparse[::100] = 1.0
    (typical, _), (own, _) = (measure_codec(clock, name, gradient=gradient) for gradient in (None, sparse))
    error = {"fp32": 0.0, "rotated-4": 0.0096, "dithered-0.1": 0.1}.get(name)
    assert error is None or [typical.error, own.error] == pytest.approx([error] * 2, rel=0.1)
    assert own.bits < 0.5 * typical.bits if name == "dithered-0.1" else own.bits == typical.bits


def test_a_slower_codec_has_the_same_bits():
    rates = DEFAULT.codecs["nuqsgd-4"]
    twice = scaled(rates, 2.0)
    assert twice.bits == rates.bits
    assert twice.quantize_seconds == 2 * rates.quantize_seconds
    assert twice.call_seconds == 2 * rates.call_seconds


def test_uncertainty_is_what_spreads_or_what_is_off():
    found = Measurements(noise={"all_reduce": 0.2, "narrow": 0.4, "all_to_all": 0.6})
    assert found.uncertainty == pytest.approx(0.2)
    found.residuals |= {"fp32 all_reduce": -0.5, "bf16 all_reduce": 0.1, "nuqsgd-4 all_gather": 0.3}
    assert found.uncertainty == pytest.approx(0.3)


def test_a_file_gives_back_what_was_saved(tmp_path):
    path = tmp_path / "c.json"
    one = Calibration(DEFAULT, {"cpu": "x"}, noise={"all_reduce": 0.5}, residuals={"all_reduce": -0.1}, seconds=3.0)
    one.save(path)
    assert Calibration.from_json(json.loads(path.read_text())) == one
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]
    assert "calibrated in 3.0 s" in one.lines()[0]
    assert one.lines()[2:] == ["bits and errors of codecs are those on log-normal values"]
    assert "measure again" in replace(one, cluster=replace(DEFAULT, uncertainty=1.0)).lines()[-1]
    with pytest.raises(ValueError, match="not a cluster"):
        Calibration.from_json({"laconic_calibration": 1})


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "c.json"
    Calibration(DEFAULT).save(path)
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        Calibration(DEFAULT, seconds=float("inf")).save(path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_nothing_is_left_where_a_file_cannot_be(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        Calibration(DEFAULT).save(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_dead_rank_is_one_clear_error(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with pytest.raises(CalibrationFailed, match=r"^calibration failed: rank \d ended with exit status \d") as failed:
        calibrate_here(2, function="dying:die")
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(("name", "said"), [("tpu", "unknown device='tpu'"), ("", "unknown device")])
def test_unknown_devices(name, said):
    with pytest.raises(ValueError, match=said):
        find_device(name)


@pytest.mark.parametrize(("uncertain", "kept", "n"), [((0.1, 0.0), 0.1, 1), ((0.9, 0.2), 0.2, 2), ((0.9, 1.5), 0.9, 2)])
def test_an_uncertain_calibration_is_made_once_more(uncertain, kept, n, monkeypatch):
    left = [replace(DEFAULT, uncertainty=x) for x in uncertain]
    monkeypatch.setattr("laconic.measure.calibrate._measured", lambda *arguments: (left.pop(0), Measurements()))
    assert calibrate(Communicator(), {}).cluster.uncertainty == kept
    assert len(left) == len(uncertain) - n
