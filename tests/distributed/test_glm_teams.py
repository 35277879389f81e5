"""Teams of ranks: a step of all teams is the mean of their steps; all hold the same bits; one team is no team."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse
import torch

from glm.tables import ALL_FAMILIES, Case, M, N, arrays, distance, fit
from laconic import CASGDClassifier
from laconic.exchange import Communicator
from laconic.glm import begin, solve
from laconic.glm.problem import make_problem
from laconic.glm.solvers import Diverged

CASES = [
    Case("gaussian", batch_size=9),
    Case("bernoulli", layout="sparse", schedule="cosine", offset=True, batch_size=5),
    Case("multinomial3", weighted=True, intercept=False, batch_size=9),
    Case("poisson", order="cyclic", gradient="sum", batch_size=15),
]
CODECS = ["fp32", "bf16", "nuqsgd-4", "qsgdinf-8", "dithered-0.3", "rotated-4", "nuqsgd-4-rans", "ef-sign"]


def of_team(case, options, comm):
    """This team's rows of its rank's columns."""
    cuts, data = [N * r // comm.size for r in range(comm.size + 1)], arrays(case.family)
    X = data["X"][:, cuts[comm.rank] : cuts[comm.rank + 1]]
    X = scipy.sparse.csr_matrix(X.numpy()) if case.layout == "sparse" else X
    more = {"offset": data["offset"] if case.offset else None, "first": cuts[comm.rank], "n_features": N}
    weights = data["weights"] if case.weighted else None
    return make_problem(options, X, ALL_FAMILIES[case.family], data["y"], weights, comm=comm, **more)


def fit_teams(group, case, solver, s, changes):
    """Vectors at each epoch's end, history without what is a rank's own, what ran, and how many messages."""
    options = case.options(solver, s, **changes)
    comm = Communicator.over(group).split(options.teams)
    solution, ends = fit(of_team(case, options, comm), options, comm=comm)
    shared = [{name: v for name, v in row.items() if name not in ("seconds", "bytes_sent")} for row in solution.history]
    return ends, shared, solution.ran, solution.messages


def joined(ranks, epoch, name="x"):
    """Of the ranks of a team; each has its intercept as last column."""
    parts = [ends[epoch][name] for ends, *_ in ranks]
    return torch.cat([part[:, :-1] for part in parts] + [parts[0][:, -1:]], 1)


def mean_of_steps(case, options, teams):
    """x and b (C, n + 1) at each epoch's end: every team steps from the same weights, and these are averaged."""
    family, data = ALL_FAMILIES[case.family], arrays(case.family)
    X, y, w = data["X"], data["y"], data["weights"] if case.weighted else torch.ones(M, dtype=torch.float64)
    w, offset = w / w.mean(), data["offset"][:, None] if case.offset else torch.zeros(M, 1, dtype=torch.float64)
    shares = [torch.arange(t, M, teams) for t in range(teams)]
    starts = [begin(of_team(case, options, _Team(t, teams)), options).intercept for t in range(teams)]
    x, b = torch.zeros(family.n_outputs, N, dtype=torch.float64), torch.stack(starts).mean(0)
    ends, iteration, n = [], 0, len(shares[-1])
    for epoch in range(options.max_iter):
        orders = [share[torch.from_numpy(options.order(len(share), epoch)).long()[:n]] for share in shares]
        for batches in zip(*(order.split(options.batch_size) for order in orders), strict=True):
            eta = float(options.rates(np.array([iteration]), n)[0])
            moved = []
            for rows in batches:
                at = [x.clone().requires_grad_(), b.clone().requires_grad_()]
                loss = (w[rows] * family.loss(X[rows] @ at[0].T + at[1] + offset[rows], y[rows])).sum()
                loss = loss / (len(rows) if options.gradient == "mean" else 1) + options.l2 / 2 * at[0].square().sum()
                moved.append([old - eta * g for old, g in zip((x, b), torch.autograd.grad(loss, at), strict=True)])
            x = torch.stack([one[0] for one in moved]).mean(0)
            b = torch.stack([one[1] for one in moved]).mean(0) if options.fit_intercept else b
            iteration += 1
        ends.append(torch.cat([x, b[:, None]], 1))
    return ends


class _Team(Communicator):
    """A rank alone, that takes itself for one of several teams."""

    def __init__(self, rank, size):
        super().__init__()
        object.__setattr__(self, "_peers_and_parent", (Communicator(rank, size), self))


