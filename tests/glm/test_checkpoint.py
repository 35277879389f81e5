"""Stop, reload, go on = never stopped, bit for bit; at whatever moment a fit is killed, its last checkpoint loads."""

import json
import os
import signal
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from forking import forked
from laconic.atomic_write import NotWritten
from laconic.errors import CorruptPayload, LaconicError
from laconic.exchange.launch import Host, start_ranks
from laconic.glm import checkpoint
from laconic.glm.fit import fit_file
from laconic.glm.model import Model, load_tensors, save_tensors
from laconic.glm.solvers import Diverged

from .fits import Stop, changed, small_job, write_problem

HERE = Path(__file__).parent


@pytest.fixture
def problem(tmp_path):
    return write_problem(tmp_path / "data.safetensors")


@pytest.fixture
def whole(problem, tmp_path):
    """The model of a fit that was never stopped."""
    fit_file(small_job(problem, tmp_path / "whole.safetensors"))
    return Model.load(tmp_path / "whole.safetensors")


def same(model, other):
    return torch.equal(model.coef, other.coef) and torch.equal(model.intercept, other.intercept)


def checkpointed(problem, tmp_path, **changes):
    folder = tmp_path / "kept"
    return small_job(problem, tmp_path / "model.safetensors", checkpoint=str(folder), checkpoint_every=0.0, **changes)


@pytest.mark.parametrize("n_segments", [1, 3, 7, 8, 26])
@pytest.mark.parametrize("changes", [{}, {"momentum": 0.5}, {"solver": "sgd", "s": 1}, {"recipe": "C"}], ids=str)
def test_resume_is_bit_exact(problem, tmp_path, n_segments, changes):
    job = checkpointed(problem, tmp_path, **changes)
    fit_file(changed(job, checkpoint=None, output=str(tmp_path / "whole.safetensors")))
    stopped = fit_file(job, callbacks=[Stop(n_segments)])
    assert stopped["outcome"] == "stopped"
    fit_file(changed(job, resume=True))
    assert same(Model.load(tmp_path / "model.safetensors"), Model.load(tmp_path / "whole.safetensors"))


TEAMS = {"teams": 3, "average_every": 1}


