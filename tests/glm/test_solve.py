"""Epoch after epoch: how a fit ends, what it tells, what it leaves alone, and that it can be cut anywhere."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from glm.tables import EPOCHS, FAMILIES, Case, M, arrays, distance, fit, plain, same_bits, stored, vectors
from laconic import LaconicError
from laconic.exchange import Communicator
from laconic.glm import (
    DenseColumns,
    Diverged,
    FitOptions,
    Outcome,
    Problem,
    Progress,
    State,
    Tweedie,
    begin,
    checkpoint,
    solve,
)
from laconic.glm.ranks import Wire
from laconic.glm.resolve import resolve
from laconic.glm.solvers import solve as solve_module_function
from laconic.glm.solvers.objective import Objective

SOLVERS = ["sgd", "ca_sgd"]
COMM = Communicator()

# --- the solution -----------------------------------------------------------------------------------------------------


def gradient(problem: Problem, settings: FitOptions, state: State) -> torch.Tensor:
    """Of (1/m) Σ w φ + λ/2 ‖x‖², with the intercept's as last column; by autograd, in float64."""
    X = problem.columns.take(np.arange(problem.columns.m), torch.float64).Y
    x, b = state.weights.x.double().requires_grad_(), state.weights.intercept.value.double().requires_grad_()
    z = X @ x.T + b + (problem.offset_as(torch.float64) if problem.offset is not None else 0)
    losses = problem.weights_as(torch.float64) * problem.family.loss(z, problem.y.double())
    (losses.mean() + settings.l2 / 2 * x.square().sum()).backward()
    return torch.cat([x.grad, b.grad[:, None]], 1)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "batch_size", "limit"), [("cosine", 30, 5e-3), ("adaptive", M, 1e-4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_vanishes(family, name, batch_size, limit, solver):
    """Batches divide the 90 rows, so the mean of their gradients is the gradient."""
    case = Case(family, weighted=True, offset=family == "poisson", alpha=0.02)
    problem, max_iter = case.problem(), {"cosine": 300, "adaptive": 1000}[name]
    settings = FitOptions(
        solver=solver,
        s=3,
        sampling="cyclic",
        batch_size=batch_size,
        learning_rate=name,
        eta0=0.2 if family == "poisson" else 0.5,
        alpha=case.alpha,
        recipe="fp64",
        max_iter=max_iter,
        tol=1e-9 if name == "adaptive" else None,
    )
    at_start = gradient(problem, settings, begin(problem, settings)).norm()
    solution = solve(problem, settings)
    assert gradient(problem, settings, solution.state).norm() < limit * at_start
    assert solution.outcome == (Outcome.CONVERGED if name == "adaptive" else Outcome.MAX_ITER)


def test_least_squares_has_its_closed_form():
    case = Case("gaussian", alpha=0.0, batch_size=M)
    settings = case.options(eta0=0.5, max_iter=500)
    state = solve(case.problem(), settings).state
    data = arrays("gaussian")
    design = torch.cat([data["X"], torch.ones(M, 1, dtype=torch.float64)], 1)
    expected = torch.linalg.lstsq(design, data["y"][:, None]).solution.T
    assert distance(vectors(state)["x"], expected) < 1e-9


@pytest.mark.parametrize("solver", SOLVERS)
def test_lasso_satisfies_its_optimality_conditions(solver):
    case = Case("gaussian", alpha=0.3, l1_ratio=1.0, batch_size=M, intercept=False)
    settings = case.options(solver, s=1, eta0=0.5, max_iter=500)
    problem = case.problem()
    state = solve(problem, settings).state
    slope, x = gradient(problem, settings, state)[0, :-1], state.weights.x[0]
    assert 0 < int((x == 0).sum()) < len(x)
    assert torch.allclose(slope[x != 0], -0.3 * x[x != 0].sign(), atol=1e-9)
    assert (slope[x == 0].abs() <= 0.3).all()


# --- the start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_intercept_begins_at_the_best_constant_of_the_rows_trained_on(family):
    case = Case(family, weighted=True, offset=family == "poisson")
    rows = np.arange(0, 60)
    problem = case.problem(rows=rows)
    state = begin(problem, case.options())
    part = Problem(
        stored(torch.zeros(60, 1, dtype=torch.float64), "dense", torch.float64),
        FAMILIES[family],
        problem.y[:60],
        problem.weights[:60],
        None if problem.offset is None else problem.offset[:60],
    )
    start = begin(part, case.options())
    start.weights.intercept.value.copy_(state.weights.intercept.value)
    assert gradient(part, case.options(), start).abs().max() < 1e-7
    assert (begin(problem, case.options(fit_intercept=False)).weights.intercept.value == 0).all()
    assert (state.weights.x == 0).all()


def test_all_weights_zero_is_an_error():
    case = Case("gaussian")
    with pytest.raises(ValueError, match="all sample weights are zero"):
        solve(case.problem(weights=torch.zeros(M)), case.options())


# --- the problem ------------------------------------------------------------------------------------------------------

BAD_PROBLEMS = [
    ({"y": torch.zeros(3)}, "y has 3 entries, but X has 90 rows"),
    ({"weights": torch.ones(91)}, "weights has 91 entries, but X has 90 rows"),
    ({"offset": torch.ones(1, 2)}, "offset has 1 entries, but X has 90 rows"),
    ({"weights": -torch.ones(M)}, "weights must be finite and not negative"),
    ({"weights": torch.full((M,), torch.nan)}, "weights must be finite and not negative"),
    ({"weights": torch.full((M,), torch.inf)}, "weights must be finite and not negative"),
    ({"offset": torch.full((M,), -torch.inf)}, "offset must be finite; exposures of 0 have no logarithm"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_PROBLEMS)
def test_a_bad_problem_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Case("gaussian").problem(**changes)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("family", ["multinomial3", "poisson"])
def test_rows_of_weight_0_are_rows_left_out(family, solver):
    """All rows at once, gradients summed: a row of weight 0 adds nothing, wherever its margin lies."""
    data = arrays(family)
    data["X"][::7] *= 1e6  # rows that would ruin the fit
    weights = torch.ones(M, dtype=torch.float64)
    weights[::7] = 0
    kept = weights.nonzero()[:, 0]
    settings = Case(family, gradient="sum").options(
        solver, s=2, sampling="cyclic", batch_size=1000, eta0=0.005, max_iter=20
    )
    for layout in ("dense", "sparse"):
        whole = Problem(stored(data["X"], layout, torch.float64), FAMILIES[family], data["y"], weights)
        part = Problem(stored(data["X"][kept], layout, torch.float64), FAMILIES[family], data["y"][kept])
        (a, _), (b, _) = fit(whole, settings), fit(part, settings)
        assert distance(vectors(a.state)["x"], vectors(b.state)["x"]) < 1e-12
        assert [row["loss"] for row in a.history] == pytest.approx([row["loss"] for row in b.history], rel=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_constant_offset_is_an_intercept(solver):
    case = Case("bernoulli", intercept=False)
    by_offset = solve(case.problem(offset=torch.full((M,), 0.7)), case.options(solver)).state
    fixed = begin(case.problem(), case.options(solver))
    fixed.weights.intercept.value.fill_(0.7)
    assert not fixed.weights.intercept.fitted
    solve(case.problem(), case.options(solver), state=fixed)
    assert fixed.weights.intercept.value == torch.tensor([0.7], dtype=torch.float64)
    assert distance(by_offset.weights.x, fixed.weights.x) < 1e-6  # 0.7 comes as float32


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_offset_may_differ_between_classes(solver):
    case, g = Case("multinomial3"), torch.Generator().manual_seed(0)
    offset = torch.randn(M, 3, generator=g, dtype=torch.float64)
    states = [
        solve(case.problem(offset=offset, family=family), case.options(solver)).state
        for family in (FAMILIES["multinomial3"], plain(FAMILIES["multinomial3"]))
    ]
    assert distance(states[0].weights.x, states[1].weights.x) < 1e-12
    shared = solve(case.problem(offset=offset[:, 0]), case.options(solver)).state
    nothing = solve(case.problem(offset=torch.zeros(M)), case.options(solver)).state
    assert distance(shared.weights.x, nothing.weights.x) < 1e-12  # the same for all classes: no change
    assert distance(states[0].weights.x, nothing.weights.x) > 1e-3


# --- rows held back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_validation_rows_are_never_trained_on(solver):
    rows, held = np.arange(0, 70), np.arange(70, M)
    case = Case("poisson", weighted=True, offset=True)
    data, states = arrays("poisson"), []
    for spoil in (False, True):
        if spoil:
            data["X"][70:], data["y"][70:], data["weights"][70:], data["offset"][70:] = 9.0, 4.0, 1.5, 0.1
        problem = Problem(
            stored(data["X"], "dense", torch.float64),
            FAMILIES["poisson"],
            data["y"],
            data["weights"],
            data["offset"],
            rows,
            held,
        )
        solution = solve(problem, case.options(solver, tol=None))
        z = data["X"][70:] @ solution.state.coef.T + solution.state.intercept + data["offset"][70:, None]
        losses = data["weights"][70:] * FAMILIES["poisson"].loss(z, data["y"][70:])
        expected = float(losses.sum() / data["weights"][70:].sum())
        assert solution.history[-1]["validation_loss"] == pytest.approx(expected, rel=1e-12)
        states.append(solution.state)
    assert all(
        torch.equal(a, b) for a, b in zip(states[0].tensors().values(), states[1].tensors().values(), strict=True)
    )
    assert states[0].history[-1]["loss"] == states[1].history[-1]["loss"]
    assert states[0].history[-1]["validation_loss"] != states[1].history[-1]["validation_loss"]


def test_early_stopping_looks_at_the_rows_held_back():
    """Rows held back whose targets are noise stop the fit early; the same rows as training rows would not."""
    data = arrays("gaussian")
    y = data["y"].clone()
    y[70:] = -50.0
    problem = Problem(
        stored(data["X"], "dense", torch.float64), FAMILIES["gaussian"], y, None, None, np.arange(70), np.arange(70, M)
    )
    settings = Case("gaussian").options(tol=1e-6, n_iter_no_change=3, max_iter=200)
    solution = solve(problem, settings)
    assert solution.outcome is Outcome.HELD_BACK
    losses = [row["validation_loss"] for row in solution.history]
    best = min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == best + 1 + 3
    assert solution.state.best_loss == losses[best]


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_divergence_says_what_to_lower(solver, momentum):
    case = Case("gaussian", momentum=momentum)
    settings = case.options(solver, eta0=50.0, max_iter=100)
    with pytest.raises(Diverged, match=r"lower eta0 \(it is 50; try 5\)") as caught:
        solve(case.problem(), settings)
    assert ("or momentum (it is 0.9)" in str(caught.value)) == bool(momentum)
    assert "standardise the columns of X" in str(caught.value)
    assert "of epoch " in str(caught.value)
    assert isinstance(caught.value, ArithmeticError)
    assert isinstance(caught.value, LaconicError)


def test_poisson_that_overflows_diverges_and_does_not_return():
    case = Case("poisson")
    for family in (FAMILIES["poisson"], plain(FAMILIES["poisson"])):
        with pytest.raises(Diverged, match=r"the loss became (inf|nan)"):
            solve(case.problem(family=family), case.options(eta0=1e4))


@pytest.mark.parametrize("solver", SOLVERS)
def test_tol_stops_after_epochs_without_progress(solver):
    case = Case("bernoulli")
    settings = case.options(solver, tol=1e-3, n_iter_no_change=4, max_iter=500)
    solution = solve(case.problem(), settings)
    assert solution.outcome is Outcome.STALLED, "a constant step stays above the optimum, and is not called converged"
    assert solution.gap > 1e-3
    losses = [row["objective"] for row in solution.history]
    best, stalls, null = math.inf, 0, Objective(case.problem(), settings, Wire(Communicator())).null
    for epoch, loss in enumerate(losses):
        stalls = stalls + 1 if loss > best - 1e-3 * (null - min(best, null)) else 0
        best = min(best, loss)
        assert (stalls == 4) == (epoch == len(losses) - 1)
    assert solution.state.stalls == 4


def test_without_tol_every_epoch_is_done():
    case = Case("bernoulli")
    solution = solve(case.problem(), case.options(tol=None, max_iter=40))
    assert solution.outcome is Outcome.MAX_ITER
    assert len(solution.history) == 40
    assert solution.state.iteration == 40 * 23


def test_the_adaptive_step_shrinks_fivefold_until_it_is_small():
    case = Case("bernoulli")
    settings = case.options(learning_rate="adaptive", eta0=0.5, tol=1e-13, n_iter_no_change=2, max_iter=1000)
    solution = solve(case.problem(), settings)
    assert solution.outcome is Outcome.STALLED
    etas = [row["eta"] for row in solution.history]
    steps = sorted({round(eta, 12) for eta in etas}, reverse=True)
    assert steps == pytest.approx([0.5 * 0.2**k for k in range(6)])
    assert etas == sorted(etas, reverse=True)
    assert solution.state.factor == pytest.approx(0.2**5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_stops_the_fit(solver):
    case, seen = Case("bernoulli", batch_size=1), []

    def stop(progress: Progress) -> bool:
        seen.append((progress.epoch, progress.iteration, progress.fraction, progress.loss))
        return progress.epoch == 1 and progress.fraction > 0.4

    others = []
    solution = solve(case.problem(), case.options(solver, s=4), callbacks=[stop, lambda p: others.append(p.iteration)])
    assert solution.outcome is Outcome.STOPPED
    assert len(solution.history) == 1
    assert solution.state.epoch == 1
    assert 0 < solution.state.batch < M
    assert others == [row[1] for row in seen]  # every callback hears of every segment, the last one too
    assert [row[1] for row in seen] == sorted({row[1] for row in seen})
    assert seen[-1][2] == solution.state.batch / M
    ends = [row for row in seen if row[2] == 1]
    assert [row[3] for row in ends] == [row["loss"] for row in solution.history]
    assert 10 <= len([row for row in seen if row[0] == 0]) <= 32  # about sixteen segments an epoch


def test_history_has_a_row_an_epoch():
    case = Case("poisson", schedule="cosine", weighted=True)
    solution = solve(case.problem(), case.options())
    columns = ["epoch", "iteration", "loss", "objective", "eta", "seconds", "bytes_sent", "messages"]
    assert [list(row) for row in solution.history] == [columns] * EPOCHS
    assert [row["epoch"] for row in solution.history] == list(range(EPOCHS))
    assert [row["iteration"] for row in solution.history] == [23, 46, 69]
    assert [row["messages"] for row in solution.history] == [0] * EPOCHS
    seconds = [row["seconds"] for row in solution.history]
    assert seconds == sorted(seconds)
    for row in solution.history:
        assert row["eta"] == pytest.approx(0.05 * (1 + math.cos(math.pi * (row["iteration"] - 1) / 69)))
    last, mean_weight = solution.history[-1], float(case.problem().weights_as(torch.float64).mean())
    penalty = case.options().penalty(solution.state.weights.x)
    assert last["objective"] == pytest.approx(last["loss"] * mean_weight + penalty)  # (1/m) Σ w φ + penalty


def test_the_loss_of_an_epoch_is_that_of_each_row_when_it_was_met():
    case = Case("gaussian", batch_size=1, order="cyclic", weighted=True)
    X, y, w = (arrays("gaussian")[name] for name in ("X", "y", "weights"))
    x, b, total = torch.zeros(6, dtype=torch.float64), (w * y).sum() / w.sum(), 0.0
    for i in range(M):
        r = X[i] @ x + b - y[i]
        total += float(w[i] * r**2 / 2)
        x, b = x - 0.03 * (w[i] * r * X[i] + 0.1 * x), b - 0.03 * w[i] * r
    for solver in SOLVERS:
        solution = solve(case.problem(), case.options(solver, max_iter=1))
        assert solution.history[0]["loss"] == pytest.approx(total / float(w.sum()), rel=1e-12)
        assert distance(solution.state.weights.x[0], x) < 1e-12
        assert float(solution.state.intercept) == pytest.approx(float(b), rel=1e-12)


def test_what_ran_is_told():
    case = Case("bernoulli")
    slow = case.problem(family=plain(FAMILIES["bernoulli"]))
    assert solve(case.problem(), case.options("sgd")).ran == "sgd, compiled, fp64"
    assert solve(slow, case.options("sgd")).ran == "sgd, torch, fp64"
    assert solve(case.problem(), case.options("ca_sgd", 4)).ran == "ca_sgd s=4, compiled recurrence, fp64"
    assert solve(slow, case.options("ca_sgd", 4, torch.float32)).ran == "ca_sgd s=4, torch recurrence, fp32"
    low = case.options("sgd", dtype=torch.float32, recipe="D")
    assert solve(case.problem(torch.bfloat16), low).ran == "sgd, torch, D"


@pytest.mark.parametrize("n", [20, 800])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_auto_is_newton_where_columns_are_few_or_on_a_gpu_and_nothing_of_sgd_is_asked_for(device, n):
    """The device need not be there: X is not looked at."""
    X, rows = torch.zeros(1, 1).expand(900, n), np.arange(900)
    whole = Problem(DenseColumns(X), FAMILIES["gaussian"], torch.zeros(900))
    held_back = replace(whole, rows=rows[:800], validation=rows[800:])
    whole.columns.device = torch.device(device)

    def chosen(problem=whole, comm=COMM, **changes):
        return resolve(FitOptions(**changes), problem, comm, eta0=0.1).solver

    newton = "newton" if device == "cuda" or n == 20 else "sgd"
    assert [chosen(**one) for one in ({}, {"recipe": "fp32"}, {"recipe": "fp64"}, {"alpha": 0.0})] == [newton] * 4
    other = "ca_sgd" if device == "cuda" and n == 800 else "sgd"
    for one in ({"recipe": "C"}, {"tol": -1.0}, {"eta0": 0.2}, {"momentum": 0.9}, {"s": 4}):
        assert chosen(**one) == other, one
    assert chosen(l1_ratio=0.5) == ("newton" if (device, n) == ("cpu", 20) else other)
    assert chosen(held_back) == other
    assert chosen(comm=Communicator(0, 2)) == "ca_sgd"
    assert [chosen(solver=solver) for solver in ("newton", *SOLVERS)] == ["newton", *SOLVERS]


# --- odd sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(("m", "n", "batch_size"), [(1, 1, 1), (1, 3, 8), (5, 0, 2), (3, 40, 2), (2, 2, 10**10)])
def test_small_and_odd_problems(solver, layout, m, n, batch_size):
    g = torch.Generator().manual_seed(0)
    X, y = torch.randn(m, n, generator=g, dtype=torch.float64), torch.randn(m, generator=g, dtype=torch.float64)
    settings = Case("gaussian", momentum=0.5, average=1).options(solver, s=4, batch_size=batch_size, max_iter=4)
    states = [
        solve(Problem(stored(X, layout, torch.float64), family, y), settings).state
        for family in (FAMILIES["gaussian"], plain(FAMILIES["gaussian"]))
    ]
    assert states[0].coef.shape == (1, n)
    for name, value in vectors(states[0]).items():
        assert distance(value, vectors(states[1])[name]) < 1e-12
        assert value.isfinite().all()


# --- law 9: stop, reload, go on ---------------------------------------------------------------------------------------

RESUMED = [
    Case("bernoulli", batch_size=1, schedule="cosine"),
    Case("poisson", layout="sparse", batch_size=1, weighted=True, offset=True),
    Case("multinomial3", momentum=0.9, average=10, order="replacement", batch_size=1),
    Case("gaussian", schedule="adaptive", layout="sparse", momentum=0.9, batch_size=4),
    Case("gaussian", schedule="adaptive", l1_ratio=0.5, average=0, batch_size=4),
]


def reload(state: State) -> State:
    """Through JSON and copies of the arrays, as a file would have it."""
    tensors = {name: t.clone() for name, t in state.tensors().items()}
    return State.restore(tensors, json.loads(json.dumps(state.numbers())))


def test_a_state_survives_a_file():
    case = Case("multinomial3", momentum=0.9, average=2, schedule="adaptive")
    for intercept in (True, False):
        solution = solve(case.problem(), case.options(fit_intercept=intercept))
        again = reload(solution.state)
        assert same_bits(again, solution.state)
        assert again.weights.intercept.fitted == intercept
        assert again.weights.x.data_ptr() != solution.state.weights.x.data_ptr()
    fresh = begin(case.problem(), case.options())
    assert same_bits(reload(fresh), fresh)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", RESUMED, ids=str)
def test_going_on_is_never_having_stopped(case, solver, dtype):
    problem, settings = case.problem(dtype), case.options(solver, 3, dtype)
    cuts = []
    whole = solve(problem, settings, callbacks=[lambda progress: cuts.append(progress.iteration)]).state
    for cut in {cuts[0], cuts[len(cuts) // 2], cuts[len(cuts) // 3 - 1], cuts[len(cuts) // 3], cuts[-2]}:
        stopped = solve(problem, settings, callbacks=[lambda progress, cut=cut: progress.iteration == cut])
        assert stopped.state.iteration == cut
        assert same_bits(solve(problem, settings, state=reload(stopped.state)).state, whole)


@pytest.mark.parametrize("case", RESUMED[:3], ids=str)
@pytest.mark.parametrize("solver", SOLVERS)
def test_stopping_after_every_segment_is_never_having_stopped(case, solver):
    problem, settings = case.problem(), case.options(solver, 5)
    whole = solve(problem, settings).state
    state = begin(problem, settings)
    while state.epoch < settings.max_iter:
        state = reload(solve(problem, settings, state=state, callbacks=[lambda progress: True]).state)
    assert same_bits(state, whole)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", RESUMED, ids=str)
def test_how_an_epoch_is_cut_does_not_matter(monkeypatch, case, solver):
    """Iterates to the last bit; those of sparse SGD and sums of losses to rounding, being summed in other groups."""
    problem, settings, states = case.problem(), case.options(solver, 3), []
    for n_segments in (16, 1, 5, 1000):
        monkeypatch.setitem(solve_module_function.__globals__, "SEGMENTS", n_segments)
        states.append(solve(problem, settings).state)
    exact = not (case.layout == "sparse" and solver == "sgd")
    for other in states[1:]:
        for name, value in other.tensors().items():
            assert (
                torch.equal(value, states[0].tensors()[name])
                if exact
                else torch.allclose(value, states[0].tensors()[name], rtol=1e-12, atol=1e-14)
            )
        losses = [[row["loss"] for row in state.history] for state in (other, states[0])]
        assert losses[0] == pytest.approx(losses[1], rel=1e-13)


def test_an_offset_may_be_a_column():
    problem, settings = Case("poisson", offset=True).problem(), Case("poisson", offset=True).options()
    column = replace(problem, offset=problem.offset.reshape(-1, 1))
    assert torch.equal(solve(problem, settings).state.coef, solve(column, settings).state.coef)


def test_a_checkpoint_of_another_tweedie_power_is_refused(tmp_path):
    """The name of a family alone does not say which loss a fit has."""
    settings, y = FitOptions(solver="sgd", s=1, eta0=0.1, recipe="fp32"), torch.ones(2)
    then, now = (Problem(DenseColumns(torch.ones(2, 1)), Tweedie(power), y) for power in (1.2, 1.8))
    manifest = checkpoint.Manifest(1, checkpoint.fingerprint(then, settings, Communicator()), {}, [])
    own, like = checkpoint.fingerprint(now, settings, Communicator()), begin(now, settings)
    with pytest.raises(checkpoint.OtherSettings, match=r"other tweedie_power: then 1\.2, now 1\.8"):
        checkpoint.restore(tmp_path, manifest, own, like, columns=(0, 1), comm=Communicator())