@pytest.mark.parametrize(("teams", "size"), [(2, 4), (4, 4)])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("solver", ["sgd", "ca_sgd"])
def test_averages_after_every_iteration_are_steps_with_the_mean_gradient(pool, case, teams, size, solver):
    changes = {"teams": teams, "average_every": 1}
    ranks = pool.run(fit_teams, size, case=case, solver=solver, s=1, changes=changes)
    expected = mean_of_steps(case, case.options(solver, 1, teams=teams), teams)
    for epoch, one in enumerate(expected):
        assert distance(joined(ranks[: size // teams], epoch), one) < 2e-6  # averages are of float32 differences


BUSY = [
    Case("poisson", order="replacement", momentum=0.9, average=3, batch_size=7),
    Case("bernoulli", layout="sparse", schedule="adaptive", weighted=True, batch_size=4),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", BUSY, ids=str)
def test_all_teams_hold_the_same_bits(pool, case, codec):
    changes = {"teams": 2, "average_every": 2, "average_codec": codec}
    ranks = pool.run(fit_teams, 4, case=case, solver="ca_sgd", s=3, changes=changes)
    for rank, (ends, history, ran, _) in enumerate(ranks):
        assert history == ranks[0][1]
        assert ran.endswith(f"; 2 teams of 2 ranks, averaged every 6 iterations in {codec}")
        for one, other in zip(ends, ranks[rank % 2][0], strict=True):  # the same columns
            assert all(torch.equal(one[name], other[name]) for name in one)
        for one, other in zip(ends, ranks[0][0], strict=True):
            assert all(torch.equal(one[name][:, -1:], other[name][:, -1:]) for name in one if len(one[name]))


@cache
def settled(pool, codec):
    """Where four teams come to rest that average in a codec."""
    case, changes = Case("gaussian", schedule="cosine", batch_size=4), {"max_iter": 40, "teams": 4, "average_every": 2}
    ranks = pool.run(fit_teams, 4, case=case, solver="sgd", s=1, changes=changes | {"average_codec": codec})
    return joined(ranks[:1], -1)


@pytest.mark.parametrize(
    "codec",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name not in ("nuqsgd-4", "ef-sign") else [])
        for name in CODECS
    ],
)
def test_noise_of_the_codec_vanishes_with_the_steps(pool, codec):
    """Of every codec the fit comes to rest near where exact averages do, though one exchange errs by up to 100 %."""
    assert distance(settled(pool, codec), settled(pool, "fp32")) < 3e-2


def test_one_team_is_no_team(pool):
    case, changes = BUSY[0], {"teams": 1, "average_every": 3, "average_codec": "nuqsgd-4"}
    plain, teamed = (pool.run(fit_teams, 2, case=case, solver="ca_sgd", s=3, changes=c) for c in ({}, changes))
    for (ends, *rest), (others, *more) in zip(plain, teamed, strict=True):
        assert rest == more
        assert all(torch.equal(a[name], b[name]) for a, b in zip(ends, others, strict=True) for name in a)


def estimate(group, rows, kind, **parameters):
    """Coefficients and what ran, of rows that all ranks have or each its own; on unequal shares."""
    comm, rng = Communicator.over(group), np.random.default_rng(0)
    X = rng.standard_normal((101, 7)) * (rng.random((101, 7)) < 0.7)
    y = np.where(X @ rng.standard_normal(7) > 0, "yes", "no")
    if rows == "partitioned":
        cuts = [0, 10, 11, 60, 101] if comm.size == 4 else [0, 30, 101]
        X, y = (a[cuts[comm.rank] : cuts[comm.rank + 1]] for a in (X, y))
    X = scipy.sparse.csr_array(X) if kind == "sparse" else X
    fitted = CASGDClassifier(max_iter=3, tol=None, random_state=0, batch_size=8, **parameters)
    fitted.fit(X, y, rows=rows, comm=comm)
    return fitted.coef_, fitted.intercept_, fitted.ran_, fitted.eta0_


@pytest.mark.parametrize("kind", ["numpy", "sparse"])
@pytest.mark.parametrize("more", [{}, {"early_stopping": True}], ids=str)
def test_rows_of_all_and_rows_of_each_rank_are_the_same_fit(pool, kind, more):
    found = [pool.run(estimate, 4, rows=rows, kind=kind, teams=2, **more) for rows in ("replicated", "partitioned")]
    for coef, intercept, ran, eta0 in [*found[0], *found[1]]:
        assert (ran, eta0) == found[0][0][2:]
        np.testing.assert_array_equal(coef, found[0][0][0])
        np.testing.assert_array_equal(intercept, found[0][0][1])


def fail(group, teams, y_of_team, size_of=None):
    """What is raised on this rank."""
    comm = Communicator.over(group)
    options = Case("poisson").options("sgd", 1, teams=teams, eta0=0.5)
    try:
        team = comm.split(teams)
        problem = of_team(Case("poisson"), options, team)
        problem.columns.X.mul_(y_of_team[team.peers.rank])
        solve(problem, options, comm=team)
    except (Diverged, ValueError) as error:
        return type(error).__name__, str(error)


def test_a_loss_that_diverges_in_one_team_is_raised_on_all(pool):
    found = pool.run(fail, 4, teams=2, y_of_team=[1.0, 1e20])
    assert {name for name, _ in found} == {"Diverged"}
    assert len({text for _, text in found}) == 1


@pytest.mark.parametrize(("teams", "size", "text"), [
    (3, 4, "teams=3 cannot share 4 ranks evenly; give a divisor of 4, or ranks a multiple of 3"),
    (2, 1, "teams=2 cannot share 1 rank evenly"),
    (2, 2, "teams=2 needs a group of all 4 ranks, and this one has 2"),
])  # fmt: skip
def test_ranks_that_do_not_divide_are_refused(pool, teams, size, text):
    for name, said in pool.run(fail, size, teams=teams, y_of_team=[1.0] * teams):
        assert name == "InvalidOption"
        assert text in said
