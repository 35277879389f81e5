"""The suite `glm`: contenders and checks. No test asserts a time."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from laconic.bench.glm import suite
from laconic.bench.glm.runs import Given, Race, contenders, load, races
from laconic.bench.glm.suite import GLMOptions, check_iterates, glm_rows, losses
from laconic.bench.protocol import Spread, WrongResult
from laconic.bench.suite import document, row_fields
from laconic.data import BadTable, Source
from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.glm import Bernoulli, DenseColumns, Problem, SparseColumns, recipe
from laconic.measure import Environment
from laconic.measure.solvers import Contender, Copies
from laconic.report import where

ROOT = Path(__file__).parents[2]
TINY = {"ranks": 2, "s": (1, 4), "batch_size": 4, "iterations": 16, "repeats": 2}
ONE = Spread(1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def rows():
    return glm_rows(GLMOptions(problem=["susy", "poisson-synth"], scale=2e-4, teams=(2,), **TINY))


def test_every_contender_has_a_row_on_every_problem(rows):
    labels = [contender.label for contender in contenders(("fp32", "C", "D"), (1, 4), (2,))]
    assert [(row.problem, row.contender) for row in rows] == [
        (name, label) for name in ("susy", "poisson-synth") for label in labels
    ]
    for row in rows:
        assert row.seconds.p20 <= row.seconds.median <= row.seconds.p80
        assert (row.ranks, row.batch_size, row.n_iterations) == (2, 4, 48)
        assert row.cpu_seconds > 0
    assert {row.n_features for row in rows} == {18, 1000}


@pytest.mark.parametrize("fails", [False, True])
def test_solvers_go_before_their_channel(monkeypatch, fails):
    """For whose CUDA graphs NCCL would wait, also where a check fails."""
    asked = {"problems": [asdict(Given("susy", 2e-4))], "contenders": [asdict(Contender("ca_sgd", "C", 4))]}
    left, seen = [], []
    monkeypatch.setattr(Communicator, "close", lambda _: left.extend(run for run in seen if hasattr(run, "advance")))
    going = races(lambda _: None, batch_size=4, **asked)
    seen.extend(next(going).runs.values())
    assert len(seen) == 1
    with pytest.raises(WrongResult if fails else StopIteration):
        going.throw(WrongResult("diverged")) if fails else next(going)
    assert not left


@pytest.mark.parametrize(("iterations", "lengths"), [(8, [8] * 3), (264, [256, 264, 264, 264])])
def test_rounds_are_timed_once_one_as_long_was_run(monkeypatch, iterations, lengths):
    seen, run = [], Race.round
    monkeypatch.setattr(Race, "round", lambda race, rows: seen.append(len(rows) // 4) or run(race, rows))
    asked = {"problems": [asdict(Given("susy", 2e-4))], "contenders": [asdict(Contender("sgd", "fp32"))]}
    (found,) = suite.glm_on_rank(lambda _: None, batch_size=4, iterations=iterations, repeats=2, **asked)
    assert seen == lengths
    assert len(found["runs"]["sgd fp32"]["seconds"]) == 2


def test_messages_and_bytes_are_those_of_the_solvers(rows):
    by_label = {row.contender: row for row in rows if row.problem == "susy"}
    assert by_label["sgd fp32"].messages == by_label["ca_sgd C s=1"].messages == 1.0
    assert by_label["sgd fp32"].bytes_sent == 4 * 4  # 2 (P − 1) / P of 4 margins in float32
    assert by_label["ca_sgd C s=4"].messages == 0.25
    assert by_label["ca_sgd C s=4"].bytes_sent == (4 * 4 + 6 * 16) * 4 / 4  # a block: margins and 6 blocks of 4 by 4
    assert by_label["ca_sgd D s=4"].bytes_sent == by_label["ca_sgd C s=4"].bytes_sent / 2
    assert by_label["ca_sgd C s=4, no messages"].messages == by_label["sgd fp32, no messages"].bytes_sent == 0


def test_iterates_and_losses(rows):
    for row in rows:
        if row.is_floor:
            assert row.loss is row.loss_gap is row.difference is None
        elif "teams" in row.contender:  # whose iterates are their own
            assert abs(row.loss_gap) < 0.5
        elif row.recipe == "fp32":
            assert row.difference <= 1e-5
            assert abs(row.loss_gap) <= 1e-5
        else:
            assert 0 < row.difference < 0.05
            assert abs(row.loss_gap) < 0.005
    assert rows[0].speedup_over_fp32 == ONE
    assert rows[0].loss_gap == rows[0].difference == 0


def test_rows_can_be_published(rows):
    made = document("glm", rows, Environment.here(), options=GLMOptions(problem=["susy"]).published())
    assert json.loads(json.dumps(made, allow_nan=False))["rows"][0]["is_floor"] is False


def test_files_are_published_without_their_folder():
    published = GLMOptions(data=Path("/data/sets/a9a.svm")).published()
    assert (published["data"], published["problems"]) == ("a9a.svm", ["a9a"])
    assert "/data" not in json.dumps(published)


def result(digest="a", apart=0.0):
    return {"digest": digest, "checked": (apart, 1.0)}


@pytest.mark.parametrize(
    ("recipe", "runs", "said"),
    [
        ("C", [result("a"), result("b")], "the ranks do not have the same margins"),
        ("fp32", [result(apart=1e-9), result()], "off by 2.24e-05 of their length"),
        ("C", [result(apart=math.inf), result()], "no longer numbers"),
    ],
)
def test_wrong_results_are_result(recipe, runs, said):
    with pytest.raises(WrongResult, match=said):
        check_iterates(Contender("ca_sgd", recipe, 8), runs)


def test_right_results_are_let_through():
    assert check_iterates(Contender("ca_sgd", "C", 8), [result(apart=1e-9)] * 2) == pytest.approx(10**-4.5)
    assert check_iterates(Contender("ca_sgd", "fp32", 8), [result()] * 2) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 1}, "ranks must be from 2 to 250, got 1"),
        ({"rate": "fast"}, "got 'fast'"),
        ({"s": (3,)}, "iterations must be a multiple of every s, got 16 and s = 3"),
        ({"s": (0,)}, "multiple of every s"),
        ({"s": ()}, "at least one problem"),
        ({"recipes": ("E",)}, "unknown recipe='E'"),
        ({"repeats": 0}, "repeats must be .*at least 1"),
        ({"device": "tpu", "ranks": None}, "device must be a CUDA GPU, such as cuda; got 'tpu'"),
        ({"device": "cuda:1"}, "device of ranks must be cpu or cuda, got 'cuda:1'"),
        ({"device": "cuda", "ranks": None, "rate": "1gbit"}, "rate is of links between ranks; say how many with ranks"),
    ],
)
def test_wrong_options_are_told_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        GLMOptions(problem=["susy"], **TINY | options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "iris"}, "unknown problem 'iris'; choose from epsilon"),
        ({"name": "susy", "scale": 0}, "above 0 and at most 1; got 0"),
        ({"name": "x", "source": Source("x"), "family": "cauchy"}, "unknown family 'cauchy'"),
        (
            {"name": "x", "source": Source("x"), "family": "linear", "positive": "2"},
            "positive is for family='logistic', not linear",
        ),
    ],
)
def test_wrong_data_is_told_before_any_work(arguments, message):
    with pytest.raises(ValueError, match=message):
        Given(**arguments)


def test_a_file_with_many_classes(tmp_path):
    path = tmp_path / "three.csv"
    path.write_text("a,b,kind\n1,2,x\n3,5,y\n5,1,z\n0,0,y\n")
    given = Given("three", source=Source(str(path), target="kind"), positive="y", standardize=True)
    assert Given(**asdict(given)) == given
    problem = load(given, Communicator())
    assert problem.n_features == 2
    assert problem.y.tolist() == [0, 1, 0, 1]
    assert problem.columns.X.mean(0).abs().max() < 1e-6
    with pytest.raises(BadTable, match="no class is 'w'; there are x, y, z"):
        load(replace(given, positive="w"), Communicator())


def test_a_bad_file_is_a_complaint_not_a_traceback(tmp_path):
    path = tmp_path / "bad.svm"
    path.write_text("1 1:0.5\nzero 1:2\n")
    with pytest.raises(LaconicError, match="line 2"):
        glm_rows(GLMOptions(data=path, **TINY))


def test_columns_in_another_type():
    dense = DenseColumns(torch.ones(2, 3))
    sparse = SparseColumns(torch.ones(2), torch.zeros(2, dtype=torch.int32), torch.tensor([0, 1, 2]), 1)
    for columns in (dense, sparse):
        copies = Copies(Problem(columns, Bernoulli(), torch.tensor([0.0, 1.0])))
        stored = copies.stored_as(recipe("C")).columns
        assert (stored.X if columns is dense else stored.matrix[0]).dtype == torch.bfloat16


def test_on_a_gpu_one_process_runs_the_solvers(monkeypatch):
    on_rank = suite.glm_on_rank
    monkeypatch.setattr(suite, "require_gpu", lambda device: None)
    monkeypatch.setattr(suite, "glm_on_rank", lambda progress, device, **more: on_rank(progress, device="cpu", **more))
    options = GLMOptions(problem=["susy"], scale=2e-4, device="cuda:1", **{**TINY, "ranks": None})
    rows = glm_rows(options)
    assert [row.contender for row in rows] == [
        one.label for one in contenders(("fp32", "C", "D"), (1, 4)) if not one.silent
    ]
    assert all((row.device, row.ranks, row.bytes_sent, row.is_floor) == ("cuda:1", 1, 0, False) for row in rows)
    assert all(row.difference < 1e-5 for row in rows if row.recipe == "fp32")
    assert where({"rows": [row_fields(row) for row in rows]}) == "one GPU"


def test_where_ca_sgd_does_worse_is_told(rows):
    fast, slow = Spread(7.0, 6.5, 7.5), Spread(0.5, 0.4, 0.6)
    ours = next(row for row in rows if row.contender == "ca_sgd C s=4" and row.problem == "susy")
    row = replace(ours, speedup_over_fp32=fast, speedup_over_bf16=fast, loss_gap=0.002)

    def said(row):
        return losses({"rows": [json.loads(json.dumps(row_fields(row)))]})

    assert said(row) == ["Where we lose: nowhere in this run."]
    assert said(replace(row, speedup_over_fp32=slow)) == ["Where we lose:", "susy: slower than SGD: ca_sgd C s=4."]
    assert "over 0.5 % above" in said(replace(row, loss_gap=0.01))[1]
