"""What `laconic analyze` prints and draws."""

from collections.abc import Iterator
from math import isfinite
from statistics import median
from typing import Any

from laconic.cli.analyze import Found
from laconic.glm.analysis import Choice, Term
from laconic.glm.precision import RECIPES
from laconic.report import Bar, bars, text_bar
from laconic.report.table import Column, number, table


def figure(found: Found) -> str:
    """One SVG a format would repeat the labels: one plot of all terms, by format."""
    terms = _by_format(found.analysis.terms)
    rows = [Bar(f"{term.format}  {term.knob}", term.measured, term.bound) for term in terms]
    title = f"{found.options['data']}, {found.data.family}: local error of an outer iteration ÷ its step"
    return bars(title, rows, ("measured", "bound"))


def page(found: Found) -> Iterator[Any]:
    """Texts and tables."""
    analysis, settings = found.analysis, found.settings
    problem = found.data.problem
    yield (
        f"{found.options['data']}: {problem.columns.m:,} rows × {found.data.n_features:,} columns; "
        f"{found.data.family}; s = {settings.s}, batches of {settings.sampling.batch_size}, "
        f"steps of {settings.schedule.eta0:.3g}, {found.options['ranks']} ranks, "
        f"{len(analysis.samples)} outer iterations of the first epoch\n"
    )
    yield _terms(_by_format(analysis.terms))
    ratios = [term.ratio for term in analysis.terms if term.ratio is not None]
    held = "every bound holds" if all(term.holds for term in analysis.terms) else "A BOUND DOES NOT HOLD"
    yield f"{held}; bound ÷ measured is {number(median(ratios))} in the median" if ratios else f"{held}"
    for note in dict.fromkeys(f"{term.knob} in {term.format}: {term.note}" for term in analysis.terms if term.note):
        yield f"no bound for {note}"
    yield ""
    yield _recipes(found)
    yield ""
    yield _choices(found.choices)


def _by_format(terms: tuple[Term, ...]) -> list[Term]:
    names = dict.fromkeys(term.format for term in terms)
    return [term for name in names for term in terms if term.format == name]


def _terms(terms: list[Term]) -> Any:
    sizes = [value for term in terms for value in (term.measured,) if 0 < value < float("inf")] or [1.0]
    low, high = min(sizes) / 2, max(sizes)
    columns: list[Column[Term]] = [
        Column("format", lambda term: term.format, "left"),
        Column("knob", lambda term: term.knob, "left"),
        Column("bound", lambda term: _error(term.bound)),
        Column("measured", lambda term: _error(term.measured)),
        Column("bound ÷\nmeasured", lambda term: number(term.ratio)),
        Column("share", lambda term: f"{term.share:.1%}"),
        Column("measured, logarithmic", lambda term: text_bar(term.measured, low, high), "left"),
    ]
    caption = (
        "‖x' − x'(fp64)‖ ÷ ‖x'(fp64) − x‖ with this knob lowered and all others fp64: the largest of the outer "
        "iterations; share: of its format."
    )
    return table("Nine terms", columns, terms, caption)


def _recipes(found: Found) -> Any:
    columns: list[Column[str]] = [
        Column("recipe", str, "left"),
        Column("measured", lambda name: _error(found.analysis.total(RECIPES[name]))),
        Column("sum of terms", lambda name: _error(found.analysis.predicted(RECIPES[name]))),
    ]
    return table("Recipes", columns, ["fp32", "C", "D"], "The sum includes what float32 arithmetic itself costs.")


def _choices(choices: tuple[Choice, ...]) -> Any:
    columns: list[Column[Choice]] = [
        Column("tolerance", lambda choice: f"{choice.tolerance:g}"),
        Column("cheapest recipe", lambda choice: choice.precision.short_name(), "left"),
        Column("measured", lambda choice: _error(choice.measured)),
        Column("bytes ÷\nfp32", lambda choice: f"{choice.bytes / choice.fp32_bytes:.2f}"),
        Column("stopped by", stopped, "left"),
    ]
    return table("Tolerances", columns, choices)


def stopped(choice: Choice) -> str:
    """The knob that keeps a recipe from being cheaper, and what it would come to."""
    if not choice.stopped_by:
        return "nothing lower"
    step = choice.stopped_by[0]
    return f"{step.knob} ({step.format}: {_error(step.error)})"


def _error(value: float) -> str:
    return f"{value:.1e}" if isfinite(value) else "none"
