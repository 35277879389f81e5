"""The command line: parse, call, print."""

from laconic.cli.main import app, main

__all__ = ["app", "main"]
