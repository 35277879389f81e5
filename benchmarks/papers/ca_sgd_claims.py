"""Claims of the CA-SGD paper, beside the results in a document of the suite `papers-ca-sgd`."""

from collections.abc import Iterator, Sequence

from benchmarks.goals import (
    GAP,
    NCCL_GAP,
    NCCL_SPEED,
    OURS,
    SPEED_AIM,
    SPEED_FLOORS,
    Outcome,
    fastest,
    outcome,
    spread,
)
from benchmarks.papers.claims import CA_SGD, Claim, where_we_lose
from laconic.report.values import Row, names_in, number_in, rows_in, text_in

SYNTHETIC = "synthetic"
PUBLISHED_SPEED, PUBLISHED_GAP, PUBLISHED_D = "5.1 to 6.8 (takeaway: 5.2 to 6.2)", "within 0.5", "up to 6.8"
LEAST_SPEED, MOST_SPEED = 5.1, 6.8
WIDTH = 0.1
"""Relative deviation from a published speed that still counts as reproduced."""
SPEED = "speedup_over_fp32"
READING = "what D lowers beyond C is our reading: the Gram matrix's wire and the update's operands"


def outcomes(document: Row) -> Iterator[Outcome]:
    """For each problem, recipe C's speed at its best s and its loss at its worst; on ranks with GPUs also D's."""
    for problem, base, ours in _problems(document):
        nccl = base.get("device") == "cuda" and (number_in(base, "ranks") or 1) > 1
        best, speed = fastest(ours), NCCL_SPEED if nccl else (SPEED_FLOORS.get(problem, LEAST_SPEED), SPEED_AIM)
        if value := spread(best, SPEED):
            yield outcome(f"{problem}: {base['contender']} ÷ {best['contender']}", value, *speed)
        for recipe in (OURS, "D") if nccl else (OURS,):
            worst = _worst_gap(_of(_ca_sgd(document, problem), recipe))
            if worst is not None:
                name = f"{problem}: loss of recipe {recipe} above SGD's in fp32, worst s, %"
                yield outcome(name, worst, *(NCCL_GAP if nccl else GAP))


def claims(document: Row) -> list[Claim]:
    """The summary's figures by problem, the speedup due to s and due to precision, and recipe D's figures."""
    found = []
    for problem, base, ours in _problems(document):
        note, best, worst = _note(base), fastest(ours), _worst_gap(ours)
        speed, from_s = _speed([best]), _speed(_of(_ca_sgd(document, problem), "fp32"))
        paper = base["source"] == SYNTHETIC or problem in SPEED_FLOORS
        low, high = (LEAST_SPEED * (1 - WIDTH), MOST_SPEED * (1 + WIDTH)) if paper else (None, None)
        found += [
            Claim(f"{problem}: speed of recipe C over FP32 SGD", PUBLISHED_SPEED if paper else "not in the paper",
                  round(speed, 2), CA_SGD, "×", low, high, "more", problem, f"{note}; {best['contender']}"),
        ]  # fmt: skip
        if from_s:
            found += [
                Claim(f"{problem}: of that, from s: CA-SGD FP32 ÷ SGD FP32", "not split", round(from_s, 2), CA_SGD, "×",
                      problem=problem, note="each at its best s"),
                Claim(f"{problem}: of that, from precision: C ÷ CA-SGD FP32", "not split", round(speed / from_s, 2),
                      CA_SGD, "×", problem=problem, note="each at its best s"),
            ]  # fmt: skip
        seen = f"after {number_in(base, 'n_epochs') or 0:.2g} epochs"
        found.append(
            Claim(f"{problem}: loss of recipe C from FP32 SGD's", PUBLISHED_GAP if paper else "not in the paper",
                  None if worst is None else round(worst, 4), CA_SGD, "%", None, GAP[0], problem=problem,
                  note=f"{note}; either way, the worst s, {seen}")
        )  # fmt: skip
    return found + _about_d(rows_in(document))


def _ca_sgd(document: Row, problem: str) -> list[Row]:
    return [row for row in rows_in(document) if (row.get("problem"), row.get("solver")) == (problem, "ca_sgd")]


def losses(document: Row) -> list[str]:
    """Sentences on contenders that are slower than SGD, slower than in the paper, or too far from its loss."""
    return where_we_lose(
        [line for problem in names_in(rows_in(document), "problem") for line in _lost(document, problem)]
    )


