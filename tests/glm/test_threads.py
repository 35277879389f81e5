"""The law of threads: what is computed does not depend on how many there are, and everybody's settings come back."""

import threading
from collections import Counter
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse
import torch

from laconic.exchange import Communicator
from laconic.glm import Bernoulli, DenseColumns, FitOptions, Multinomial, Poisson, Problem, SparseColumns, solve
from laconic.glm.ranks import Wire
from laconic.glm.scaling import moments
from laconic.glm.solvers import objective as passes
from laconic.glm.solvers.conjugate_gradients import newton_step
from laconic.glm.solvers.objective import Objective, serve_alone
from laconic.kernels import threads
from laconic.kernels.threads import in_order, serial_libraries

COUNTS = (1, 2, 5)


@pytest.fixture(autouse=True)
def _own_number():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


# --- work in order ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_items", [0, 1, 2, 50])
@pytest.mark.parametrize("n_threads", COUNTS)
def test_results_come_in_the_order_of_the_items(n_threads, n_items):
    assert list(in_order(lambda i: (i, i * i), range(n_items), n_threads)) == [(i, i * i) for i in range(n_items)]


def test_items_are_worked_on_by_so_many_threads_at_once():
    met = threading.Barrier(3, timeout=60)  # with fewer threads nobody would ever pass

    def meet(_):
        met.wait()
        return threading.current_thread().name

    assert len(Counter(in_order(meet, range(9), 3))) == 3


@pytest.mark.parametrize("n_threads", COUNTS)
def test_an_error_is_the_caller_s_and_leaves_nothing_at_work(n_threads):
    begun, ended = Counter(), Counter()

    def fail_at_7(i):
        begun[i] += 1
        try:
            if i == 7:
                raise KeyError("seven")
        finally:
            ended[i] += 1

    with pytest.raises(KeyError, match="seven"):
        list(in_order(fail_at_7, range(1000), n_threads))
    assert begun == ended
    assert len(begun) < 1000


@pytest.mark.parametrize("mode", [False, True])
def test_a_thread_is_in_inference_mode_if_its_caller_is(mode):
    with torch.inference_mode(mode):
        kept = torch.zeros(8)

        def write(i):
            kept[i] = i
            return torch.is_inference_mode_enabled()

        assert set(in_order(write, range(8), 2)) == {mode}
    assert kept.tolist() == list(range(8))


# --- the libraries' own threads ---------------------------------------------------------------------------------------


def products() -> set[int]:
    """Threads of every library of products that is loaded."""
    return {one["num_threads"] for one in threads._blas().info()}


def test_libraries_are_serial_inside_and_as_they_were_behind():
    before = products()
    with serial_libraries() as n:
        assert (n, torch.get_num_threads(), products()) == (3, 1, {1})
        with serial_libraries() as again:
            assert (again, torch.get_num_threads()) == (1, 1)
        assert torch.get_num_threads() == 1
        assert set(in_order(lambda _: torch.get_num_threads(), range(9), n)) == {1}
    assert (torch.get_num_threads(), products()) == (3, before)
    with pytest.raises(KeyError), serial_libraries():
        raise KeyError
    assert (torch.get_num_threads(), products()) == (3, before)


def test_a_thread_that_begins_later_has_torch_s_usual_number():
    list(in_order(abs, range(9), 4))
    found = []
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert found == [3]


