"""Before any test: compiled kernels that are older than a kernel's source are thrown away.

Numba compares a cached kernel with its own file only, not with the files of the kernels it calls.
"""

from pathlib import Path

KERNELS = Path(__file__).parents[1] / "src" / "laconic" / "kernels"


def pytest_configure(config):
    newest = max(source.stat().st_mtime for source in KERNELS.rglob("*.py"))
    for cached in KERNELS.rglob("*.nb[ic]"):
        if cached.stat().st_mtime < newest:
            cached.unlink(missing_ok=True)
