"""The robustness campaign: randomised trials with hostile bytes, killed ranks, bad surroundings and long runs.

Run as `python -m campaign` from the root of the repository (`make campaign`, `make campaign-full`); not part of the
installed package. Each module has the cases of one row of the table in docs/security.md.
"""

from collections.abc import Sequence
from importlib import import_module

from campaign.case import Case

MODULES = ("payloads", "files", "kills", "surroundings", "soak", "counters")
"""Modules that define CASES."""


def cases(only: Sequence[str] = ()) -> dict[str, Case]:
    """Cases by name; if given, only those whose name begins with one of `only`."""
    found = [case for name in MODULES for case in import_module(f"campaign.{name}").CASES]
    return {case.name: case for case in found if case.name.startswith(tuple(only) or "")}
