"""Write the tables of docs/performance.md from the files in benchmarks/results.

`python benchmarks/performance_page.py` rewrites what stands between the page's markers; a test checks that it is
up to date.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"


def load(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def origin(name: str) -> str:
    here = load(name)["rows"][0]["environment"]
    return (
        f"`benchmarks/results/{name}.json`: {here['cpu']}, {here['n_cores']} cores, torch {here['torch']}, "
        f"Numba {here['numba']}, commit {here['commit'][:12]}, {here['date'][:10]}."
    )


def number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"


def spread(x: dict | float | None) -> str:
    if not isinstance(x, dict):
        return number(x)
    return f"{number(x['median'])} ({number(x['p20'])}–{number(x['p80'])})"


def goals(*names: str) -> str:
    rows = [
        [goal["name"], spread(goal["value"]), number(goal["floor"]), number(goal["aim"]), goal["verdict"]]
        for name in names
        for goal in load(name)["goals"]
    ]
    return table(["what", "measured (20–80 %)", "at least", "aim", "met"], rows)


def codec() -> str:
    rows = [
        [row["contender"], row["via"], row["operation"], number(row["gb_per_second"]), spread(row["ratio_to_copy"])]
        for row in load("codec")["rows"]
        if row["ratio_to_copy"] is not None
    ]
    headings = ["contender", "through", "operation", "GB/s of float32", "÷ copy_ (20–80 %)"]
    return table(headings, rows) + "\n\n" + origin("codec")


def exchange(rate: str) -> str:
    name = f"exchange-{rate}"
    rows = [
        [
            row["contender"],
            number(1e3 * row["seconds"]["median"]),
            spread(row["speedup_over_fp32"]),
            spread(row["speedup_over_bf16"]),
            number(row["bytes_sent"] / 1e6),
            number(row["nmse"]),
        ]
        for row in load(name)["rows"]
        if row["contender"] != "nothing"
    ]
    headings = ["contender", "ms", "× fp32 (20–80 %)", "× bf16 (20–80 %)", "MB sent", "error"]
    return table(headings, rows) + "\n\n" + origin(name)


def ddp() -> str:
    rows = [
        [
            row["contender"],
            number(1e3 * row["seconds"]["median"]),
            spread(row["speedup_over_fp32"]),
            spread(row["speedup_over_bf16"]),
            number(row["loss"]),
            f"{row['loss_over_fp32']:.3f}",
        ]
        for row in load("ddp-1gbit")["rows"]
    ]
    headings = ["contender", "ms a step", "× fp32 (20–80 %)", "× bf16 hook (20–80 %)", "loss", "÷ fp32"]
    return table(headings, rows) + "\n\n" + origin("ddp-1gbit")


SECTIONS = {
    "codec goals": lambda: goals("codec"),
    "codec": codec,
    "network goals": lambda: goals(
        "exchange-1gbit", "exchange-100mbit", "exchange-20mbit", "exchange-unlimited", "ddp-1gbit"
    ),
    **{f"exchange {rate}": lambda rate=rate: exchange(rate) for rate in ("1gbit", "unlimited", "100mbit", "20mbit")},
    "ddp": ddp,
}


def rendered(page: str) -> str:
    """The page with every section's table made anew."""

    def fill(match: re.Match) -> str:
        return f"<!-- {match[1]} -->\n\n{SECTIONS[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (?!end)(.*?) -->.*?<!-- end -->", fill, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
