"""The tables of docs/planning.md, from benchmarks/results/plan.json."""

from collections.abc import Callable
from statistics import median

from benchmarks.pages.common import goals, link, load, number, origin, table

KINDS = {"glm": "models", "network": "networks"}


def summary() -> str:
    made = load("plan")
    seconds = [calibration["seconds"] for calibration in made["calibrations"]]
    return "\n\n".join(
        [
            f"{len(made['regrets'])} recommendations and {len(made['rows'])} predictions; {made['goals_for']}. "
            f"A calibration took {min(seconds):.0f} to {max(seconds):.0f} seconds.",
            goals("plan"),
        ]
    )


def errors() -> str:
    """Errors of predictions, by kind of option and by network."""
    found: dict[tuple[str, int, str], list[float]] = {}
    for row in load("plan")["rows"]:
        key = (KINDS[row["kind"]], row["ranks"], link(row["rate"]))
        found.setdefault(key, []).append(row["predicted"] / row["measured"]["median"])
    rows = [
        [
            kind,
            str(ranks),
            where,
            str(len(ratios)),
            f"{sum(abs(ratio - 1) <= 0.3 for ratio in ratios) / len(ratios):.0%}",
            number(median(ratios)),
        ]
        for (kind, ranks, where), ratios in sorted(found.items())
    ]
    headings = ["what", "ranks", "links", "predictions", "within 30 %", "predicted ÷ measured, median"]
    return table(headings, rows)


def regrets(above: float = 1.25) -> str:
    rows = [
        [row["problem"], str(row["ranks"]), link(row["rate"]), row["recommended"], row["best"], number(row["regret"])]
        for row in sorted(load("plan")["regrets"], key=lambda row: -row["regret"])
        if row["regret"] > above
    ]
    headings = ["job", "ranks", "links", "recommended", "fastest", "regret"]
    return "\n\n".join([f"Every regret above {above}:", table(headings, rows), origin("plan")])


WRITERS: dict[str, Callable[[], str]] = {"plan summary": summary, "plan errors": errors, "plan regrets": regrets}
