"""The command before the package is there: a package that takes its time stands in for it."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import laconic_command

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from laconic_command import main; sys.exit(main())"
PRESSED = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
LOADED = "import signal\ndef main(): return 7 if signal.getsignal(signal.SIGINT) is signal.{handler} else 1\n"


@pytest.fixture
def started(tmp_path):
    """Run the command with such a package; its exit code, stdout and stderr."""

    def run(package, cli="", on_ctrl_c=signal.SIG_DFL):
        (tmp_path / "laconic").mkdir()
        (tmp_path / "laconic/__init__.py").write_text(package)
        (tmp_path / "laconic/cli.py").write_text(cli)
        paths = os.pathsep.join([str(tmp_path), str(Path(laconic_command.__file__).parent)])
        env = {**os.environ, "PYTHONPATH": paths}

        def own_signals():  # not those of who runs the tests
            signal.signal(signal.SIGINT, on_ctrl_c)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        options = {"preexec_fn": own_signals}
        done = subprocess.run([sys.executable, "-c", COMMAND], env=env, capture_output=True, text=True, **options)
        return done.returncode, done.stdout, done.stderr

    return run


def test_ctrl_c_while_it_is_loaded_is_one_line_and_130_even_where_an_import_swallows_it(started):
    assert started(PRESSED) == (130, "", "laconic: interrupted\n")


def test_then_ctrl_c_is_the_command_s_own(started):
    assert started("", LOADED.format(handler="default_int_handler")) == (7, "", "")


def test_a_shell_that_ignores_ctrl_c_is_obeyed(started):
    assert started(PRESSED, LOADED.format(handler="SIG_IGN"), signal.SIG_IGN) == (7, "", "")


CLEANS = """
import os, signal, tempfile
def main():
    with tempfile.TemporaryDirectory(dir={folder!r}):
        os.kill(os.getpid(), signal.{name})
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_leaves_nothing_behind(started, tmp_path, name, code):
    folder = tmp_path / "temporary"
    folder.mkdir()
    assert started("", CLEANS.format(folder=str(folder), name=name)) == (code, "", "")
    assert not list(folder.iterdir())


def test_it_is_what_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"laconic": "laconic_command:main"}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["src/laconic", "src/laconic_command.py"]
    assert all((ROOT / path).exists() for path in packages)
