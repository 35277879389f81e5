"""The lower bounds of the dependencies are the versions that `make test-lowest` installs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONLY_NEWER = {"torch"}
"""Bounds below what the tests are run with; constraints-lowest.txt says why."""


def test_each_bound_is_the_version_that_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["cli"], *extras["files"], *extras["glm"]]
    lowest = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints-lowest.txt").read_text(), flags=re.MULTILINE))
    for one in wanted:
        name, bound = re.fullmatch(r"([\w-]+)>=([\d.]+)", one).groups()
        assert name in ONLY_NEWER or lowest[name] == bound, one


def test_the_core_is_three_libraries():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"[\w-]+", one)[0] for one in project["dependencies"]] == ["torch", "numpy", "numba"]
