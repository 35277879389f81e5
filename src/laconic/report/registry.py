"""Which presentation shows which suite."""

from importlib import import_module

from laconic.report.blocks import Section
from laconic.report.presentation import AllRows, Presentation, Settings
from laconic.report.values import Row

_REGISTERED: dict[str, tuple[Presentation, ...] | str] = {}


def register(suite: str, *presentations: Presentation, lazily: str = "") -> None:
    """Show documents of a suite this way from now on, a section or more for each presentation.

    lazily  instead, where they are: "package.module:NAME" of a `Presentation` or a tuple of them, imported when needed
    """
    _REGISTERED[suite] = lazily or presentations


def registered() -> list[str]:
    """The names of all suites that have a presentation."""
    return list(_REGISTERED)


def presentations(suite: str) -> tuple[Presentation, ...]:
    """How to show a suite; of one that nobody has registered, its options and its rows."""
    found = _REGISTERED.get(suite, ())
    if isinstance(found, str):
        module, _, name = found.partition(":")
        made = getattr(import_module(module), name)
        found = _REGISTERED[suite] = (made,) if isinstance(made, Presentation) else tuple(made)
    return found or (Presentation(suite, [Settings(), AllRows("The rows")], all_rows=False),)


def sections(suite: str, document: Row) -> list[Section]:
    """The sections of a document; of several presentations only those that have something to show."""
    shown = presentations(suite)
    made = [section for one in shown for section in one.sections(document)]
    return made if len(shown) == 1 else [section for section in made if section.blocks]
