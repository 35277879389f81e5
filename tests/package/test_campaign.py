"""The campaign: a batch is counted, what kills or holds up a worker is lost, and a document is added to."""

import json
import threading
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from campaign import __main__ as command
from campaign import cases
from campaign.case import Batch, Case, Row, _watch
from laconic.measure.environment import Environment


def row(case="files, model"):
    return Row(case=case, reduced=10, full=100)


def test_cases_have_names_of_their_own_and_more_trials_when_full():
    for name, case in cases().items():
        assert name == case.name
        assert 0 < case.reduced <= case.full, name
        assert case.batch > 0


def test_trials_of_another_document_are_added_once(tmp_path, monkeypatch):
    paths = ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    here, there = (Environment.here(commit) for commit in ("01", "02"))
    for (seed, lost), path, where in zip([(0, 0), (1, 1)], paths, (here, there), strict=True):
        losses = [{"seed": seed, "number": 3, "error": "…"}] * lost
        made = replace(row(), seed=seed, tried=5, begun=7, lost=lost, outcomes={"read": 5 - lost}, losses=losses)
        command.add(path, made, where)
    command.add(theirs, row("other"), there)
    monkeypatch.setattr("sys.argv", ["campaign", "--out", str(ours), "--merge", str(theirs)])
    assert command.main() == 0
    found = command.read(ours)
    both = command.as_row(found["files, model"])
    assert (both.tried, both.begun, both.seed, both.lost, both.survived) == (10, 7, 0, 1, 9)
    assert (both.outcomes, both.losses, both.commits) == ({"read": 9}, losses, ["01", "02"])
    assert (found.keys(), found["files, model"]["share"]) == ({"files, model", "other"}, 0.1)
    with pytest.raises(SystemExit, match="trials of 'files, model' with seed 1 are here already"):
        command.main()
    assert command.read(ours) == found


def test_a_batch_is_made_counted_and_added_to_a_document(tmp_path):
    case, made, path = cases()["files, model"], row(), tmp_path / "campaign.json"
    batch = Batch(case, made.seed, 0, 30)
    batch.run()
    made.add(batch)
    assert (made.tried, made.survived, made.lost, sum(made.outcomes.values())) == (30, 30, 0, 30)
    here = Environment.here("0123")
    command.add(path, row("other"), here)
    command.add(path, made, here)
    again = command.row_of(case, path, seed=7)
    assert (again.tried, again.outcomes, again.seed, again.commits) == (30, made.outcomes, 0, ["0123"])
    assert [one["case"] for one in json.loads(path.read_text())["rows"]] == ["files, model", "other"]


def test_the_trial_that_ends_a_worker_is_lost():
    made, first, second = row(), *(Batch(cases()["files, model"], 0, first, 10) for first in (0, 6))
    first._count([{"outcomes": {"read": 3}, "losses": [], "done": False}], 5, "the worker ended with -11")
    made.add(first)
    assert (made.tried, made.lost, made.losses[0]["number"]) == (6, 1, 5)
    second._count([{"outcomes": {"read": 4}, "losses": [], "done": True}], 9, "")
    made.add(second)
    assert (made.tried, made.survived, made.outcomes) == (10, 9, {"read": 7})
    with pytest.raises(RuntimeError, match="no trial was begun; the worker ended with 1"):
        Batch(cases()["files, model"], 0, 6, 9)._count([], 5, "the worker ended with 1")


def test_workers_at_once_make_no_trial_twice_and_those_of_one_that_died_are_made_up_for(tmp_path, monkeypatch):
    made, lock = [], threading.Lock()

    def run(batch, over):
        with lock:
            died = batch.first == 4
            batch.tried = 1 if died else batch.last - batch.first
            made.extend(range(batch.first, batch.first + batch.tried))

    monkeypatch.setattr(Batch, "run", run)
    monkeypatch.setattr(command, "cases", lambda only: {"a": Case("a", 10, 20, lambda: str, 4)})
    for asked, tried in (([], 10), (["--full"], 20)):
        monkeypatch.setattr("sys.argv", ["campaign", "--jobs", "3", "--out", str(tmp_path / "c.json"), *asked])
        assert command.main() == 0
        assert len(made) == len(set(made)) == command.read(tmp_path / "c.json")["a"]["tried"] == tried


@pytest.mark.parametrize(("processes", "looks"), [(0, 3), (3, 6)])
def test_a_worker_that_does_not_come_on_is_given_up_later_where_cores_are_shared(
    tmp_path, monkeypatch, processes, looks
):
    from campaign import case

    def wait(seconds):
        raise case.subprocess.TimeoutExpired("worker", seconds)

    places, clock = chain([0], repeat(1, looks)), iter(range(0, 1000, 7))
    monkeypatch.setattr(case.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(case.os, "getloadavg", lambda: (processes, 0, 0))
    monkeypatch.setattr(case, "_at", lambda path: next(places))
    monkeypatch.setattr(case, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert _watch(SimpleNamespace(wait=wait), tmp_path, 10.0, lambda: False)
    assert list(places) == []


def test_what_a_machine_cannot_run_is_left_out(monkeypatch, capsys):
    def cannot():
        raise command.Broken("needs a CUDA GPU")

    monkeypatch.setattr(command, "cases", lambda only: {"a": Case("a", 1, 1, lambda: str, 1, needs=cannot)})
    assert command.runnable([]) == {}
    assert "a: left out, since it needs a CUDA GPU" in capsys.readouterr().err
