"""Rows as JSON, each with the machine, the versions and the commit it was measured with."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from laconic.bench.environment import Environment


def document(suite: str, rows: Sequence[Any], environment: Environment, **more: Any) -> dict[str, Any]:
    """A JSON object: the suite's name, its rows (dataclasses) and whatever more there is to say."""
    here = asdict(environment)
    return {"suite": suite, **more, "rows": [{**fields(row), "environment": here} for row in rows]}


def fields(row: Any) -> dict[str, Any]:
    """The fields of a dataclass and the properties it works out from them."""
    derived = [name for name, member in vars(type(row)).items() if isinstance(member, property)]
    return {**asdict(row), **{name: getattr(row, name) for name in derived}}


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file beside `path` to write to, which takes its place at the end; after an error nothing has changed."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        file = part.open("x", encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
