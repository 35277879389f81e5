"""Errors about files and tables."""

from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike

from laconic.errors import LaconicError, Option

Path = str | PathLike[str]


class BadTable(LaconicError, ValueError):
    """Columns that are missing, inconsistent or unfit for a model; a file that exceeds a limit."""


class MalformedFile(BadTable):
    """A file that violates its format. The message says where, and what was expected there.

    >>> print(MalformedFile("ads.svm", "expected index:value, found 'x'", line=3, column=7))
    ads.svm, line 3, column 7: expected index:value, found 'x'
    """

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        line: int | None = None,
        column: int | None = None,
        in_first_row: bool = False,
    ) -> None:
        self.path, self.line, self.column, self.what = str(path), line, column, what
        self.in_first_row = in_first_row
        where = [self.path, *(f"{name} {n}" for name, n in (("line", line), ("column", column)) if n is not None)]
        super().__init__(f"{', '.join(where)}: {what}")


class NotNumeric(BadTable):
    """A text column where numbers are needed.

    found  where its first text is, and what, if that is known
    """

    def __init__(self, path: Path, column: str, found: str = "") -> None:
        self.column = column
        super().__init__(
            f"{path}: column {column!r} is not numeric; leave it out with ",
            Option("exclude", (column,)),
            " or make it one column per category with ",
            Option("one_hot", (column,)),
            found,
        )


class WrongWidth(BadTable):
    """A file whose number of features is not the one asked for."""

    def __init__(self, path: Path, found: int, asked: int | None) -> None:
        self.found = found
        what = f" says {asked}; leave it out, or give {found}"
        super().__init__(f"{path} has {found} features, ", Option("n_features"), what)


def missing(name: str, names: Iterable[str], what: str) -> str:
    """The message for a missing column, with similar names.

    >>> missing("lable", ["label", "weight"], "a.csv")
    "a.csv has no column 'lable'; near names: 'label'"
    """
    names = list(names)
    near = get_close_matches(name, names, n=3)
    listed = ", ".join(map(repr, near or names[:8])) or "none"
    return f"{what} has no column {name!r}; {'near names' if near else 'it has'}: {listed}"
