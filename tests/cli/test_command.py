"""What every command does alike: Ctrl-C is one line and 130, and a list may be given in parts."""

import csv
import json
import os
import shlex
import stat
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import typer

from laconic.cli import analyze, app, fit, main
from laconic.exchange import launch

COMMANDS = {
    "fit": (fit, "fit_progress", ["fit", "X.npy", "-o", "m.safetensors"]),
    "analyze": (analyze, "progress", ["analyze", "X.npy"]),
}
ENDLESS = ["fit", "X.npy", "-o", "m.safetensors", "--max-iter", "1000000", "--tol", "-1", "--ranks", "2"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.random.default_rng(0).standard_normal((64, 3)))
    np.save("y.npy", np.arange(64) % 2)
    return tmp_path


def pressed_when(is_time):
    """A progress bar under which the user presses Ctrl-C."""

    @contextmanager
    def bar(*args, quiet):
        def show(said):
            if is_time(said):
                raise KeyboardInterrupt

        yield show

    return bar


@pytest.mark.parametrize(("module", "bar", "arguments"), COMMANDS.values(), ids=COMMANDS)
def test_ctrl_c_is_one_line_and_130(module, bar, arguments, monkeypatch, capsys):
    monkeypatch.setattr(module, bar, pressed_when(lambda said: True))
    assert main(arguments) == 130
    assert capsys.readouterr() == ("", "laconic: interrupted\n")


def test_ctrl_c_ends_the_ranks_and_says_how_to_go_on(folder, monkeypatch, capsys):
    ended, end = [], launch._end
    monkeypatch.setattr(launch, "_end", lambda processes: (end(processes), ended.extend(processes)))
    monkeypatch.setattr(fit, "fit_progress", pressed_when(lambda said: (folder / "kept/checkpoint.json").exists()))
    arguments = [*ENDLESS, "--checkpoint", "kept", "--checkpoint-every", "0"]
    assert main(arguments) == 130
    assert capsys.readouterr().err == (
        "laconic: interrupted; the same command with --resume goes on from what kept holds\n"
    )
    assert len(ended) == 2
    assert all(process.returncode is not None for process in ended)


def test_a_list_may_be_given_in_parts(folder, capsys):
    rows = "\n".join(f"{i},{i * i % 7},{i % 3},{i % 2}" for i in range(32))
    Path("rows.csv").write_text(f"a,b,c,y\n{rows}\n")
    made = {}
    for drop in (["--drop", "a,b"], ["--drop", "a", "--drop=b"]):
        assert main(["convert", "rows.csv", "rows.safetensors", "--target", "y", *drop, "--json"]) == 0
        made[len(drop)] = json.loads(capsys.readouterr().out)["columns"]
    assert made == {2: ["c"], 3: ["c"]}


NAMES = ["a,b", " c", "", 'd"e', "f "]
"""Of columns, which a list takes in quotes."""


def test_a_name_in_a_list_may_hold_anything(folder, capsys):
    from laconic.cli.command import spell
    from laconic.errors import Option

    with Path("rows.csv").open("w") as file:
        csv.writer(file).writerows([[*NAMES, "kept", "y"], *([i, 2, 3, 4, 5, i % 3, i % 2] for i in range(9))])
    flag, typed = shlex.split(spell(Option("exclude", tuple(NAMES))))
    assert main(["convert", "rows.csv", "rows.safetensors", "--target", "y", flag, typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["kept"]


def commands(group, path=()):
    for name, command in group.commands.items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [((*path, name), command)]


def test_every_option_is_spelled_in_lower_case():
    """Typer 0.27 takes an option whose metavar is its name in capitals for --NAME, unless the flag is given."""
    for path, command in commands(typer.main.get_command(app)):
        for option in command.params:
            flags = [flag for flag in option.opts if flag.startswith("-")]
            assert all(flag == flag.lower() for flag in flags), path
            assert not flags or (option.metavar or "").lower() != option.name or option.metavar == "RATE", path


def test_of_other_options_the_last_counts(capsys):
    assert main(["fit", "X.npy", "-o", "m.safetensors", "--max-iter", "3", "--max-iter", "1", "--tol", "-1"]) == 0
    assert "1 epoch, 2 iterations" in capsys.readouterr().out


WRITING = {
    "fit": ["fit", "X.npy", "-o"],
    "plan": ["plan", "--parameters", "10", "--calibration", "typical", "-o"],
    "chart": ["plan", "--parameters", "10", "--calibration", "typical", "--chart"],
    "calibration": ["plan", "--parameters", "10", "--save"],
    "report": ["report", "run.json", "-o"],
    "demo": ["demo", "--report"],
    "bench": ["bench", "codec", "--size", "10", "--output"],
}


def test_a_model_does_not_take_the_place_of_its_rows(folder, capsys):
    Path("rows.csv").write_text("y,x\n1,2\n0,3\n")
    for more in (["rows.csv"], ["other.csv", "--test", "rows.csv"]):
        assert main(["fit", *more, "--target", "y", "-o", "rows.csv"]) == 2
        assert "cannot write rows.csv: it is a file that is read for it" in capsys.readouterr().err
    assert Path("rows.csv").read_text() == "y,x\n1,2\n0,3\n"


@pytest.mark.parametrize("arguments", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize("through_a_link", [False, True])
def test_no_file_takes_the_place_of_a_pipe_or_a_device(arguments, through_a_link, folder, capsys):
    Path("run.json").write_text('{"suite": "codec", "rows": []}')
    os.mkfifo("pipe")
    if through_a_link:
        os.rename("pipe", "real")
        os.symlink("real", "pipe")
    assert main([*arguments, "pipe"]) == 2
    assert "cannot write pipe: it is a device or a pipe" in capsys.readouterr().err
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert os.path.islink("pipe") == through_a_link
