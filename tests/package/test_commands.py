"""The commands that README and docs show are commands of laconic, with options and values that it takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from laconic.cli import app

ROOT = Path(__file__).parents[2]


def shown():
    """Every line of a block that begins with `laconic`, or with it after `$` or torchrun's own words."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^```([^\n]*)\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for block in (text for language, text in blocks if language in ("", "console")):
            for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
                if found := re.match(r"(?:\$ |torchrun .* --no-python )?laconic (.*)", line):
                    yield pytest.param(found[1], id=f"{path.name}: {found[1][:60]}")


@pytest.mark.parametrize("line", list(shown()))
def test_a_shown_command_can_be_parsed(line):
    words = shlex.split(line.split(" > ")[0], comments=True)
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.get_command(typer.Context(command), words.pop(0))
    assert command.make_context(command.name, words, resilient_parsing=False).params
