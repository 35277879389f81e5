"""Docstrings as they are typed: sentences as such, what stands in columns in columns, examples as a session."""

import re
import textwrap
from typing import Any

import griffe


def as_markdown(docstring: str) -> str:
    """The same words for a page."""
    first, _, rest = textwrap.dedent(docstring).strip().partition("\n\n")
    pieces = re.split(r"\n\n(?=>>>)|(?<=\n)\n(?!>>>)", "\n\n" + rest.strip("\n"))
    return "\n\n".join([first, *(_part(piece.strip("\n")) for piece in pieces if piece.strip())])


def _part(piece: str) -> str:
    if piece.startswith(">>>"):
        return f"```pycon\n{piece}\n```"
    if re.search(r"^\s|\S {2,}\S", piece, flags=re.MULTILINE):
        return f"```text\n{piece}\n```"
    return re.sub(r"([*<])", r"\\\1", piece)


class Preformatted(griffe.Extension):
    """Applied to every object that the pages show."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
