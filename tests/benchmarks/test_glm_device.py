"""The suite `glm` on a GPU, as far as a machine without one can show: rivals, verdicts, mistakes."""

from dataclasses import replace

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.glm.device import DEVICE_SHAPES, GRAPHED, PRESENTATION, DeviceOptions, DeviceRow, device_problem
from benchmarks.glm.device_rivals import EagerSGD
from benchmarks.goals import goals_of_rows
from laconic.bench.protocol import Spread
from laconic.bench.suite import row_fields
from laconic.cli import bench as command
from laconic.glm import FitOptions, solve
from laconic.report.tables import Words

SETTLED = Spread(5e-7, 5e-7, 5e-7)
OURS = DeviceRow(
    "higgs", "bernoulli", 100, 28, 32, "sgd C", "sgd", "C", 1, "fused", 8, SETTLED, 100.0, 90.0, 20.0, 25.0, 30.0, 1e-4,
    0.5, 0.002,
)  # fmt: skip


@pytest.mark.parametrize("name", ["susy", "synth", "poisson-synth"])
def test_a_rival_takes_the_solver_s_steps(name):
    given = device_problem(name, 200 / DEVICE_SHAPES[name].n_rows, torch.device("cpu"))
    steps = {"sampling": "cyclic", "batch_size": 20, "learning_rate": "constant", "eta0": 0.1}
    found = solve(given, FitOptions(solver="sgd", recipe="fp32", max_iter=1, tol=None, **steps)).state
    start = float(given.family.start(given.y.double().mean().reshape(1)))
    rival = EagerSGD(given.columns.X, given.y, given.family.name, 20, 0.1, start)
    rival.run(torch.arange(200))
    x, intercept = rival.point()
    assert torch.allclose(x, found.coef[0], rtol=1e-4, atol=1e-6)
    assert intercept == pytest.approx(float(found.intercept), rel=1e-4)


def test_goals_are_judged_by_the_fastest_and_the_worst_loss():
    slow = replace(OURS, contender="ca_sgd C s=8", solver="ca_sgd", s=8, seconds=Spread(3e-6, 3e-6, 3e-6))
    goals = goals_of_rows("glm-device", [replace(slow, loss_gap=0.01), OURS])["goals"]
    found = {goal["name"]: goal["verdict"] for goal in goals}
    assert found["higgs: µs an iteration, sgd C"] == "floor"
    assert found["higgs: graphed fp32 SGD ÷ sgd C"] == "aim"
    assert found["higgs: loss of recipe C above graphed fp32 SGD, worst, %"] == "missed"


def losses(rows):
    (section,) = PRESENTATION.sections({"rows": [row_fields(row) for row in rows]})
    return " ".join(line for block in section.blocks if isinstance(block, Words) for line in block.lines)


def test_where_ours_is_slower_is_said():
    rival = replace(OURS, contender=GRAPHED, solver="torch", over_graphed=1.0, over_graphed_bf16=0.5)
    assert "nowhere" in losses([OURS, rival])
    assert "0.8 of its speed" in losses([replace(OURS, over_graphed=0.8)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "tpu"], "--device must be a CUDA GPU, such as cuda; got 'tpu'"),
        (["--device", "cuda", "--problem", "mnist"], "unknown problem 'mnist'"),
        (["--scale", "2"], "at most 1; got 2"),
        (["--recipe", "E"], "unknown --recipe E"),
    ],
)
def test_mistakes_are_one_line(arguments, said, capsys):
    assert main(["glm-device", "--quiet", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_without_a_gpu():
    with pytest.raises(ValueError, match="there is no CUDA GPU here; `laconic bench glm`"):
        DeviceOptions(problem=["susy"])


def test_the_command_runs_an_epoch_unless_told_otherwise(monkeypatch):
    """Losses are compared after an epoch: a flag that is not given must not turn that off."""
    asked = []
    monkeypatch.setattr(command, "run_suite", lambda suite, given, common: asked.append(given))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["glm-device"]) == main(["glm-device", "--skip-epoch"]) == 0
    assert [DeviceOptions(**given).published()["epoch"] for given in asked] == [True, False]
