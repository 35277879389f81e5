"""Rows say where they come from, and nothing that would identify the machine's owner."""

import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from laconic import __version__
from laconic.measure import Environment
from laconic.measure import environment as module


def test_everything_but_the_commit_is_known():
    here = asdict(Environment.here())
    assert here.pop("commit") is None or len(module.commit()) >= 40
    assert {name for name, value in here.items() if not value} == {"gpu", "n_gpus", "cuda", "triton"}
    assert here["laconic"] == __version__
    assert here["date"].endswith("+00:00")


def test_no_host_and_no_folder():
    text = str(asdict(Environment.here()))
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text


def test_no_git_means_no_commit(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert module.commit() is None


def test_a_checkout_of_something_else_is_not_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_git", lambda folder, *arguments: str(tmp_path))
    assert module.commit() is None


def test_changes_in_the_sources_are_told(monkeypatch):
    top = Path(module.laconic.__file__).resolve().parents[2]
    answers = {"rev-parse --show-toplevel": str(top), "rev-parse HEAD": "a" * 40}
    monkeypatch.setattr(module, "_git", lambda folder, *arguments: answers.get(" ".join(arguments), " M src/x.py"))
    assert module.commit() == "a" * 40 + "+dirty"


@pytest.mark.parametrize(("changed", "dirty"), [("benchmarks/plan.py", True), ("benchmarks/results/plan.json", False)])
def test_what_measures_counts_as_a_source_and_its_results_do_not(changed, dirty, tmp_path):
    module._git(tmp_path, "init", "-q")
    path = tmp_path / changed
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert bool(module._git(tmp_path, "status", "--porcelain", "--", *module.MEASURED)) == dirty
