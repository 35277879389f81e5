"""Options declared once, as fields of a frozen dataclass with their help; commands are derived from these."""

from collections.abc import Callable, Sequence
from dataclasses import field, fields
from typing import Any

from laconic.errors import InvalidOption, Option


def option(
    default: Any,
    help: str,
    *,
    flag: str = "",
    metavar: str = "",
    least: int = 1,
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """A field of a dataclass of options, with what the command line says of it.

    default  None where whoever runs it chooses; a tuple for a list
    flag     such as "--codec", where the command's option is not called as the field is; "--output -o" for two
    metavar  what stands for its value in the help text
    least    of a whole number
    parse    the text to the value, where that is none of the usual ones
    """
    said = {"help": help, "flag": flag, "metavar": metavar, "least": least, "parse": parse}
    return field(default=default, metadata=said)


def flags(options: Any) -> dict[str, str]:
    """The names, without dashes, of options that the command line calls otherwise than the fields.

    options  the dataclass or one of it
    """
    said = {one.name: str(one.metadata.get("flag", "")) for one in fields(options)}
    return {name: flag.split(" ")[0].lstrip("-") for name, flag in said.items() if flag}


def check_counts(options: Any) -> None:
    """Raise `InvalidOption` if a whole number among the options is below the least that its field allows."""
    for one in fields(options):
        value = getattr(options, one.name)
        least = one.metadata.get("least", 1)
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            raise InvalidOption(Option(one.name), f" must be a whole number, at least {least}; got {value}")


def check_names(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """Raise `InvalidOption` if nothing is asked for, or something that is not among the known names."""
    for name in asked:
        if name not in known:
            raise InvalidOption(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    if not asked:
        raise InvalidOption(f"no {what} to run; choose from {', '.join(known)}")