@pytest.mark.parametrize(
    ("n_segments", "changes"),
    [
        (3, {}),
        pytest.param(7, {}, marks=pytest.mark.exhaustive),
        (2, TEAMS | {"average_codec": "ef-sign"}),
        (5, TEAMS | {"average_codec": "nuqsgd-4"}),
    ],
    ids=str,
)
def test_resume_on_ranks_is_bit_exact(problem, tmp_path, n_segments, changes, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    job, hosts = checkpointed(problem, tmp_path, **changes), [Host()] * changes.get("teams", 2)
    whole = changed(job, checkpoint=None, output=str(tmp_path / "whole.safetensors"))
    reports = start_ranks("laconic.glm.fit:run_job", {"job": asdict(whole)}, hosts)
    assert (reports[0]["ranks"], reports[0]["n_rows"]) == (len(hosts), 203)
    again = start_ranks("fits:stop_and_go_on", {"job": asdict(job), "n_segments": n_segments}, hosts)
    assert same(Model.load(tmp_path / "model.safetensors"), Model.load(tmp_path / "whole.safetensors"))
    assert said(again[0]) == said(reports[0])


def said(report):
    """What a fit has sent, in all and by each epoch's end."""
    return [(row["bytes_sent"], row["messages"]) for row in [report, *report["history"]]]


def test_a_fit_of_two_ranks_goes_on_with_one(problem, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    job = checkpointed(problem, tmp_path, max_iter=2)
    start_ranks("laconic.glm.fit:run_job", {"job": asdict(job)}, [Host()] * 2)
    assert len(checkpoint.latest(tmp_path / "kept").files) == 2
    fit_file(changed(job, resume=True, max_iter=4))
    assert torch.allclose(Model.load(tmp_path / "model.safetensors").coef, whole.coef, rtol=1e-12)


def test_teams_go_on_with_fewer_ranks_each(problem, tmp_path):
    job = checkpointed(problem, tmp_path, teams=2, average_every=1, max_iter=2)
    for ranks, more in ((4, {}), (2, {"resume": True, "max_iter": 4})):
        report = start_ranks("laconic.glm.fit:run_job", {"job": asdict(changed(job, **more))}, [Host()] * ranks)[0]
    alone = changed(job, max_iter=4, checkpoint=None, output=str(tmp_path / "whole.safetensors"))
    expected = start_ranks("laconic.glm.fit:run_job", {"job": asdict(alone)}, [Host()] * 2)[0]
    assert report["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    with pytest.raises(LaconicError, match="made with other teams: then 2, now None"):
        fit_file(changed(job, teams=1, resume=True))


def test_more_epochs_are_the_same_as_all_at_once(problem, whole, tmp_path):
    job = checkpointed(problem, tmp_path, max_iter=2)
    fit_file(job)
    fit_file(changed(job, resume=True, max_iter=4))
    assert same(Model.load(tmp_path / "model.safetensors"), whole)


ENDED = {
    "converged": {"learning_rate": "constant", "tol": 10.0},
    "stalled": {"learning_rate": "constant", "eta0": 2.0, "tol": 1e-6, "polish": False},
}


def dies_at_the_end(progress):
    if progress.state.ended:
        raise KeyboardInterrupt


@pytest.mark.parametrize("outcome", ENDED)
@pytest.mark.parametrize("killed", [False, True])
def test_what_has_ended_stays(problem, tmp_path, outcome, killed):
    """Also where it was killed right after its last epoch; and more epochs change nothing."""
    job = checkpointed(problem, tmp_path, max_iter=200, **ENDED[outcome])
    whole = fit_file(changed(job, checkpoint=None, output=str(tmp_path / "whole.safetensors")))
    assert whole["outcome"] == outcome
    assert whole["epochs"] < 200
    with pytest.raises(KeyboardInterrupt) if killed else nullcontext():
        fit_file(job, callbacks=[dies_at_the_end] if killed else ())
    again = fit_file(changed(job, resume=True, max_iter=300))
    assert again["ran"] == "nothing: with these options no epoch is left to do"
    assert all(again[name] == whole[name] for name in ("outcome", "epochs", "loss"))
    assert same(Model.load(tmp_path / "model.safetensors"), Model.load(tmp_path / "whole.safetensors"))


def test_epochs_without_progress_are_counted_across_a_stop(problem, tmp_path):
    job = checkpointed(problem, tmp_path, max_iter=200, **ENDED["stalled"])
    whole = fit_file(changed(job, checkpoint=None, output=str(tmp_path / "whole.safetensors")))
    fit_file(changed(job, max_iter=whole["epochs"] - 2))
    again = fit_file(changed(job, resume=True))
    assert again["epochs"] == whole["epochs"]
    assert same(Model.load(tmp_path / "model.safetensors"), Model.load(tmp_path / "whole.safetensors"))


def test_a_fit_that_diverges_says_so_though_it_is_checkpointed(problem, tmp_path):
    """Its loss is finite longer than its objective is, which JSON has no number for."""
    job = checkpointed(problem, tmp_path, learning_rate="constant", eta0=1e3, alpha=1.0)
    with pytest.raises(Diverged, match=r"the loss became .*: lower eta0"):
        fit_file(job)
    assert checkpoint.latest(tmp_path / "kept").numbers["history"][-1]["objective"] is None


OTHER = {
    "alpha": {"alpha": 0.5},
    "s": {"s": 2},
    "seed": {"seed": 4},
    "batch_size": {"batch_size": 4},
    "recipe": {"recipe": "fp32"},
    "learning_rate": {"learning_rate": "constant"},
    "eta0": {"eta0": 0.125},
    "standardize": {"standardize": True},
    "intercept": {"fit_intercept": False},
    "family": {"family": "linear"},
}


@pytest.mark.parametrize(("field", "changes"), OTHER.items(), ids=OTHER)
def test_other_settings_are_refused_by_name(problem, tmp_path, field, changes):
    job = checkpointed(problem, tmp_path, eta0=0.25, max_iter=1)
    fit_file(job)
    with pytest.raises(checkpoint.OtherSettings, match=f"other {field}: then .*, now "):
        fit_file(changed(job, resume=True, **changes))


def test_other_data_is_refused(problem, tmp_path):
    job = checkpointed(problem, tmp_path, eta0=0.25, max_iter=1)
    fit_file(job)
    other = write_problem(tmp_path / "other.safetensors", seed=1)
    with pytest.raises(checkpoint.OtherSettings, match="other X: then "):
        fit_file(changed(job, resume=True, data=replace(job.data, path=str(other))))


def test_an_old_checkpoint_is_not_overwritten_by_mistake(problem, tmp_path):
    job = checkpointed(problem, tmp_path, max_iter=1)
    fit_file(job)
    with pytest.raises(ValueError, match="holds a checkpoint of epoch 1; go on from it with resume=True"):
        fit_file(job)


def killed(rank, job, at, torn, pipe):
    """A fit that ends at a rename: of a whole file, or of one of which the disk has only the beginning."""
    calls, rename = 0, os.replace

    def crash(source, target):
        nonlocal calls
        calls += 1
        if calls == at:
            if torn:
                os.truncate(source, 9)
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.replace = crash
    fit_file(job)


@pytest.mark.parametrize("at", [5, 6])
@pytest.mark.parametrize("torn", [False, True])
def test_killed_between_write_and_rename(problem, whole, tmp_path, at, torn):
    """Odd renames are of a rank's tensors, even ones of the manifest."""
    job = checkpointed(problem, tmp_path)
    with forked(killed, 1, job, at, torn) as ([died], _):
        died.join(100)
    assert died.exitcode == -signal.SIGKILL
    assert not Path(job.output).exists()
    assert checkpoint.latest(tmp_path / "kept").number == (at - 1) // 2
    fit_file(changed(job, resume=True))
    assert same(Model.load(tmp_path / "model.safetensors"), whole)
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert len(names) == 2, "what the kill has left is removed"


def tells(rank, job, pipe):
    fit_file(job, callbacks=[lambda progress: pipe.send(progress.iteration)])


@pytest.mark.parametrize("after", [2, 9])
def test_killed_at_any_moment(problem, tmp_path, after):
    job = checkpointed(problem, tmp_path, max_iter=40, tol=None)
    with forked(tells, 1, job) as ([fit], [pipe]):
        for _ in range(after):
            pipe.recv()
        fit.kill()
    found = checkpoint.latest(tmp_path / "kept")
    assert found.number >= after
    fit_file(changed(job, resume=True))
    fit_file(changed(job, checkpoint=None, output=str(tmp_path / "whole.safetensors")))
    assert same(Model.load(tmp_path / "model.safetensors"), Model.load(tmp_path / "whole.safetensors"))


def test_a_full_disk_leaves_the_last_checkpoint(problem, whole, tmp_path, monkeypatch):
    job = checkpointed(problem, tmp_path)
    calls, fsync = 0, os.fsync

    def full(handle):
        nonlocal calls
        calls += 1
        if calls > 9:
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(NotWritten, match=r"no room for the .* bytes of .*kept"):
            fit_file(job)
    assert checkpoint.latest(tmp_path / "kept").number >= 2
    assert not list((tmp_path / "kept").glob(".*.tmp"))
    fit_file(changed(job, resume=True))
    assert same(Model.load(tmp_path / "model.safetensors"), whole)


def hostile(manifest: dict) -> dict[str, object]:
    numbers = manifest["numbers"]
    return {
        "a list": [],
        "nothing": {},
        "format": manifest | {"format": 1},
        "path": manifest | {"files": ["../../etc/passwd"]},
        "no files": manifest | {"files": []},
        "more": manifest | {"other": 1},
        "epoch": manifest | {"numbers": numbers | {"epoch": -1}},
        "batch": manifest | {"numbers": numbers | {"batch": "x"}},
        "history": manifest | {"numbers": numbers | {"history": [3]}},
        "bytes": manifest | {"numbers": numbers | {"bytes_sent": -1}},
        "ended": manifest | {"numbers": numbers | {"ended": "well"}},
        "missing number": manifest | {"numbers": {"epoch": 1}},
    }


def test_a_hostile_manifest_is_told_apart(problem, tmp_path):
    job = checkpointed(problem, tmp_path, max_iter=1)
    fit_file(job)
    path = tmp_path / "kept" / checkpoint.MANIFEST
    good = json.loads(path.read_text())
    for name, manifest in hostile(good).items():
        path.write_text(json.dumps(manifest))
        assert refused(path.parent), name
    path.write_text("{" * 100_000)
    assert refused(path.parent)


def refused(folder):
    try:
        checkpoint.latest(folder)
    except CorruptPayload as error:
        return "is not a checkpoint of laconic" in str(error)
    return False


def test_tensors_that_do_not_belong_are_told_apart(problem, tmp_path):
    job = checkpointed(problem, tmp_path, max_iter=1)
    fit_file(job)
    folder = tmp_path / "kept"
    [name] = checkpoint.latest(folder).files
    tensors, metadata = load_tensors(folder / name, "a checkpoint")
    for wrong, about in (
        (tensors, {"checkpoint": "1"}),
        ({"x": tensors["x"]}, metadata),
        (tensors | {"x": torch.zeros(1, 3, dtype=torch.float64)}, metadata),
        (tensors | {"x": tensors["x"].float()}, metadata),
        (tensors | {"x": torch.zeros(7)}, metadata),
    ):
        save_tensors(folder / name, wrong, about)
        with pytest.raises(CorruptPayload):
            fit_file(changed(job, resume=True))
    (folder / name).unlink()
    with pytest.raises(CorruptPayload, match="there is no file"):
        fit_file(changed(job, resume=True))


def test_a_folder_that_cannot_be_made(problem, tmp_path):
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(LaconicError):
        fit_file(checkpointed(problem, tmp_path))
