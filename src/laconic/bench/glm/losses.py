"""Where CA-SGD does worse than SGD in a run of the suite `glm`, in sentences."""

from collections.abc import Sequence

from laconic.bench.glm.suite import GLMRow

LARGEST_GAP = 0.5
"""Per cent of loss above that of SGD in float32 that need no mention."""


def losses(rows: Sequence[GLMRow]) -> list[str]:
    """A sentence on every problem where some CA-SGD is slower than SGD, or loses more than it should."""
    found = []
    for problem in dict.fromkeys(row.problem for row in rows):
        ours = [row for row in rows if row.problem == problem and row.solver == "ca_sgd" and not row.is_floor]
        slow = [row.contender for row in ours if min(row.speedup_over_fp32.median, row.speedup_over_bf16.median) < 1]
        if slow:
            found.append(f"{problem}: slower than SGD: {', '.join(slow)}.")
        worse = [f"{row.contender} (by {100 * (row.loss_gap or 0):.2g} %)" for row in ours if _is_worse(row)]
        if worse:
            found.append(f"{problem}: a loss more than {LARGEST_GAP} % above that of sgd fp32: {', '.join(worse)}.")
    return found


def _is_worse(row: GLMRow) -> bool:
    return row.loss_gap is not None and 100 * row.loss_gap > LARGEST_GAP
