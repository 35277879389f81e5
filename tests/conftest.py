"""Before any test: compiled kernels that are older than a kernel's source are thrown away.

Numba compares a cached kernel with its own file only, not with the files of the kernels it calls.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

KERNELS = Path(__file__).parents[1] / "src" / "laconic" / "kernels"


def pytest_configure(config):
    newest = max(source.stat().st_mtime for source in KERNELS.rglob("*.py"))
    for cached in KERNELS.rglob("*.nb[ic]"):
        if cached.stat().st_mtime < newest:
            cached.unlink(missing_ok=True)


@pytest.fixture(autouse=True, scope="module")
def forked_ranks():
    """`start_ranks` forks its ranks: starting each anew is tested by `bench/test_launch.py` alone."""
    from forking import popen
    from laconic.exchange import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "subprocess", SimpleNamespace(**{**vars(launch.subprocess), "Popen": popen}))
        yield
