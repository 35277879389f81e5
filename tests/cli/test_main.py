"""The command line: versions, help, and the exit code of every kind of mistake."""

import io
import subprocess
import sys

import pytest

from forking import run_code
from laconic import __version__
from laconic.cli import main


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"laconic {__version__}\n"


@pytest.mark.parametrize("command", [[], ["demo"], ["bench"], ["bench", "codec"]])
def test_help(command, capsys):
    assert main([*command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert "Usage: laconic" in out
    assert not err


@pytest.mark.parametrize("command", [[], ["bench"]])
def test_no_command_shows_what_there_is(command, capsys):
    assert main(command) == 2
    assert "Usage: laconic" in capsys.readouterr().out


WRONG = {
    "unknown command": (["dmeo"], "dmeo"),
    "unknown suite": (["bench", "codecs"], "there is no suite 'codecs'; choose one of codec, exchange"),
    "unknown option": (["demo", "--jsno"], "--jsno"),
    "size zero": (["bench", "codec", "--size", "0"], "--size"),
    "size no number": (["bench", "codec", "--size", "abc"], "abc"),
    "size too large": (["bench", "codec", "--size", str(2**50)], "would fit"),
    "size no power": (["bench", "codec", "--size", "2**"], "2**"),
    "size negative": (["bench", "codec", "--size", "-4"], "-4"),
    "repeats zero": (["bench", "codec", "--repeats", "0"], "--repeats"),
    "bucket zero": (["bench", "codec", "--bucket-size", "0"], "--bucket-size"),
    "bucket too large": (["bench", "codec", "--size", "10", "--bucket-size", str(2**40)], "--bucket-size"),
    "unknown scheme": (["bench", "codec", "--schemes", "nuqsgd,qsdg"], "'qsdg'"),
    "no scheme": (["bench", "codec", "--schemes", ","], "no scheme"),
    "unknown coder": (["bench", "codec", "--coders", "zip"], "'zip'"),
    "unknown problem": (["bench", "codec", "--problem", "hard"], "'hard'"),
    "no such folder": (
        ["bench", "codec", "--size", "10", "--output", "/nowhere/rows.json"],
        "/nowhere/rows.json: there is no folder",
    ),
    "output is a folder": (["bench", "codec", "--size", "10", "--output", "/"], "folder"),
    "no streams": (["demo", "--streams", "0"], "--streams"),
    "demo bucket": (["demo", "--bucket-size", str(2**40)], "--bucket-size"),
    "a page and none": (["demo", "--report", "x.html", "--no-report"], "give one of them"),
    "seed too large": (["demo", "--seed", str(2**64)], "--seed"),
}


@pytest.mark.parametrize(("command", "said"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line_and_exit_code_2(command, said, capsys):
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("laconic: ")
    assert err.count("\n") == 1
    assert said in err


def test_the_installed_command_exits_as_main_returns(tmp_path):
    code = "from laconic_command import main\nsys.argv[1:] = 'bench', 'codec', '--size', 'abc'\nsys.exit(main())"
    done = run_code(code, tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


STDOUT = {
    "full": (">/dev/full", "cannot write to stdout: No space left on device"),
    "closed": (">&-", "stdout is closed; "),
}


@pytest.mark.parametrize("command", ["--version", "plan --parameters 10 --calibration typical"])
@pytest.mark.parametrize("name", STDOUT)
def test_a_stdout_that_takes_nothing_is_one_line_and_1(name, command):
    redirected, said = STDOUT[name]
    run = f'"{sys.executable}" -c "import sys; from laconic.cli import main; sys.exit(main())" {command} {redirected}'
    done = subprocess.run(["/bin/sh", "-c", run], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"laconic: {said}")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    """As `head` does: nothing is said, and the exit code is 1."""
    rows = tmp_path / "rows.csv"
    rows.write_text("a,y\n" + "1.5,1\n2.5,2\n" * 50_000)
    assert main(["fit", str(rows), "--target", "y", "--family", "linear", "-o", str(tmp_path / "m.st"), "--quiet"]) == 0
    command = [sys.executable, "-c", "import sys; from laconic.cli import main; sys.exit(main())", "predict"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, str(tmp_path / "m.st"), str(rows)], **pipes) as run:
        assert run.stdout.readline() == b"prediction\n"
        run.stdout.close()
        assert (run.wait(), run.stderr.read()) == (1, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_what_an_encoding_lacks_is_written_as_its_code(encoding, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written := io.BytesIO(), encoding=encoding))
    assert main(["plan", "--parameters", "1000", "--calibration", "typical"]) == 0
    sys.stdout.flush()
    assert "→".encode(encoding, "backslashreplace") in written.getvalue()
    assert "× fp32".encode(encoding, "backslashreplace") in written.getvalue()