def _lost(document: Row, problem: str) -> Iterator[str]:
    rows = [row for row in rows_in(document) if text_in(row, "problem") == problem]
    every = [row for row in rows if row.get("solver") == "ca_sgd"]
    at_c, full = _of(every, OURS), _of(every, "fp32")
    base = next((text_in(row, "contender") for row in rows if row.get("baseline") is True), "SGD")
    slow = [text_in(row, "contender") for row in every if _speed([row]) < 1]
    if slow:
        yield f"{problem}: slower than {base}: {', '.join(slow)}."
    worse = [f"{row['contender']} ({_percent(row)})" for row in every if _is_off(row)]
    if worse:
        yield f"{problem}: the loss is off FP32 SGD's by more than {GAP[0]} %: {', '.join(worse)}."
    if at_c and _speed(at_c) < LEAST_SPEED:
        yield f"{problem}: recipe C is {_speed(at_c):.2g} times as fast as FP32 SGD; the paper's is {LEAST_SPEED}."
    if at_c and full and _speed(full) > _speed(at_c):
        speeds = f"{_speed(at_c):.3g} against {_speed(full):.3g} times SGD"
        yield f"{problem}: recipe C is slower than CA-SGD in float32, {speeds}."


def _problems(document: Row) -> Iterator[tuple[str, Row, list[Row]]]:
    """Each problem with its baseline and its rows of CA-SGD in recipe C, where there are any."""
    for problem in names_in(rows_in(document), "problem"):
        rows = [row for row in rows_in(document) if text_in(row, "problem") == problem]
        ours = _of([row for row in rows if row.get("solver") == "ca_sgd"], OURS)
        if ours:
            yield problem, next(row for row in rows if row.get("baseline") is True), ours


def _about_d(rows: Sequence[Row]) -> list[Claim]:
    ours = [row for row in rows if row.get("solver") == "ca_sgd"]
    lower, at_c = _of(ours, "D"), _of(ours, OURS)
    if not lower or not at_c:
        return []
    best, gap, gap_c = fastest(lower), _worst_gap(lower), _worst_gap(at_c)
    speed = Claim(
        "speed of recipe D over FP32 SGD, the best problem", PUBLISHED_D, round(_speed(lower), 2), CA_SGD, "×",
        MOST_SPEED * (1 - WIDTH), MOST_SPEED * (1 + WIDTH), "more", note=f"{best['problem']}; {READING}",
    )  # fmt: skip
    if gap is None or not gap_c:
        return [speed]
    what = "loss gap of recipe D ÷ that of C, worst problems"
    why = "both gaps are small, and on one GPU nothing is sent that Recipe D could lower."
    return [speed, Claim(what, "above 1", round(gap / gap_c, 2), CA_SGD, "×", 1.0, None, note=READING, why=why)]


def _note(row: Row) -> str:
    alone, kind = row["ranks"] == 1, str(row["device"]).upper().replace("CUDA", "GPU")
    per_core = number_in(row, "ranks_per_core")
    crowd = f", {per_core:g} per core" if per_core else ""
    where = "one GPU, where nothing is sent" if alone else f"{row['ranks']} ranks of the {kind}{crowd}"
    n, source = row["n_rows"], row["source"]
    rows = f"{n:,} synthetic rows" if source == SYNTHETIC else f"{n:,} rows of {source}"
    return f"{rows}, {where}; there A100s of Perlmutter"


def _of(rows: Sequence[Row], recipe: str) -> list[Row]:
    return [row for row in rows if row.get("recipe") == recipe]


def _speed(rows: Sequence[Row]) -> float:
    return (number_in(fastest(rows), SPEED) if rows else None) or 0.0


def _worst_gap(rows: Sequence[Row]) -> float | None:
    """The largest gap of either sign, in percent; None where a run has diverged."""
    gaps = [number_in(row, "loss_gap") for row in rows]
    return None if not gaps or any(gap is None for gap in gaps) else 100 * max(abs(gap or 0.0) for gap in gaps)


def _is_off(row: Row) -> bool:
    gap = number_in(row, "loss_gap")
    return gap is None or 100 * abs(gap) > GAP[0]


def _percent(row: Row) -> str:
    gap = number_in(row, "loss_gap")
    return "diverged" if gap is None else f"{100 * gap:.2g} %"
