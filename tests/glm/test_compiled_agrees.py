"""Law 5 for the solvers: the compiled kernels say what plain torch says."""

from importlib import import_module
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glm.tables import (
    FAMILIES,
    TOLERANCE,
    Case,
    assert_same_iterates,
    assert_same_losses,
    fit,
    in_turn,
    plain,
    stored,
)
from laconic.glm import DenseColumns, FitOptions, Precision, Problem, SparseColumns, begin, recipe, solve
from laconic.glm.rows import DenseRows, StoredRows, array_product
from laconic.kernels.cpu.links import residuals as compiled_residuals
from laconic.kernels.cpu.recurrence import recurrence as compiled_recurrence
from laconic.kernels.cpu.sgd import finish_margins, to_bfloat16
from laconic.kernels.formats import FORMATS
from laconic.kernels.glm import Block, Intercept, LinkCode, triangle_size
from laconic.kernels.reference.recurrence import recurrence as reference_recurrence

STORED = {"fp64": (torch.float64, torch.float64), "fp32": (torch.float32, torch.float32)}
STORED["bf16 data"] = (torch.bfloat16, torch.float32)


@pytest.mark.parametrize(("case", "kind"), in_turn(*STORED))
def test_the_solvers_agree(case, kind):
    stored_as, carrier = STORED[kind]
    for solver in ("sgd", "ca_sgd"):
        settings = case.options(solver, 5, carrier)
        fast, fast_ends = fit(case.problem(stored_as), settings)
        slow, slow_ends = fit(case.problem(stored_as, family=plain(FAMILIES[case.family])), settings)
        assert "compiled" in fast.ran
        assert "compiled" not in slow.ran
        assert_same_iterates(fast_ends, slow_ends, TOLERANCE[carrier])
        assert_same_losses(fast.history, slow.history, TOLERANCE[carrier])


@pytest.mark.parametrize("solver", ["sgd", "ca_sgd"])
@pytest.mark.parametrize("stored_as", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_sparse_is_dense(solver, stored_as):
    """Also where the compiled loop does not know the stored type, and with an L1 penalty."""
    carrier = torch.float64 if stored_as == torch.float64 else torch.float32
    for options in ({"family": "poisson", "weighted": True}, {"momentum": 0.9, "average": 2, "l1_ratio": 0.5}):
        cases = [Case(**options, layout=layout) for layout in ("sparse", "dense")]
        settings = cases[0].options(solver, 5, carrier)
        ends = [fit(case.problem(stored_as), settings)[1] for case in cases]
        assert_same_iterates(*ends, TOLERANCE[carrier])


def test_the_scale_of_sparse_weights_may_vanish():
    """An L2 shrinkage of 1 − η λ = 0, a negative one, and many that together leave nothing of the scale."""
    for alpha in (10.0, 19.0, 9.0):  # eta0 is 0.1
        case = Case("gaussian", layout="sparse", alpha=alpha)
        (_, fast), (_, slow) = (
            fit(case.problem(family=family), case.options())
            for family in (FAMILIES["gaussian"], plain(FAMILIES["gaussian"]))
        )
        assert_same_iterates(fast, slow, 1e-12)


def block(n_outputs: int, sizes: list[int], dtype: torch.dtype, family: str, *, momentum, average, l2) -> Block:
    """Batches of the given sizes over random rows, some of weight 0."""
    g = torch.Generator().manual_seed(sum(sizes) + n_outputs)
    cuts = np.append(0, np.cumsum(sizes))
    k, s = int(cuts[-1]), len(sizes)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype) / 3

    w = torch.rand(k, generator=g).to(dtype)
    w[::4] = 0
    y = torch.randint(2, (k,), generator=g).to(dtype)
    return Block(
        cuts=cuts,
        margins=normal(k, n_outputs),
        momenta=normal(k, n_outputs) if momentum else torch.empty(k, 0, dtype=dtype),
        triangle=normal(triangle_size(cuts)),
        y=y,
        w=w,
        offset=normal(k, n_outputs),
        rates=0.1 / np.arange(1, s + 1),
        scales=1.0 / np.array(sizes),
        mix=1.0 / np.arange(1, s + 1) if average else np.empty(0),
        l2=l2,
        momentum=momentum,
    )


STEPS = [(0.0, False, 0.0), (0.9, False, 0.1), (0.0, True, 0.1), (0.9, True, 0.0)]
"""Momentum, whether averaged, and L2 penalty."""


