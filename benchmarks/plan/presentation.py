"""What is shown of the suite `plan`."""

from laconic.report import BarChart, Column, Presentation, Table, text
from laconic.report.values import Row, number_in, text_in


def _where(row: Row) -> str:
    return f"{text_in(row, 'ranks')} × {text_in(row, 'rate', 'loopback')}"


def _chosen(row: Row) -> str:
    return f"{_where(row)}: {text_in(row, 'option')}"


def _worst(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -abs(number_in(row, "error") or 0.0))[:12]


PRESENTATION = Presentation(
    "Predictions and what was measured",
    [
        Table(
            "Recommendations",
            [
                text("ranks and link", _where),
                text("problem", "problem"),
                text("recommended", "recommended"),
                text("fastest", "best"),
                Column("regret", "regret"),
            ],
            "regret: time of what is recommended over that of the fastest option, both measured.",
            of="regrets",
        ),
        Table(
            "The worst predictions",
            [
                text("ranks and link", _where),
                text("problem", "problem"),
                text("option", "option"),
                Column("predicted", "predicted", "s"),
                Column("measured", "measured", "s"),
                Column("error", "error", "%"),
            ],
            rows=_worst,
        ),
        BarChart(
            "What is recommended: measured, beside what was predicted",
            "measured",
            "s",
            label=_chosen,
            group="problem",
            limit=("predicted", "predicted"),
            log=True,
            rows=lambda rows: [row for row in rows if row.get("recommended") is True],
        ),
    ],
)
