"""Optional dependencies: training needs none of them, and each feature says in one sentence which one it lacks."""

import re
import sys
from pathlib import Path

import pytest

import laconic
from forking import run_code
from laconic import data
from laconic.cli import main
from laconic.glm.model import Model

OPTIONAL = ("scipy", "pyarrow", "safetensors", "sklearn", "typer", "rich", "PIL", "click")

TRAINING = """
import torch, laconic
from torch import nn

codec = laconic.Codec(laconic.NUQSGD(bits=4), laconic.RANS())
v = torch.randn(5000)
assert codec.decode(codec.encode(v)).shape == v.shape

torch.manual_seed(0)
model = nn.Linear(64, 64)
workers = laconic.SimulatedWorkers(model, "nuqsgd", n_workers=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(2, 16, 64), torch.randint(0, 64, (2, 16))
losses = [lambda i=i: nn.functional.cross_entropy(model(x[i]), y[i]) for i in range(2)]
before = sum(loss() for loss in losses)
for _ in range(3):
    workers.backward(losses)
    optimizer.step()
assert sum(loss() for loss in losses) < before

from laconic.exchange import Communicator
from laconic.planner import NetworkJob, plan
from laconic.planner.calibrate import measure
from laconic.planner.timing import Stopwatch
found = measure(Stopwatch(Communicator(), torch.device("cpu"), budget_seconds=0), quick=True)
plan(NetworkJob(10_000), found.cluster(1))

from laconic.glm import Bernoulli, DenseColumns, FitOptions, Problem, solve
solve(Problem(DenseColumns(x[0]), Bernoulli(), (y[0] > 31).float()), FitOptions(max_iter=1))
print("trained")
"""


def python(code, folder):
    """Run code in an interpreter without the optional packages."""
    return run_code(f"sys.modules.update(dict.fromkeys({OPTIONAL!r}))\n{code}", folder, *OPTIONAL)


def test_compression_training_and_solvers_need_none_of_them(tmp_path):
    done = python(TRAINING, tmp_path)
    assert done.stdout == "trained\n", done.stderr


def test_the_command_says_how_to_install_it_and_exits_with_2(tmp_path):
    done = python("import laconic_command; sys.exit(laconic_command.main())", tmp_path)
    said = "laconic: the command laconic needs typer and rich: pip install 'laconic[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.fixture
def files(tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("a,y\n1,0\n2,1\n3,0\n4,1\n")
    (tmp_path / "rows.svm").write_text("0 1:1\n1 1:2\n")
    (tmp_path / "rows.parquet").write_bytes(b"")
    (tmp_path / "m.safetensors").write_bytes(b"")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def hide(files, monkeypatch):
    """Make a package look as if it were not installed."""

    def hide(package):
        for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


FEATURES = {
    "CSV": ("pyarrow", lambda: data.read("rows.csv", target="y"), "reading CSV needs pyarrow", "files"),
    "Parquet": ("pyarrow", lambda: data.read("rows.parquet", target="y"), "reading Parquet needs pyarrow", "files"),
    "LIBSVM": ("scipy", lambda: data.read("rows.svm"), "reading LIBSVM needs scipy", "files"),
    "digits": ("sklearn", data.load_digits, "load_digits needs scikit-learn", "glm"),
    "classifier": ("sklearn", lambda: laconic.CASGDClassifier, "CASGDClassifier needs scikit-learn", "glm"),
    "regressor": ("sklearn", lambda: laconic.CASGDRegressor, "CASGDRegressor needs scikit-learn", "glm"),
    "model": ("safetensors", lambda: Model.load(Path("m.safetensors")), "loading a model needs safetensors", "glm"),
}


@pytest.mark.parametrize(("package", "call", "why", "extra"), FEATURES.values(), ids=FEATURES)
def test_each_feature_says_what_it_lacks(package, call, why, extra, hide):
    hide(package)
    with pytest.raises(ImportError, match=re.escape(f"{why}: pip install 'laconic[{extra}]'")):
        call()


COMMANDS = {
    "pyarrow": (["convert", "rows.csv", "x.safetensors", "--target", "y"], "reading CSV needs pyarrow"),
    "safetensors": (["predict", "m.safetensors", "rows.svm"], "loading a model needs safetensors"),
    "safetensors.torch": (
        ["fit", "rows.csv", "--target", "y", "-o", "n.safetensors"],
        "saving a model needs safetensors",
    ),
}


@pytest.mark.parametrize(("package", "command", "said"), [(k, *v) for k, v in COMMANDS.items()], ids=COMMANDS)
def test_commands_say_so_in_one_line_and_exit_with_2(package, command, said, hide, capsys):
    hide(package)
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"laconic: {said}: pip install 'laconic[")
