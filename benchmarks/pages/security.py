"""The table of docs/security.md, from benchmarks/results/campaign.json, which `python -m campaign` writes; and the cost
of comparing replicas, for docs/ddp.md, from ddp-verify.json."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.pages.common import load, origin, presented
from laconic.report import BarChart, Cell, Column, Presentation, RowTable, text
from laconic.report.values import number_in


def outcomes(row: Mapping[str, Any]) -> str:
    """The outcomes of the trials, the most frequent first."""
    found = row.get("outcomes")
    counts = {name: number_in(found, name) or 0 for name in found} if isinstance(found, Mapping) else {}
    told = sorted(counts.items(), key=lambda one: -one[1])
    total = max(1, sum(counts.values()))
    return ", ".join(f"{outcome} {100 * times / total:.0f} %" for outcome, times in told[:3])


def counted(heading: str, key: str) -> Column:
    """A column of whole numbers."""
    return Column(heading, lambda row: Cell("–" if (n := number_in(row, key)) is None else f"{n:,.0f}", n))


PRESENTATION = Presentation(
    "The campaign: what was tried, and what was lost",
    [
        RowTable(
            "Trials",
            [
                text("case", "case"),
                counted("tried", "tried"),
                counted("survived", "survived"),
                counted("lost", "lost"),
                Column("of the full campaign", "share", "%"),
                text("what came of it", outcomes),
            ],
            "Survived: the right value or the documented error, in time and in the memory that was allowed.",
        ),
        BarChart("Share of the full campaign", "share", "%", label="case"),
    ],
    "Hostile bytes, killed ranks, bad surroundings and long runs.",
)


def campaign() -> str:
    rows = load("campaign")["rows"]
    tried, lost = (sum(row[key] for row in rows) for key in ("tried", "lost"))
    commits = dict.fromkeys(commit[:12] for row in rows for commit in row["commits"])
    said = f"{tried:,} trials, {lost:,} of them lost; made at the commits {', '.join(commits)}."
    return "\n\n".join([said, presented(load("campaign")), origin("campaign")])


def replica_check(every: int = 1000) -> str:
    """Step times with and without a check at every step."""
    document = load("ddp-verify")
    rows = {row["contender"]: row for row in document["rows"]}
    plain, checked = (rows[name]["seconds"]["median"] for name in ("nuqsgd-4", "nuqsgd-4+verify"))
    n, ranks, share = rows["nuqsgd-4"]["n"], document["options"]["ranks"], (checked - plain) / plain / every
    return (
        f"With {n:,} parameters on {ranks} ranks of a machine that had other work, a step took {1e3 * plain:.0f} ms, "
        f"and {1e3 * checked:.0f} ms with a check in each: every {every} steps that is {100 * share:.2f} % of the "
        f"time. {origin('ddp-verify')}"
    )


WRITERS: dict[str, Callable[[], str]] = {"campaign": campaign, "replica check": replica_check}
