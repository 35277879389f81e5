"""The command line that these tests run."""

import pytest

from benchmarks.__main__ import main
from command_fixtures import complains, printed, published

__all__ = ["command_line", "complains", "printed", "published"]


@pytest.fixture
def command_line():
    """What runs a command, and how its complaints begin."""
    return main, "benchmarks"
