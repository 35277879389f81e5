"""`import laconic` stays cheap: it loads none of the heavy libraries, and every public name is there."""

import subprocess
import sys

import laconic

HEAVY = ("numba", "triton", "sklearn", "pyarrow", "typer", "rich", "scipy", "matplotlib")


def test_no_heavy_library_is_loaded():
    code = (
        "import torch, sys; before = set(sys.modules); import laconic; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "laconic" in loaded
    assert not set(loaded) & set(HEAVY)


def test_public_names_exist():
    assert all(hasattr(laconic, name) for name in laconic.__all__)
    assert len(set(laconic.__all__)) == len(laconic.__all__)
