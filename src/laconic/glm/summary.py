"""Standard errors of a fitted model, from the Fisher information at its coefficients, and the table of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import erfc, isfinite, nan, sqrt
from typing import Any, cast

import torch

from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator
from laconic.glm.options import DIRECT, FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.rows import DenseRows
from laconic.glm.scaling import moments
from laconic.glm.solvers.objective import Objective, serve_alone

UNKNOWN = 1e-12
"""Eigenvalues of an information matrix with a diagonal of ones that are rounding errors."""
NORMAL = 1.959963984540054
"""Standard errors on both sides of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Row:
    """One coefficient: its estimate, standard error, z = coef / error, two-sided p, and 95 % interval."""

    name: str
    coef: float
    error: float
    z: float
    p: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The coefficients of a model with their standard errors; `str` is a table.

    dispersion  φ of Var y = φ V(μ): 1, or estimated by Pearson's statistic (linear, gamma, Tweedie)
    robust      whether the errors are sandwich estimates, which do not rely on the family's variance
    """

    rows: tuple[Row, ...]
    dispersion: float
    robust: bool

    def to_json(self) -> dict[str, Any]:
        """JSON values, None for what is not finite."""
        rows = [
            {k: v if isinstance(v, str) or isfinite(v) else None for k, v in asdict(row).items()} for row in self.rows
        ]
        return {"rows": rows, "dispersion": self.dispersion, "robust": self.robust}

    def __str__(self) -> str:
        return "\n".join(table(self.to_json()))


def table(summary: dict[str, Any]) -> list[str]:
    """Lines of text from `Summary.to_json`."""
    width = max(len(row["name"]) for row in summary["rows"])
    lines = [f"{'':{width}}  {'coef':>11} {'error':>11} {'z':>9} {'p':>9} {'low':>11} {'high':>11}"]
    for row in summary["rows"]:
        found = (
            row[name] if row[name] is not None else float("nan") for name in ("coef", "error", "z", "p", "low", "high")
        )
        coef, error, z, p, low, high = found
        lines.append(f"{row['name']:{width}}  {coef:11.5g} {error:11.5g} {z:9.3f} {p:9.2g} {low:11.5g} {high:11.5g}")
    kind = "robust" if summary["robust"] else "from the Fisher information"
    return [*lines, f"standard errors {kind}; dispersion {summary['dispersion']:.6g}; 95 % intervals"]


def check_summarised(n_outputs: int, n_features: int, options: FitOptions) -> None:
    """Raise `InvalidOption` for a model that has no standard errors."""
    if options.l1:
        raise InvalidOption("standard errors have no formula with ", Option("l1_ratio", options.l1_ratio))
    if (n_features + 1) * n_outputs > DIRECT:
        what = f"standard errors take the inverse of a matrix of all weights, at most {DIRECT}; here are "
        raise InvalidOption(f"{what}{(n_features + 1) * n_outputs}")


def summarise(
    problem: Problem,
    options: FitOptions,
    coef: torch.Tensor,
    intercept: torch.Tensor,
    names: Sequence[str],
    *,
    robust: bool,
) -> Summary:
    """The table of a model's coefficients on the rows it was fitted to, in one process.

    With I = Σ w E[φ''] a aᵀ and the penalty's M Λ (M = Σ w: a row of weight 2 is two rows), J = I + M Λ and the
    covariance is φ J⁻¹ I J⁻¹; robust, J⁻¹ (Σ w² φ'² a aᵀ) J⁻¹. With a penalty, these are errors around the penalised
    optimum. Where columns depend on each other, or classes, errors are those of differences from their mean.

    coef, intercept  (C, n), (C,), of columns as given
    options          with nothing "auto" left
    """
    C, n = coef.shape
    check_summarised(C, n, options)
    covariance, dispersion = _covariance(problem, options, coef.double(), intercept.double(), robust=robust)
    errors = covariance.diagonal().clamp(min=0).sqrt().view(C, n + 1)
    labels = ["intercept"] if options.fit_intercept else []
    classes = [""] if C == 1 else [f"{label}: " for label in problem.classes or range(C)]
    rows = []
    for c, prefix in enumerate(classes):
        for j, name in [(n, one) for one in labels] + list(enumerate(names)):
            value = float(intercept[c] if j == n else coef[c, j])
            rows.append(_row(prefix + name, value, float(errors[c, j])))
    return Summary(tuple(rows), dispersion, robust)


def _row(name: str, coef: float, error: float) -> Row:
    z = coef / error if error > 0 else float("nan")
    return Row(name, coef, error, z, erfc(abs(z) / sqrt(2)), coef - NORMAL * error, coef + NORMAL * error)


def _covariance(
    problem: Problem, options: FitOptions, coef: torch.Tensor, intercept: torch.Tensor, *, robust: bool
) -> tuple[torch.Tensor, float]:
    """Of all weights, class by class with the intercept last, for columns as given; and the dispersion."""
    C, n = coef.shape
    objective = Objective(problem, options, Wire(Communicator()))
    family, scaling = problem.family, problem.scaling
    mean, deviation = (torch.zeros(n), torch.ones(n)) if scaling is None else (scaling.mean, scaling.deviation)
    theta = torch.cat([coef * deviation, (intercept + coef @ mean.double())[:, None]], 1).to(objective.dtype)
    w = objective.w.double() * problem.mean_weight
    (J, meat), pearson = torch.zeros(2, C, n + 1, C, n + 1, dtype=objective.dtype), 0.0
    z = serve_alone(objective.at(theta)).z
    shift = torch.zeros(n)
    if options.fit_intercept:  # which knows little of columns that are far from 0
        shift = moments(problem.columns)[0].to(objective.dtype)
        mean = mean + shift * deviation
    for rows, Y in objective.columns.blocks(problem.rows, objective.dtype, objective.step):
        Y = DenseRows(Y.dense() - shift) if bool(shift.any()) else Y
        y, part = objective.y[rows], z[rows]
        expected = family.mean(part) if C == 1 else y
        fisher, slope = cast(torch.Tensor, family.expand(part, expected, curved=True)[2]), family.derivative(part, y)
        objective.add_hessian(J, Y, fisher, rows)
        if robust:
            Y.add_outer(w[rows, None] * slope, meat)
        if family.dispersed:
            pearson += float((w[rows] * slope[:, 0].square() / fisher[:, 0])[w[rows] > 0].sum())
    fisher, meat, total = problem.mean_weight * J.view(C * (n + 1), -1), meat.view(C * (n + 1), -1), float(w.sum())
    J = fisher + torch.diag(total * objective.l2.repeat(C))
    if not options.fit_intercept:
        for one in (J, fisher, meat):
            one[n :: n + 1], one[:, n :: n + 1] = 0, 0
    covariance, rank = _sandwich(J, fisher, meat if robust else fisher)
    dispersion = 1.0 if not family.dispersed else pearson / (total - rank) if total > rank else nan
    covariance = covariance if robust else dispersion * covariance
    back = torch.eye(n + 1, dtype=covariance.dtype)
    back[:n, :n] /= deviation.to(back)[:, None]
    back[n, :n] = -(mean / deviation).to(back)
    back = torch.kron(torch.eye(C, dtype=back.dtype), back)
    return back @ covariance @ back.T, dispersion


def _sandwich(J: torch.Tensor, fisher: torch.Tensor, meat: torch.Tensor) -> tuple[torch.Tensor, int]:
    """J⁻¹ meat J⁻¹, 0 along directions of which the rows know nothing, whatever the units of the columns; and the
    number of directions of which they know something."""

    def units(one: torch.Tensor) -> torch.Tensor:
        """In which it has a diagonal of ones."""
        return torch.where(one.diagonal() > 0, one.diagonal(), 1.0).rsqrt()

    scale = units(fisher)
    J, fisher, meat = (scale[:, None] * one * scale for one in (J, fisher, meat))
    values, known = torch.linalg.eigh(fisher)
    known, own = known[:, values > UNKNOWN], units(J)[:, None]
    half = own * (torch.linalg.pinv(own * J * own.T, rtol=UNKNOWN, hermitian=True) @ (own * known))
    covariance: torch.Tensor = half @ (known.T @ meat @ known) @ half.T
    return scale[:, None] * covariance * scale, known.shape[1]
