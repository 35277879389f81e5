"""`laconic analyze`: what each precision knob costs."""

from laconic.report.blocks import Block, Section
from laconic.report.values import Row, number_in, rows_in, text_in
from laconic.report.views import parts


def analyze(document: Row) -> list[Section]:
    """Measured errors beside their bounds, recipes, and the cheapest recipe of each tolerance."""
    rows = rows_in(document)
    recipes = (
        parts.text("recipe", "recipe"),
        parts.Col("measured error", "measured"),
        parts.Col("predicted", "predicted"),
    )
    blocks: list[Block] = [
        *parts.options(document),
        *parts.bars(
            "Error of the new weights as a share of the step, one knob lowered at a time",
            rows,
            "measured",
            group="knob",
            label="format",
            log=True,
            limit=("bound", "bound that always holds"),
        ),
        *parts.table("Recipes", rows_in(document, "recipes"), recipes),
        *_choices(document),
        *parts.everything(rows),
    ]
    given = document.get("options")
    sizes = (number_in(document, "n_rows"), number_in(document, "n_features"))
    shape = f" ({sizes[0]:,.0f} × {sizes[1]:,.0f})" if sizes[0] is not None and sizes[1] is not None else ""
    return [Section(f"Precision on {text_in(given, 'data', 'data')}{shape}, {text_in(given, 'device', 'cpu')}", blocks)]


def _choices(document: Row) -> list[Block]:
    columns = (
        parts.Col("tolerance", "tolerance"),
        parts.text("cheapest recipe", "recipe"),
        parts.Col("measured error", "measured"),
        parts.Col("bytes", "bytes", "B"),
        parts.Col("in fp32", "fp32_bytes", "B"),
    )
    return parts.table("The cheapest recipe for a tolerance", rows_in(document, "choices"), columns)