def test_of_several_users_the_last_turns_on_the_light():
    """Each would otherwise bring back what it found: the first one's limit."""
    before, both, first_left = products(), threading.Barrier(2, timeout=60), threading.Event()
    seen = []

    def first():
        with serial_libraries():
            both.wait()
            both.wait()
        first_left.set()

    def second():
        both.wait()
        with serial_libraries():
            both.wait()
            first_left.wait(60)
            seen.append(products())

    users = [threading.Thread(target=one) for one in (first, second)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    assert seen == [{1}]
    assert products() == before


# --- fits -------------------------------------------------------------------------------------------------------------


def _problem(kind: str) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 40 if kind == "wide Hessian" else 9))
    z = torch.from_numpy(X[:, 0] + rng.logistic(size=len(X)))
    dense = DenseColumns(torch.from_numpy(X))
    if kind == "sparse":
        return Problem(
            SparseColumns.of(scipy.sparse.csr_matrix(np.where(X > 0.8, X, 0.0))), Bernoulli(), (z > 0).double()
        )
    if kind == "classes":
        X16 = torch.from_numpy(X).bfloat16()
        return Problem(DenseColumns(X16), Multinomial(4), (z.clamp(-1.9, 1.9) + 2).floor())
    if kind == "counts":
        return Problem(dense, Poisson(), z.exp().clamp(max=20).round(), torch.from_numpy(rng.uniform(0.5, 2, len(X))))
    return Problem(dense, Bernoulli(), (z > 0).double())


KINDS = ("dense", "wide Hessian", "classes", "counts", "sparse")


@pytest.fixture
def many_blocks(monkeypatch):
    """Blocks of few rows, as of an X that is not small."""
    monkeypatch.setattr(passes, "ONCE", 0)
    monkeypatch.setattr(passes, "BLOCK_VALUES", 500)
    monkeypatch.setattr(import_module("laconic.glm.solvers.solve"), "ONE_THREAD", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_has_the_same_bits_on_any_number_of_threads(kind, many_blocks):
    problem, found = _problem(kind), []
    for n in COUNTS:
        torch.set_num_threads(n)
        F = Objective(problem, FitOptions(alpha=1e-3, recipe="fp64"), Wire(Communicator()))
        theta = torch.linspace(-1, 1, (F.n + 1) * F.family.n_outputs, dtype=torch.float64).view(-1, F.n + 1)
        point = serve_alone(F.at(theta, curved=True))
        step, gap = serve_alone(newton_step(F, point, 1e-9))
        own = [point.z, point.slope, point.hessian, torch.tensor([point.loss, point.value, gap]), step]
        found.append([*own, *moments(problem.columns)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_blocks_add_up_to_what_all_rows_are_at_once(many_blocks, monkeypatch):
    for kind in KINDS:
        points = []
        for values in (500, 2**19):
            monkeypatch.setattr(passes, "BLOCK_VALUES", values)
            F = Objective(_problem(kind), FitOptions(alpha=1e-3, recipe="fp64"), Wire(Communicator()))
            theta = torch.full((F.family.n_outputs, F.n + 1), 0.1, dtype=torch.float64)
            points.append(serve_alone(F.at(theta, curved=True)))
        few, all_rows = points
        for a, b in ((few.slope, all_rows.slope), (few.hessian, all_rows.hessian), (few.z, all_rows.z)):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-14), kind
        assert few.value == pytest.approx(all_rows.value, rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_has_the_same_bits_on_any_number_of_threads(kind, many_blocks):
    problem, found = _problem(kind), []
    for n in COUNTS:
        torch.set_num_threads(n)
        found.append(solve(problem, FitOptions(alpha=1e-3)).state.coef)
        assert torch.get_num_threads() == n
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_a_fit_in_inference_mode_is_the_same(many_blocks):
    problem = _problem("classes")
    plain = solve(problem, FitOptions(alpha=1e-3)).state.coef
    with torch.inference_mode():
        assert torch.equal(solve(_problem("classes"), FitOptions(alpha=1e-3)).state.coef, plain)


def test_a_small_x_with_many_classes_has_the_same_bits_on_any_number_of_threads():
    """So few values that passes take all rows at once, and so many margins that threads would share the products."""
    g = torch.Generator().manual_seed(0)
    X, y = torch.randn(13_000, 20, generator=g, dtype=torch.float64), torch.randint(0, 25, (13_000,), generator=g)
    found = []
    for n_threads in COUNTS[:2]:
        torch.set_num_threads(n_threads)
        problem = Problem(DenseColumns(X), Multinomial(25), y)
        found.append(solve(problem, FitOptions(solver="newton", recipe="fp64", max_iter=1)).state.coef)
    assert torch.equal(*found)
