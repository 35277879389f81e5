"""The sessions in docs/cli.md print what they say, numbers aside."""

import re
import shlex
from pathlib import Path

from laconic.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def shape(text: str) -> str:
    """Numbers masked, since times differ and rounding may."""
    return re.sub(r"\d+(?:[,.]\d+)*(?:e[-+]?\d+)?", "#", text)


def test_sessions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    exec(compile(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], PAGE.name, "exec"), {})  # noqa: S102
    for session in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            command, _, said = step.partition("\n")
            program, *arguments = shlex.split(command)
            assert program == "laconic"
            code = main(arguments)
            out, err = capsys.readouterr()
            assert shape(out + err) == shape(said), command
            assert (code == 2) == said.startswith("laconic: ")
