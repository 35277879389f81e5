"""`import laconic` stays cheap: it loads none of the heavy libraries, and every public name is there."""

import laconic
from forking import run_code

HEAVY = ("numba", "triton", "sklearn", "pyarrow", "typer", "rich", "scipy", "matplotlib")


IMPORT = """
before = set(sys.modules)
import laconic
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def test_no_heavy_library_is_loaded(tmp_path):
    loaded = run_code(IMPORT, tmp_path, *HEAVY).stdout.split()
    assert "laconic" in loaded
    assert not set(loaded) & set(HEAVY)


def test_public_names_exist():
    assert all(hasattr(laconic, name) for name in laconic.__all__)
    assert set(laconic.__all__) <= set(dir(laconic))
    assert len(set(laconic.__all__)) == len(laconic.__all__)
