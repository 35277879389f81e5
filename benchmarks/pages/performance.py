"""Write the tables of docs/performance.md from the files in benchmarks/results.

`python -m benchmarks pages` rewrites what stands between the page's markers; a test checks that it is
up to date.
"""

import json
from functools import partial

from benchmarks.pages import summary, tables
from benchmarks.pages.tables import DOCS, RESULTS, goals, link, load, number, origin, spread, table

PAGE = DOCS / "performance.md"


def codec() -> str:
    rows = [
        [row["contender"], row["via"], row["operation"], number(row["gb_per_second"]), spread(row["ratio_to_copy"])]
        for row in load("codec")["rows"]
        if row["ratio_to_copy"] is not None
    ]
    headings = ["contender", "through", "operation", "GB/s of float32", "÷ copy_ (20–80 %)"]
    return table(headings, rows) + "\n\n" + origin("codec")


LINKS = {"1 Gbit/s": 0.125, "10 Gbit/s": 1.25, "25 Gbit/s": 3.125, "100 Gbit/s": 12.5, "NVLink, 450 GB/s": 450.0}
"""In GB/s: how fast a rank can send."""


def entropy() -> str:
    """From which speed on entropy coding saves time: that at which a value's coding takes as long as its saved bits."""
    rows = {(row["contender"], row["operation"]): row for row in load("codec")["rows"] if row["via"] == "coder"}
    parts = []
    for scheme in ("nuqsgd-4", "qsgdinf-8"):
        encode, decode = (rows[f"rans on {scheme}", operation] for operation in ("encode", "decode"))
        fixed, coded = float(scheme.split("-")[1]), encode["bits_per_coordinate"]
        here = 1 / (1 / encode["values_per_second"] + 1 / decode["values_per_second"])
        saved = f"{number(fixed)} → {number(coded)} bits, −{100 * (1 - coded / fixed):.0f} %"
        break_even = [number(8 * gb / (fixed - coded)) for gb in LINKS.values()]
        parts.append([f"rans on {scheme}", saved, number(here / 1e9), *break_even])
    return table(["coder", "bits a value", "one core, 10⁹ values/s", *LINKS], parts)


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


def glm() -> str:
    """All of the section, from every result file of the suite that there is; nothing where there is none."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("glm*.json"))}
    found = {name: made for name, made in found.items() if made["suite"] != "glm-device"}
    if not found:
        return ""
    parts = [GLM_INTRODUCTION, goals(*found)]
    for name, made in found.items():
        parts += glm_race(name, made) if made["suite"] == "glm-time-to" else glm_iterations(name, made)
    return "\n\n".join(parts)


GLM_INTRODUCTION = """\
## Generalised linear models

Each rank has a block of the columns. SGD sums margins over ranks in every iteration; CA-SGD sums them, and the Gram
matrix of the rows, once in s iterations, and gives the same iterates. Recipe C keeps data and margins in bfloat16. *no
messages* does the same work on every rank alone: no solver of the kind can be faster. Times are the slowest rank's; CPU
time is a rank's."""


def glm_iterations(name: str, made: dict) -> list[str]:
    headings = [
        "contender",
        "µs (20–80 %)",
        "CPU µs",
        "× sgd fp32 (20–80 %)",
        "× sgd C",
        "messages",
        "bytes",
        "loss gap",
    ]
    parts = []
    for problem in dict.fromkeys(row["problem"] for row in made["rows"]):
        rows = [row for row in made["rows"] if row["problem"] == problem]
        first = rows[0]
        links = f"links of {link(first['rate'])}" if first["rate"] else "loopback"
        shape = f"{first['n_rows']:,} × {first['n_features']:,}, {first['family']}, {first['ranks']} ranks over {links}"
        parts += [f"### {problem}", f"{shape}; batches of {first['batch_size']}; an iteration:"]
        parts.append(table(headings, [glm_row(row) for row in rows]))
    return [*parts, origin(name)]


def glm_row(row: dict) -> list[str]:
    micro = {key: 1e6 * value for key, value in row["seconds"].items()}
    return [
        row["contender"],
        spread(micro),
        number(1e6 * row["cpu_seconds"]),
        spread(row["speedup_over_fp32"]),
        number(row["speedup_over_bf16"]["median"]),
        number(row["messages"]),
        number(row["bytes_sent"]),
        "–" if row["loss_gap"] is None else f"{100 * row['loss_gap']:z.3f} %",
    ]