@pytest.mark.parametrize("sizes", [[1], [3], [2, 2, 1], [1] * 9, [4, 1]], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_recurrences_agree(family, sizes):
    for step, fitted, dtype in product(STEPS, (True, False), (torch.float64, torch.float32)):
        same_recurrence(family, sizes, *step, fitted, dtype)


def same_recurrence(family, sizes, momentum, average, l2, fitted, dtype):
    link = FAMILIES[family]
    n_outputs = link.n_outputs
    given_block = block(n_outputs, sizes, dtype, family, momentum=momentum, average=average, l2=l2)
    own = [Intercept(*(torch.full((n_outputs,), v, dtype=dtype) for v in (0.3, 0.2, 0.1)), fitted) for _ in range(2)]
    fast = compiled_recurrence(given_block, link.kernel_code, own[0])
    carrier = FORMATS["fp64" if dtype == torch.float64 else "fp32"]
    slow = reference_recurrence(given_block, link, own[1], carrier, carrier)
    tolerance = {torch.float64: 1e-13, torch.float32: 2e-6}[dtype]
    np.testing.assert_allclose(fast.A, slow.A, atol=1e-15)
    used = [0, 1, 2] if average else [0, 1]
    rows = used if momentum else [row for row in used if row != 1]  # without momentum nobody reads u
    assert torch.allclose(fast.p[rows], slow.p[rows], rtol=tolerance, atol=tolerance)
    assert abs(fast.loss - slow.loss) <= tolerance * max(1, abs(slow.loss))
    for name in ("value", "momentum", "average"):
        assert torch.allclose(getattr(own[0], name), getattr(own[1], name), rtol=tolerance, atol=tolerance)
    if not fitted:
        assert (own[0].value == 0.3).all()
    assert (fast.p[1][:, given_block.w == 0] == 0).all() or l2 or momentum


# --- bfloat16 margins -------------------------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1) | st.sampled_from([0x7FFF, 0x8000, 0x8001]))
def test_to_bfloat16_is_torch_s_cast(high, low):
    x = np.array([high << 16 | low], dtype=np.uint32).view(np.float32)
    ours = np.float32(to_bfloat16(x[0]))
    theirs = FORMATS["bf16"].round(torch.from_numpy(x)).numpy()[0]
    assert (np.isnan(ours) and np.isnan(theirs)) or ours.tobytes() == theirs.tobytes()


def test_to_bfloat16_at_the_edges():
    """Ties, both sides of them, overflow to infinity, subnormal numbers, signed zeros, NaN."""
    high = np.array([0x0000, 0x0001, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC0, 0xFF7F, 0x8000, 0xBF81], np.uint32) << 16
    for low in (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = (high | np.uint32(low)).view(np.float32)
        theirs = FORMATS["bf16"].round(torch.from_numpy(x)).numpy()
        ours = np.array([to_bfloat16(value) for value in x], np.float32)
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(np.signbit(ours)[~np.isnan(x)], np.signbit(theirs)[~np.isnan(x)])


def test_margins_are_rounded_before_offset_and_intercept():
    z = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    rounded, offset, b = FORMATS["bf16"].round(z), torch.full((40, 2), 1 / 3), torch.tensor([0.1, 0.7])
    mine = z.clone()
    finish_margins(mine.numpy(), np.arange(40), np.empty((0, 2), np.float32), np.zeros(2, np.float32), True)
    assert torch.equal(mine, rounded)
    mine = z.clone()
    finish_margins(mine.numpy(), np.arange(40), offset.numpy(), b.numpy(), True)
    assert torch.equal(mine, rounded + b + offset)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_narrow_margins_of_whole_numbers_agree_to_the_last_bit(layout):
    """Sums of small whole numbers are exact in any order, so both paths round the same margins."""
    g = torch.Generator().manual_seed(3)
    X = torch.randint(-40, 40, (64, 8), generator=g).double()
    y = torch.randint(-300, 300, (64,), generator=g).double()
    case = Case("gaussian", alpha=0.0, intercept=False, batch_size=32)
    settings = case.options(dtype=torch.float32, recipe=Precision(margin="bf16"), max_iter=1)
    losses = []
    for family in (FAMILIES["gaussian"], plain(FAMILIES["gaussian"])):
        problem = Problem(stored(X, layout, torch.float32), family, y, rows=np.arange(32))
        state = begin(problem, settings)
        state.weights.x.copy_(torch.arange(1.0, 9.0)[None])
        losses.append(solve(problem, settings, state=state).history[0]["loss"])
    z = X[:32] @ torch.arange(1.0, 9.0).double()
    expected = float((FORMATS["bf16"].round(z.float()).double() - y[:32]).square().mean() / 2)
    assert losses[0] == losses[1] == expected
    assert expected != float((z - y[:32]).square().mean() / 2)


# --- products of sparse rows ------------------------------------------------------------------------------------------

SHAPES = [(1, 1), (7, 5), (12, 1), (9, 40), (5, 0)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("density", [0.0, 0.1, 0.3, 1.0])
def test_products_of_sparse_rows(m, n, density, dtype):
    g = torch.Generator().manual_seed(m + n)
    X = (torch.randn(m, n, generator=g) * (torch.rand(m, n, generator=g) < density)).to(dtype)
    rows = np.array([m - 1, 0, m // 2, 0, m - 1, m // 3, 0])  # out of order, and again and again
    p = recipe("fp64" if dtype == torch.float64 else "fp32")
    sparse = SparseColumns.of(scipy.sparse.csr_matrix(X.numpy()), dtype).take(rows, dtype)
    dense = DenseColumns(X).take(rows, dtype)
    close = {"rtol": 100 * torch.finfo(dtype).eps, "atol": 100 * torch.finfo(dtype).eps}
    x = torch.randn(3, n, generator=g).to(dtype)
    assert torch.allclose(sparse.margins(x), dense.margins(x), **close)
    coefficients = torch.randn(3, len(rows), generator=g).to(dtype)
    assert torch.allclose(sparse.combine(coefficients, p), dense.combine(coefficients, p), **close)
    h, a = torch.randn(len(rows), 2, generator=g).to(dtype), torch.cat([X[rows], X.new_ones(len(rows), 1)], 1)
    for add, by in (("add_gram", torch.diag_embed(h)), ("add_outer", h[:, :, None] * h[:, None])):
        grams = torch.zeros(2, 2, n + 1, 2, n + 1, dtype=dtype)
        for taken, total in zip((sparse, dense), grams, strict=True):
            getattr(taken, add)(h, total)
            assert torch.allclose(total, torch.einsum("icd,ij,ik->cjdk", by, a, a), **close)
    for cuts in ([0, 7], [0, 3, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7], [0, 5, 7]):
        triangles = [torch.full((triangle_size(np.array(cuts)),), torch.nan, dtype=dtype) for _ in range(2)]
        for taken, out in zip((sparse, dense), triangles, strict=True):
            taken.gram(np.array(cuts), p, out)
        assert torch.allclose(*triangles, **close)
        G = X[rows].double() @ X[rows].double().T
        expected = [G[cuts[j] : cuts[j + 1], : cuts[j]].flatten() for j in range(len(cuts) - 1)]
        assert torch.allclose(triangles[1].double(), torch.cat(expected), **close)


@pytest.mark.parametrize(
    "sizes", [[300], [1] * 300, [50] * 7, [130, 200, 3], [128, 128, 1], [3, 127, 1, 128, 40]], ids=str
)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_long_triangles_to_the_last_bit(layout, sizes):
    """Whole numbers, so that no order of summation can be seen."""
    cuts = np.append(0, np.cumsum(sizes))
    X = torch.randint(-3, 4, (int(cuts[-1]), 11), generator=torch.Generator().manual_seed(1)).double()
    out = torch.full((triangle_size(cuts),), torch.nan)
    stored(X, layout, torch.float32).take(np.arange(len(X)), torch.float32).gram(cuts, recipe("fp32"), out)
    G = X @ X.T
    assert torch.equal(out.double(), torch.cat([G[a:b, :a].flatten() for a, b in pairwise(cuts)]))


def test_no_rows_at_all():
    X = torch.randn(4, 3)
    for columns in (DenseColumns(X), stored(X, "sparse", torch.float32)):
        taken = columns.take(np.empty(0, np.int64), torch.float32)
        assert taken.margins(torch.ones(2, 3)).shape == (0, 2)
        assert torch.equal(taken.combine(torch.ones(2, 0), recipe("fp32")), torch.zeros(2, 3))
        assert columns.margins(torch.ones(2, 3), np.empty(0, np.int64)).shape == (0, 2)


REFUSED = [
    ("gaussian", 5, "no kernel knows the link code 5; known are GAUSSIAN = 0, BERNOULLI = 1"),
    ("gaussian", -1, "no kernel knows the link code -1"),
    ("gaussian", LinkCode.MULTINOMIAL, "MULTINOMIAL takes margins of several outputs, got 1"),
    ("multinomial3", LinkCode.POISSON, "POISSON takes margins of one output, got 3"),
]


@pytest.mark.parametrize("solver", ["sgd", "ca_sgd"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize(("name", "code", "message"), REFUSED)
def test_a_link_code_that_no_kernel_knows_is_refused(name, code, message, layout, solver):
    """Before a kernel runs, and never taken for another family's."""
    case, odd = Case(name, layout=layout), plain(FAMILIES[name])
    odd.kernel_code = code
    with pytest.raises(ValueError, match=message):
        solve(case.problem(family=odd), case.options(solver))


def test_a_family_without_a_link_code_is_refused_by_kernels():
    given_block = block(1, [2, 2], torch.float64, "gaussian", momentum=0.0, average=False, l2=0.0)
    intercept = Intercept(*torch.zeros(3, 1, dtype=torch.float64))
    with pytest.raises(ValueError, match="link code None"):
        compiled_recurrence(given_block, None, intercept)


def test_a_kernel_takes_no_unknown_link_code_for_the_last_one():
    z, y, w, r = (np.ones(shape) for shape in ((2, 1), 2, 2, (2, 1)))
    assert np.isnan(compiled_residuals(len(LinkCode), z, y, w, r))
    assert np.isnan(r).all()


# --- dense rows as they are stored ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored_as", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("k", "n"), [(0, 3), (1, 1), (3, 5), (4, 33), (7, 64), (65, 2), (1030, 65)])
def test_products_of_rows_as_stored_are_those_of_widened_rows(k, n, stored_as):
    g = torch.Generator().manual_seed(k + n)
    Y = (1e3 * torch.randn(k, n, generator=g)).to(stored_as)
    fast, slow = StoredRows(Y), DenseRows(Y.double())
    for C in (1, 3):
        x, p = (torch.randn(C, size, generator=g, dtype=torch.float64) for size in (n, k))
        assert torch.allclose(fast.margins(x), slow.margins(x), rtol=1e-12, atol=1e-9)
        totals = [torch.ones(n, C, dtype=torch.float64).T for _ in range(2)]
        for rows, total in zip((fast, slow), totals, strict=True):
            rows.add_combination(p, None, total)
        assert torch.allclose(*totals, rtol=1e-12, atol=1e-9)
    sums = [torch.ones(2, n, dtype=torch.float64) for _ in range(2)]
    for rows, own in zip((fast, slow), sums, strict=True):
        rows.add_moments(x[0], *own)
    assert torch.allclose(*sums, rtol=1e-12, atol=1e-9)
    assert torch.equal(fast.dense(), slow.dense())
    assert torch.equal(fast.squared().Y, slow.squared().Y)
    assert torch.equal(Y, StoredRows(Y).Y)


class Refusing(np.ndarray):
    """Takes no part in NumPy's products."""

    __array_ufunc__ = None


def test_products_on_several_threads_are_torch_s():
    """Threads of two libraries take each other's cores: fits took ten times as long as on one thread."""
    a, b, before = np.ones((3, 4)), np.full((4, 2), 2.0), torch.get_num_threads()
    torch.set_num_threads(2)
    found = array_product(a.view(Refusing), b)
    torch.set_num_threads(before)
    assert found.tolist() == (a @ b).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_newton_on_rows_as_stored_is_newton_on_widened_rows(family, monkeypatch):
    """Also where it begins with a part of them, which is the same part either way."""
    case = Case(family, weighted=True, offset=True)
    found = []
    for values in (2**22, 0):
        monkeypatch.setattr("laconic.glm.columns.COMPILED_VALUES", values)
        for name in ("SAMPLE_FROM", "SAMPLED_ROWS"):
            monkeypatch.setattr(import_module("laconic.glm.solvers.solve"), name, 0)
        problem = case.problem(torch.float32, rows=np.arange(3, 90))
        found.append(solve(problem, FitOptions(solver="newton", recipe="fp64", alpha=0.01)).state.coef)
    assert torch.allclose(*found, rtol=1e-9, atol=1e-10)


def test_a_part_of_the_rows_is_the_problem_with_these_rows():
    case = Case("poisson", weighted=True, offset=True)
    for layout, rows in product(("dense", "sparse"), (None, np.arange(5, 80))):
        problem = Case("poisson", weighted=True, offset=True, layout=layout).problem(rows=rows)
        own = np.arange(case.problem().columns.m) if rows is None else rows
        kept = np.array([0, 2, 3, 30])
        taken, named = problem.taken(kept), case.problem(rows=own[kept])
        fits = [solve(one, FitOptions(solver="newton", recipe="fp64", alpha=0.1)).state.coef for one in (taken, named)]
        assert torch.allclose(*fits, rtol=1e-9)
