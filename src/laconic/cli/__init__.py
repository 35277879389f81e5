"""The command line: parse, call, print."""

from laconic.extras import require

require("typer", "rich", for_="the command laconic", extra="cli")

from laconic.cli.main import app, main  # noqa: E402 (only if their dependencies are installed)

__all__ = ["app", "main"]
