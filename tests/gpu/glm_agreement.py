"""Law 8 for Triton kernels: fused CA-SGD and SGD give the iterates of plain SGD in float64, on any device.

See `running` for how these tables are run: `interpreted` under Triton's interpreter, at small sizes; `compiled` on a
GPU, the same and larger ones, and what only a GPU can show.
"""

import copy
import tempfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from running import main

from laconic import CASGDClassifier
from laconic.exchange import Communicator
from laconic.exchange.channel import Channel
from laconic.glm import (
    Bernoulli,
    DenseColumns,
    FitOptions,
    Gaussian,
    Multinomial,
    OneVsRest,
    PinnedColumns,
    Poisson,
    Problem,
    solve,
)
from laconic.glm.ranks import Wire
from laconic.glm.solvers import State, begin
from laconic.glm.solvers.state import segment
from laconic.glm.sweep import path

FAMILIES = {"gaussian": Gaussian(), "bernoulli": Bernoulli(), "poisson": Poisson(), "multinomial": Multinomial(3)}
FAMILIES["one-vs-rest"] = OneVsRest(3)


def problem(family, m, n, *, weights=False, offset=False, dtype=torch.float32, seed=0):
    """A problem whose stored values are exact in `dtype`, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(m, n, generator=generator).div(n**0.5).to(dtype)
    z = X.float() @ torch.randn(n, generator=generator) * 2
    y = {
        "gaussian": z + 0.1 * torch.randn(m, generator=generator),
        "bernoulli": (torch.rand(m, generator=generator) < torch.sigmoid(z)).float(),
        "poisson": torch.poisson(z.div(3).exp(), generator=generator),
        "multinomial": torch.randint(0, 3, (m,), generator=generator).float(),
    }["multinomial" if FAMILIES[family].n_outputs > 1 else family]
    w = torch.randint(0, 4, (m,), generator=generator).float() if weights else None
    o = 0.3 * torch.randn(m, generator=generator) if offset else None
    return Problem(DenseColumns(X), FAMILIES[family], y, w, o)


def settings(solver, s, b, **changes):
    usual = {"alpha": 0.01, "recipe": "fp32", "learning_rate": "invscaling", "eta0": 0.2, "max_iter": 2, "tol": None}
    return FitOptions(**{"solver": solver, "s": s, "batch_size": b, "seed": 3, **usual, **changes})


class Silent(Communicator):
    """Two ranks, one without columns: sums stay what they are, yet every message is prepared and taken apart."""

    def all_reduce(self, v, *, phase=0):
        return lambda: None

    def is_gloo(self, device):
        return self.rank == 0  # rank 0 as over Gloo, rank 1 as over NCCL


def fused(given, how, device, comm=None):
    """Two epochs on the fused kernels, in segments of 3 s batches: state and loss of the last epoch."""
    from laconic.glm.solvers.device import is_supported
    from laconic.glm.solvers.device.blocks import Blocks
    from laconic.glm.solvers.device.iterations import Iterations

    wire = Wire(Communicator() if comm is None else comm, how.precision.gram_wire)
    here = replace(given, columns=DenseColumns(given.columns.X.to(device))).cast(torch.float32)
    kind = Blocks if how.solver == "ca_sgd" else Iterations
    assert is_supported(here, how), "not supported"
    assert kind.suits(here, how, wire), "does not suit"
    state = begin(here, how)
    runner = Blocks(here, how, state, wire) if kind is Blocks else Iterations(here, how, state)
    for epoch in range(how.max_iter):
        state.epoch, state.batch, loss = epoch, 0, 0.0
        order, n = how.order(given.n_rows, epoch), how.n_batches(given.n_rows)
        while state.batch < n:
            part = segment(here, how, state, order, 3 * how.step if how.solver == "ca_sgd" else 7)
            loss += runner.advance(part)
            state.iteration, state.batch = state.iteration + part.n_batches, state.batch + part.n_batches
    return state, loss / given.n_rows


def in_a_sweep(device, family, n_models, shape=(53, 40), tolerance=1e-5, **rest):
    """Models with other penalties and step sizes, on one Gram matrix per block: each is what it is alone."""
    from laconic.glm.solvers.device.blocks import Blocks

    given, how = problem(family, *shape, weights=True), settings("ca_sgd", 4, 5, **rest)
    several = [replace(how, alpha=0.01 * 1.1**j, eta0=0.2 / (1 + j)) for j in range(n_models)]
    here = replace(given, columns=DenseColumns(given.columns.X.to(device))).cast(torch.float32)
    states, n = [begin(here, own) for own in several], given.family.n_outputs
    wide = copy.deepcopy(states[0])
    wide.weights.x = torch.cat([state.weights.x for state in states])
    wide.weights.intercept.value = torch.cat([state.weights.intercept.value for state in states])
    runner = Blocks(here, how, wide, Wire(Communicator()), several)
    alone = [Blocks(here, own, state, Wire(Communicator())) for own, state in zip(several, states, strict=True)]
    for first in (0, 2):
        for state in states:
            state.batch = state.iteration = first * how.step
        order = how.order(given.n_rows, 0)
        parts = [segment(here, own, states[0], order, 2 * how.step) for own in several]
        losses = runner.advance_several(parts)
        expected = [one.advance(part) for one, part in zip(alone, parts, strict=True)]
        assert np.allclose(losses, expected, rtol=1e-5), f"{losses} are not {expected}"
    for j, state in enumerate(states):
        found = wide.weights.x[j * n : (j + 1) * n]
        assert relative(found, state.weights.x.double()) < tolerance, relative(found, state.weights.x.double())
        b = wide.weights.intercept.value[j * n : (j + 1) * n]
        assert relative(b, state.weights.intercept.value.double()) < 1e-4, "intercept"


def reduces(device, rank):
    """With messages, one per block or the Gram matrix ahead, the same iterates."""
    given, how = problem("bernoulli", 53, 40), settings("ca_sgd", 4, 5)
    (alone, _), (found, _) = (fused(given, how, device, comm) for comm in (None, Silent(rank, 2)))
    assert relative(found.coef.cpu(), alone.coef.cpu().double()) < 1e-6


def refused(device, solver):
    """A link code that no kernel knows is an error before a launch, never another family's loss."""
    how = settings(solver, 3, 4)
    for family, code in (("gaussian", 4), ("gaussian", 2), ("multinomial", 3)):
        odd = copy.copy(FAMILIES[family])
        odd.kernel_code = code
        if solver == "ca_sgd" or family == "gaussian":
            with pytest.raises(ValueError, match="link code"):
                fused(replace(problem(family, 20, 7), family=odd), how, device)


