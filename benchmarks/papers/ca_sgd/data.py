"""Rows for the suite `papers ca-sgd`: the LIBSVM originals where they are given, the same shape made up otherwise."""

from collections.abc import Sequence
from pathlib import Path

from laconic.bench.glm.data import Given
from laconic.bench.options import require_known
from laconic.data import SHAPES, BadTable
from laconic.data.read import format_of
from laconic.glm.source import Source

PROBLEMS = tuple(SHAPES)
ORIGINALS = {"epsilon": ("epsilon_normalized", "epsilon"), "susy": ("susy",), "higgs": ("higgs",)}
"""Names of the files, in small letters, without suffixes. synth and Poisson-synth were made up in the paper, too."""
SCALED = ("susy", "higgs")
"""Whose columns are brought to mean 0 and variance 1: the originals are not, and epsilon's are."""
SYNTHETIC = "synthetic"


def given_problems(names: Sequence[str], scale: float, folder: Path | None) -> list[Given]:
    """Problems by name, or all of them; from files where the folder has them.

    >>> [given.name for given in given_problems(["all"], 0.1, None)]
    ['epsilon', 'susy', 'higgs', 'synth', 'poisson-synth']
    """
    chosen = PROBLEMS if list(names) == ["all"] else tuple(dict.fromkeys(names))
    require_known(chosen, PROBLEMS, "problem")
    if folder is not None and not folder.is_dir():
        raise BadTable(f"there is no folder {folder}; --data is for one with {_wanted()}")
    found = {name: None if folder is None else original(name, folder) for name in chosen}
    if folder is not None and not any(found.values()):
        raise BadTable(f"{folder} has none of {_wanted()}; leave --data out to run on synthetic rows")
    return [_given(name, path, scale) for name, path in found.items()]


def original(name: str, folder: Path) -> Path | None:
    """The file of a problem: a store before LIBSVM, if there are both."""
    stems = ORIGINALS.get(name, ())
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.lower().split(".")[0] in stems]
    usable = [path for path in files if format_of(path) in ("store", "libsvm")]
    return min(usable, key=lambda path: format_of(path) != "store", default=None)


def source_of(given: Given) -> str:
    """Which rows these are, for tables and documents: a file's name, or "synthetic"."""
    return SYNTHETIC if given.source is None else Path(given.source.path).name


def _given(name: str, path: Path | None, scale: float) -> Given:
    if path is None:
        return Given(name, scale)
    text = format_of(path) == "libsvm"
    source = Source(str(path), n_features=SHAPES[name].n_features if text else None, dense=text)
    return Given(name, source=source, family="logistic", standardize=name in SCALED)


def _wanted() -> str:
    return ", ".join(f"{stems[0]}[.bz2|.xz|.safetensors]" for stems in ORIGINALS.values())
