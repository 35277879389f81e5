"""Numbers as people type them."""

import re
from collections.abc import Callable

import typer


def whole_number(least: int = 1, most: int = 2**63 - 1) -> Callable[[str | int], int]:
    """A parser of whole numbers from `least` to `most`, which may be written as powers.

    >>> whole_number()("8192"), whole_number()("2**26")
    (8192, 67108864)
    """

    def parse(text: str | int) -> int:
        match = re.fullmatch(r"(-?\d{1,19})(?:(?:\*\*|\^)(\d{1,2}))?", str(text).strip(), re.ASCII)
        value = int(int(match[1]) ** int(match[2] or 1)) if match else None
        if value is None or not least <= value <= most:
            raise typer.BadParameter(f"expected a whole number from {least} to {most}, such as 2**10, got {text!r}")
        return value

    parse.__name__ = "INTEGER"
    return parse
