"""Rows as JSON, each with the machine, the versions and the commit it was measured with."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from laconic.bench.environment import Environment


def document(suite: str, rows: Sequence[Any], environment: Environment, **more: Any) -> dict[str, Any]:
    """A JSON object: the suite's name, its rows (dataclasses) and whatever more there is to say."""
    here = asdict(environment)
    return {"suite": suite, **more, "rows": [{**fields(row), "environment": here} for row in rows]}


def fields(row: Any) -> dict[str, Any]:
    """The fields of a dataclass and the properties it works out from them."""
    derived = [name for name, member in vars(type(row)).items() if isinstance(member, property)]
    return {**asdict(row), **{name: getattr(row, name) for name in derived}}
