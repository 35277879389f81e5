"""What holds for all tests: fresh kernels, forked ranks, and the order in which two or more workers take the files.

Numba compares a cached kernel with its own file only, not with the files of the kernels it calls: before any test,
compiled kernels that are older than a kernel's source are thrown away.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "src" / "laconic" / "kernels"
FIRST = ["gpu/test_triton_interpreter", "glm/test_compiled_agrees", "laws/test_backends_agree", "coders", "glm"]
"""Directories and files that are begun first: they compile most kernels, which ranks then need not compile at once."""
THEN = ["glm/test_checkpoint", "distributed", "examples", "cli", "benchmarks", "bench", "decentralised", "package"]
THEN.append("report/test_browser")
"""Those that take long come next, so that all workers end at about the same time."""


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return  # the controller has done it
    newest = max(source.stat().st_mtime for source in KERNELS.rglob("*.py"))
    for cached in KERNELS.rglob("*.nb[ic]"):
        if cached.stat().st_mtime < newest:
            cached.unlink(missing_ok=True)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(FIRST + THEN)}

    def place(item):
        directory = item.path.parent.name
        return places.get(f"{directory}/{item.path.stem}", places.get(directory, len(places)))

    items.sort(key=place)


@pytest.fixture(autouse=True, scope="module")
def forked_ranks():
    """`start_ranks` forks its ranks: starting each anew is tested by `distributed/test_launch.py` alone."""
    from forking import popen
    from laconic.exchange import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "subprocess", SimpleNamespace(**{**vars(launch.subprocess), "Popen": popen}))
        yield