def agrees(
    device, family, shape, solver, s, b, tolerance=2e-5, weights=False, offset=False, dtype=torch.float32, **rest
):
    """The iterates after two epochs are those of SGD in float64, and so is the loss."""
    given = problem(family, *shape, weights=weights, offset=offset, dtype=dtype)
    how = settings(solver, s, b, **rest)
    found, loss = fused(given, how, device)
    oracle = replace(how, solver="sgd", recipe="fp64")
    if solver == "ca_sgd" and rest.get("l1_ratio"):
        oracle = replace(oracle, solver="ca_sgd")  # L1 acts once a block
    exact = solve(given, oracle)
    x, b0 = exact.state.coef, exact.state.intercept
    assert relative(found.coef.cpu(), x) < tolerance, f"weights are off by {relative(found.coef.cpu(), x):.2g}"
    assert relative(found.intercept.cpu(), b0) < 10 * tolerance, "intercept"
    expected = exact.history[-1]["loss"] * (1 if given.weights is None else float(given.weights.mean()))
    assert abs(loss - expected) <= 10 * tolerance * abs(expected), f"loss {loss} is not {expected}"


def relative(a, b):
    return float((a.double() - b).norm() / b.norm().clamp(min=1e-6))


def several_blocks(device, k, b, n):
    """Gram matrices of several blocks at once have the bits of each alone, and are the products."""
    from laconic.kernels.gpu.glm import GramPlan, gram, gram_buffer  # Triton decides at its import whether to interpret

    X, rows = torch.randn(5 * k, n, device=device), torch.randperm(5 * k, device=device).int()
    plan, base = GramPlan.of(k, b, n, X.dtype, X.device), torch.tensor(0, device=device)
    assert plan.blocks > 1, "one block only"
    at_once, alone = (gram_buffer(plan.blocks, k, b, 1, X.device) for _ in range(2))
    gram(X, rows, base, 0, plan, b, "fp32", at_once)
    for j in range(plan.blocks):
        gram(X, rows, base, j * k // b, plan, b, "fp32", alone[j : j + 1])
    assert torch.equal(at_once, alone), "bits"
    Y = X[rows[: plan.blocks * k].long()].view(plan.blocks, k, n).double()
    batch = torch.arange(k, device=device) // b
    wrong = at_once[:, :k, :k] - Y @ Y.mT
    assert float(wrong[:, batch[:, None] < batch].abs().max()) < 1e-5 * n, "products"


def interpreted():
    """Every check of the interpreter's table, by name."""
    cases = {}

    def add(name, *arguments, **rest):
        cases[name] = (partial(agrees, **rest), *arguments)

    for family in FAMILIES:
        add(f"blocks {family}", family, (53, 7), "ca_sgd", 3, 4)
        add(f"blocks {family} weights offset", family, (53, 70), "ca_sgd", 4, 5, weights=True, offset=True)
        if FAMILIES[family].n_outputs == 1:
            add(f"iterations {family}", family, (53, 7), "sgd", 1, 4)
            add(f"iterations {family} weights offset", family, (53, 9), "sgd", 1, 5, weights=True, offset=True)
    add("blocks, many parts", "bernoulli", (70, 600), "ca_sgd", 2, 16)
    add("blocks, batches of one", "gaussian", (20, 5), "ca_sgd", 4, 1)
    no_intercept = {"gradient": "sum", "fit_intercept": False, "alpha": 0.0, "learning_rate": "constant", "eta0": 0.05}
    add("blocks, sum, no intercept", "gaussian", (40, 5), "ca_sgd", 8, 2, **no_intercept)
    add("blocks, L1", "bernoulli", (53, 7), "ca_sgd", 3, 4, l1_ratio=0.01)
    add("blocks C", "bernoulli", (53, 40), "ca_sgd", 4, 4, 2e-2, dtype=torch.bfloat16, recipe="C")
    add("blocks D", "poisson", (53, 40), "ca_sgd", 4, 4, 4e-2, dtype=torch.bfloat16, recipe="D")
    add("iterations, L1 momentum average", "bernoulli", (53, 7), "sgd", 1, 4, l1_ratio=0.01, momentum=0.5, average=12)
    add("iterations C", "bernoulli", (53, 40), "sgd", 1, 4, 2e-2, dtype=torch.bfloat16, recipe="C")
    cases["blocks, unknown link codes"] = (refused, "ca_sgd")
    cases["iterations, unknown link codes"] = (refused, "sgd")
    cases["several blocks at once"] = (several_blocks, 24, 4, 200)
    cases["both in one message"] = (reduces, 0)
    cases["the Gram matrix ahead of time"] = (reduces, 1)
    for family, n_models in (("bernoulli", 3), ("poisson", 17), ("multinomial", 2), ("multinomial", 11)):
        cases[f"{n_models} models at once, {family}"] = (in_a_sweep, family, n_models)
    cases["17 models at once, L1"] = (partial(in_a_sweep, l1_ratio=0.1), "bernoulli", 17)
    add("one batch", "gaussian", (4, 3), "ca_sgd", 4, 8)
    add("with replacement", "gaussian", (33, 3), "ca_sgd", 2, 4, sampling="replacement")
    return cases


def on_device(given, device, pinned=False):
    columns = PinnedColumns(given.columns.X, device) if pinned else DenseColumns(given.columns.X.to(device))
    return replace(given, columns=columns)


def in_float64(device, family):
    """Plain torch on the GPU: CA-SGD's iterates are those of SGD on the CPU to 1e-12."""
    given, how = problem(family, 203, 31, weights=True, offset=True), settings("ca_sgd", 8, 5, recipe="fp64")
    found, exact = solve(on_device(given, device), how), solve(given, replace(how, solver="sgd"))
    assert "torch" in found.ran, found.ran
    assert relative(found.state.coef.cpu(), exact.state.coef) < 1e-12


def a_path(device, family, n, tolerance=1e-4, **changes):
    """A sweep by `path`: every model is that of its own fit, whether kernels know it or not."""
    given, how = (
        on_device(problem(family, 5003, n, dtype=torch.bfloat16), device),
        settings("ca_sgd", 16, 32, **changes),
    )
    alphas = [0.01 * 2**j for j in range(9)]
    for alpha, fit in zip(alphas, path(how, given, Communicator(), alphas=alphas), strict=True):
        alone = solve(given, replace(how, alpha=alpha))
        assert fit.solution.ran.split(", ")[1] == "9 models at once", fit.solution.ran
        assert fit.solution.outcome is alone.outcome, (fit.solution.outcome, alone.outcome)
        assert relative(fit.solution.state.coef, alone.state.coef.double()) < tolerance


def newton_together(device, family, n):
    """The default on a GPU: Newton fits of a path share their passes, and end where those on the CPU do."""
    given, alphas = problem(family, 5003, n, weights=True, dtype=torch.bfloat16), [1e-6 * 10**j for j in range(6)]
    for alpha, fit in zip(alphas, path(FitOptions(), on_device(given, device), alphas=alphas), strict=True):
        least = solve(given, FitOptions(solver="newton", alpha=alpha)).history[-1]["objective"]
        assert fit.solution.converged
        assert fit.solution.ran.startswith("newton"), fit.solution.ran
        assert abs(fit.solution.history[-1]["objective"] - least) <= 1e-4 * abs(least)


def momentum_and_average(device):
    """What the fused blocks do not know runs in plain torch."""
    given, how = problem("bernoulli", 203, 31), settings("ca_sgd", 8, 5, momentum=0.5, average=15)
    found = solve(on_device(given, device), how)
    assert "torch" in found.ran, found.ran
    exact = solve(given, replace(how, solver="sgd", recipe="fp64"))
    assert relative(found.state.coef.cpu(), exact.state.coef) < 2e-5


def resumes(device, solver):
    """Stopped after an epoch and gone on with from its numbers and tensors: the same bits."""
    given, how = on_device(problem("bernoulli", 5003, 60), device), settings(solver, 16, 32)
    whole = solve(given, how)
    assert "fused" in whole.ran, whole.ran
    half = solve(given, replace(how, max_iter=1)).state
    again = solve(given, how, state=State.restore(half.tensors(), half.numbers()))
    assert torch.equal(whole.state.coef, again.state.coef)
    assert torch.equal(whole.state.intercept, again.state.intercept)


def the_same_each_time(device):
    given, how = on_device(problem("bernoulli", 20_003, 700, dtype=torch.bfloat16), device), settings("ca_sgd", 16, 32)
    first = solve(given, how).state.coef
    assert all(torch.equal(first, solve(given, how).state.coef) for _ in range(3))


def pinned_is_resident(device, solver, n):
    """Rows from the host's memory, in buffers filled ahead, give the same bits as rows that are there."""
    given, how = problem("bernoulli", 70_003, n, dtype=torch.bfloat16), settings(solver, 16, 32, recipe="C")
    here, there = (solve(on_device(given, device, pinned), how) for pinned in (False, True))
    assert "fused" in there.ran, there.ran
    assert torch.equal(here.state.coef, there.state.coef)


def as_large_as_they_come(device, b, s):
    """Blocks of 1024 rows, and s cut to what fits, against the solver on the CPU."""
    given, how = problem("bernoulli", 4096, 300, dtype=torch.bfloat16), settings("ca_sgd", s, b, recipe="C")
    found, exact = solve(on_device(given, device), how), solve(given, how)
    assert "fused" in found.ran, found.ran
    assert relative(found.state.coef.cpu(), exact.state.coef.double()) < 2e-3


def through_nccl(device):
    """One rank that is told it is two, so that every message is sent, through a graph: as alone, up to rounding."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", f"file://{folder}/store", world_size=1, rank=0)
        given, how = on_device(problem("bernoulli", 20_003, 100), device), settings("ca_sgd", 8, 32)
        reduced = solve(given, how, comm=Communicator(0, 2, (Channel(dist.group.WORLD, 0, 2, gloo=frozenset()),)))
        dist.destroy_process_group()
    alone = solve(given, how)
    assert reduced.messages > 2 * 20_003 // 32 // 8
    assert relative(reduced.state.coef, alone.state.coef.double()) < 1e-5


def estimators(device, n):
    """NumPy with device="cuda", and a tensor that lies there, give one model, near the one of the CPU."""
    given = problem("bernoulli", 5003, n)
    X, y = given.columns.X.numpy(), given.y.numpy()
    options = {"max_iter": 3, "tol": None, "random_state": 0, "eta0": 0.2, "learning_rate": "constant", "recipe": "C"}
    here = CASGDClassifier(**options, solver="sgd").fit(X, y)
    there = CASGDClassifier(**options, device=device).fit(X, y)
    tensor = CASGDClassifier(**options).fit(given.columns.X.to(device), given.y.to(device))
    assert "fused" in there.ran_, there.ran_
    assert np.array_equal(there.coef_, tensor.coef_)
    assert relative(torch.from_numpy(there.coef_), torch.from_numpy(here.coef_).double()) < 1e-2
    assert tensor.predict_proba(given.columns.X.to(device)).device.type == "cuda"
    assert tensor.score(given.columns.X.to(device), y) == there.score(X, y)


def compiled():
    """Every check of the GPU's table, by name."""
    cases = interpreted()
    for family in FAMILIES:
        cases[f"in float64, {family}"] = (in_float64, family)
        cases[f"a path, {family}"] = (a_path, family, 300)
        cases[f"a path by Newton's method, {family}"] = (newton_together, family, 300)
        cases[f"large {family}"] = (agrees, family, (20_011, 500), "ca_sgd", 16, 32)
        cases[f"many columns and models, {family}"] = (in_a_sweep, family, 40, (200, 20_000))
    cases["iterations, large"] = (agrees, "poisson", (20_011, 100), "sgd", 1, 32)
    cases["batches of 64"] = (as_large_as_they_come, 64, 8)
    cases["blocks of 1024 rows"] = (as_large_as_they_come, 32, 32)
    cases["blocks cut to what fits"] = (as_large_as_they_come, 32, 1000)
    cases["momentum and average"] = (momentum_and_average,)
    for solver, n in (("ca_sgd", 700), ("sgd", 60)):
        cases[f"resume, {solver}"] = (resumes, solver)
        cases[f"pinned, {solver}"] = (pinned_is_resident, solver, n)
    cases["the same each time"] = (the_same_each_time,)
    cases["a path with momentum"] = (partial(a_path, momentum=0.5), "bernoulli", 40)
    cases["a path until it converges"] = (partial(a_path, tol=1e-3, max_iter=20, eta0="auto"), "multinomial", 40, 1e-2)
    cases["through NCCL"] = (through_nccl,)
    cases["estimators, few columns"] = (estimators, 20)
    cases["estimators, many columns"] = (estimators, 300)
    return cases


if __name__ == "__main__":
    main({"cpu": interpreted, "cuda": compiled})