def glm_race(name: str, made: dict) -> list[str]:
    first = made["rows"][0]
    rows = [
        [
            row["contender"],
            row["config"] or "none got there",
            spread(row["seconds"]),
            spread(row["over_ours"]),
            number(None if row["above_optimum"] is None else 100 * row["above_optimum"]),
        ]
        for row in made["rows"]
    ]
    headings = ["contender", "its best way", "s (20–80 %)", "÷ ours (20–80 %)", "above the optimum, %"]
    return [
        f"### {first['problem']}: to within 1 % of the optimum",
        f"{first['n_rows']:,} × {first['n_features']:,}, {first['family']}; one process; all of `fit`:",
        table(headings, rows),
        origin(name),
    ]


def gpu_kernels() -> str:
    rows = [
        [
            row["contender"],
            row["operation"],
            str(row["n_payloads"] or "–"),
            number(1e3 * row["seconds"]["median"]),
            number(row["gb_per_second"]),
            spread(row["ratio_to_copy"]),
        ]
        for row in load("kernels-h200")["rows"]
    ]
    headings = ["contender", "operation", "payloads", "ms", "GB/s", "÷ copy (20–80 %)"]
    return table(headings, rows) + "\n\n" + origin("kernels-h200")


TENSOR_RATE = 990e12
"""Operations a second of an H200's tensor cores in bfloat16, by the vendor's data sheet."""


def gpu_floors() -> str:
    """Of each problem: what an iteration of Recipe C must at least read and compute, and what it takes."""
    copy = next(row for row in load("kernels-h200")["rows"] if row["operation"] == "copy")["gb_per_second"] * 1e9
    found, rows = load("glm-h200")["rows"], []
    for problem in dict.fromkeys(row["problem"] for row in found):
        ours = [row for row in found if row["problem"] == problem and row["is_ours"] and row["recipe"] == "C"]
        best = min(ours, key=lambda row: row["seconds"]["median"])
        b, n, s = best["batch_size"], best["n_features"], best["s"]
        n_bytes, operations = 2 * b * n, s * b * b * n if best["solver"] == "ca_sgd" else 4 * b * n
        rows.append(
            [
                problem,
                best["contender"],
                f"{n_bytes / 1e3:.4g} KB, {1e6 * n_bytes / copy:.2g} µs",
                f"{operations / 1e6:.3g} M, {1e6 * operations / TENSOR_RATE:.2g} µs",
                f"{1e6 * best['seconds']['median']:.3g} µs",
            ]
        )
    headings = [
        "problem",
        "fastest",
        "rows read once, at the copy's rate",
        "products, at 990 · 10¹² a second",
        "measured",
    ]
    return table(headings, rows)


def gpu_glm() -> str:
    made = load("glm-h200")
    headings = ["contender", "µs (20–80 %)", "× eager", "× graphed", "× graphed bf16", "× JAX", "from fp64", "loss gap"]
    parts = []
    for problem in dict.fromkeys(row["problem"] for row in made["rows"]):
        rows = [row for row in made["rows"] if row["problem"] == problem]
        shape = f"{rows[0]['n_rows']:,} × {rows[0]['n_features']:,}, {rows[0]['family']}"
        parts += [f"**{problem}**: {shape}; batches of {rows[0]['batch_size']}; an iteration:"]
        parts.append(table(headings, [gpu_glm_row(row) for row in rows]))
    return "\n\n".join([*parts, origin("glm-h200")])


def gpu_glm_row(row: dict) -> list[str]:
    return [
        row["contender"],
        spread({key: 1e6 * value for key, value in row["seconds"].items()}),
        *(number(row[key]) for key in ("over_eager", "over_graphed", "over_graphed_bf16", "over_jax")),
        f"{row['difference']:.1e}",
        "–" if row["loss_gap"] is None else f"{100 * row['loss_gap']:z.3f} %",
    ]


SECTIONS = {
    **{name: partial(summary.measured, lines) for name, lines in summary.SECTIONS.items()},
    "codec goals": lambda: goals("codec"),
    "codec": codec,
    "entropy": entropy,
    "network goals": lambda: goals(
        "exchange-1gbit", "exchange-100mbit", "exchange-20mbit", "exchange-unlimited", "ddp-1gbit"
    ),
    **{f"exchange {rate}": lambda rate=rate: exchange(rate) for rate in ("1gbit", "unlimited", "100mbit", "20mbit")},
    "ddp": ddp,
    "glm": glm,
    "gpu goals": lambda: goals("glm-h200", "kernels-h200"),
    "gpu kernels": gpu_kernels,
    "gpu floors": gpu_floors,
    "gpu glm": gpu_glm,
}


def rendered(page: str) -> str:
    """The page with every section's table made anew."""
    return tables.rendered(page, SECTIONS)
