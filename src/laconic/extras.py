"""Optional dependencies: imported on use, with a clear error where they are missing."""

from importlib import import_module
from typing import Any

from laconic.errors import LaconicError

PACKAGES = {"sklearn": "scikit-learn"}
"""Package names of modules, where they differ."""


class MissingExtra(LaconicError, ImportError):
    """A feature needs a package that is not installed; the message says how to install it."""


def require(*modules: str, for_: str, extra: str) -> Any:
    """Import modules of one of our optional extras, and return the last of them.

    for_   the feature that needs them, the subject of the message
    extra  the name in `pip install 'laconic[extra]'`

    Raises `MissingExtra`, which is an ImportError, if one is not installed.

    >>> require("json", for_="reading JSON", extra="files").loads("1")
    1
    >>> require("no_such_module", for_="reading Parquet", extra="files")
    Traceback (most recent call last):
    laconic.extras.MissingExtra: reading Parquet needs no_such_module: pip install 'laconic[files]'
    """
    found = None
    for module in modules:
        try:
            found = import_module(module)
        except ImportError as error:
            if error.name is not None and error.name.partition(".")[0] != module.partition(".")[0]:
                raise
            names = dict.fromkeys(name.partition(".")[0] for name in modules)
            needed = " and ".join(PACKAGES.get(name, name) for name in names)
            raise MissingExtra(f"{for_} needs {needed}: pip install 'laconic[{extra}]'") from error
    return found
