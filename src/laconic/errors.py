"""Exceptions, with messages for the person at the keyboard."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """An argument named in an error message, which each front end spells in its own way.

    name   of the argument in Python
    value  that it has or should have; `...` for "some value"; left out where only the name is meant

    >>> str(Option("batch_size")), str(Option("exclude", ("id",))), str(Option("target", ...))
    ('batch_size', "exclude=('id',)", 'target=...')
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f"{self.name}={'...' if self.value is ... else repr(self.value)}"


class LaconicError(Exception):
    """Base of every error laconic raises on purpose.

    parts  text and `Option`s, in the order of the sentence

    >>> error = LaconicError("X.csv has no column 'y'; give ", Option("target", ...))
    >>> print(error)
    X.csv has no column 'y'; give target=...
    >>> print(error.message(lambda option: f"--{option.name}"))
    X.csv has no column 'y'; give --target
    """

    def __init__(self, *parts: "str | Option") -> None:
        self.parts = parts
        super().__init__(self.message())

    def message(self, spell: Callable[[Option], str] = str) -> str:
        """The sentence, with each option as `spell` writes it."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.parts)

    def to_json(self) -> list[Any]:
        """The parts as JSON values, so that another process can raise the same: `LaconicError(*from_json(values))`."""
        return [part if isinstance(part, str) else _option_to_json(part) for part in self.parts]


def from_json(values: Iterable[Any]) -> list[str | Option]:
    """The inverse of `LaconicError.to_json`: the parts of an error.

    >>> print(LaconicError(*from_json(LaconicError("give ", Option("target", ...)).to_json())))
    give target=...
    """
    return [part if isinstance(part, str) else _option_from_json(**part) for part in values]


def _option_to_json(option: Option) -> dict[str, Any]:
    value = option.value
    plain = value if isinstance(value, (str, bool, int, float, tuple, type(None))) else repr(value)
    return {"name": option.name} | ({} if value is ... else {"value": plain})


def _option_from_json(name: str, value: Any = ...) -> Option:
    return Option(name, tuple(value) if isinstance(value, list) else value)


class InvalidOption(LaconicError, ValueError):
    """An argument whose value cannot be used; the message begins with the `Option`."""


class CorruptPayload(LaconicError, ValueError):
    """Bytes from the wire or from disk that are not valid output of our encoders."""


class BackendUnavailable(LaconicError, RuntimeError):
    """A kernel backend was asked for by name and cannot run here."""


class ExchangeFailed(LaconicError, RuntimeError):
    """Another rank stopped, or did not answer in time, while values were being averaged."""


class Disagreement(LaconicError, RuntimeError):
    """Ranks were given different configurations, or states of different steps; or another rank failed."""
