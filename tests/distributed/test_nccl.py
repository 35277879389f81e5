"""Laws 6 to 9 over NCCL, with 2 and 4 ranks that share one GPU; visible skips where there is none."""

from itertools import product

import numpy as np
import pytest
import test_ddp
import test_decentralised
import test_exchanges
import test_resume
import torch
from test_glm_estimators import data, model

from laconic.exchange.agreement import gather_json
from laconic.exchange.launch import default_communicator

pytestmark = pytest.mark.timeout(600)
SLOW = ("nuqsgd-rans", "ef-nuqsgd-elias", "ef-nuqsgd-rans", "dcd-rans", "ecd-elias")
"""Members whose codes go through the host, which takes long."""


def without_slow(names):
    return [name for name in names if name not in SLOW]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("exchange", "scheme", "coder"), [m for m in test_exchanges.MEMBERS if m[2] not in ("rans", "elias")]
)
def test_averages_are_those_over_gloo(pool, nccl_pool, exchange, scheme, coder, size):
    """Bit for bit, but for an all-reduce, which may add in another order."""
    member = {"exchange": exchange, "scheme": scheme, "coder": coder}
    ours, theirs = (ranks.run(test_exchanges.exchange_all, size, **member) for ranks in (nccl_pool, pool))
    tolerance = {"fp32": 1e-6, "bf16": 2**-6}.get(scheme) if exchange == "all_reduce" else 0.0
    for own, other in zip(ours, theirs, strict=True):
        for (value, _), (expected, _), (first, _) in zip(own, other, ours[0], strict=True):
            assert torch.allclose(value, expected, rtol=tolerance, atol=tolerance)
            assert exchange == "nothing" or torch.equal(value, first)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("codec", without_slow(test_ddp.CODECS))
def test_parameters_are_identical_after_twenty_steps(nccl_pool, codec, size):
    test_ddp.test_parameters_are_identical_after_twenty_steps(nccl_pool, codec, size)


@pytest.mark.parametrize("codec", without_slow(test_resume.CODECS))
@pytest.mark.parametrize(("exchange", "metric"), [*product(["all_gather", "scatter_reduce"], test_resume.METRICS)])
def test_resume_is_bit_exact(nccl_pool, codec, exchange, metric):
    for whole, resumed, _ in nccl_pool.run(test_resume.interrupted, 4, codec=codec, exchange=exchange, metric=metric):
        assert torch.equal(whole, resumed)


@pytest.mark.parametrize("topology", test_decentralised.TOPOLOGIES)
@pytest.mark.parametrize("member", without_slow(test_decentralised.MEMBERS))
def test_neighbours_hold_the_same_estimates(nccl_pool, member, topology):
    ranks = nccl_pool.run(test_decentralised.train_node, 4, member=member, topology=topology)
    for rank, (_, estimates, edges, _, _) in enumerate(ranks):
        for j, rows in estimates.items():
            assert all(torch.equal(a, b) for a, b in zip(rows, ranks[j][1][j], strict=True))
            assert j == rank or edges[j] == ranks[j][2][rank][::-1]


def fitted(group, loss, eta0, recipe, solver, s, **more):
    """coef_, intercept_ and what ran, over the default process group, which is NCCL."""
    X, y, w, offset = data(loss, 40)
    est = model(loss, recipe=recipe, solver=solver, s=s, eta0=eta0, device="cuda", **more)
    est.fit(X.astype(np.float32), y, w, offset)
    return est.coef_, est.intercept_, est.ran_, gather_json(default_communicator(), torch.distributed.get_rank())


FITS = [("log_loss", 0.05, "fp32", 1e-4), ("log_loss", 0.05, "C", 2e-2), ("log_loss", 0.05, "D", 2e-2)]
FITS += [("log_loss", 0.05, "fp64", 1e-12), ("poisson", 0.005, "fp32", 1e-3), ("poisson", 0.005, "fp64", 1e-12)]


@pytest.mark.parametrize(("solver", "s"), [("sgd", 1), ("ca_sgd", 8)])
@pytest.mark.parametrize(("loss", "eta0", "recipe", "tolerance"), FITS)
def test_models_are_those_of_one_process(nccl_pool, loss, eta0, recipe, tolerance, solver, s):
    """Law 8: every rank has all coefficients, the same bits, and they are those of one process."""
    X, y, w, offset = data(loss, 40)
    alone = model(loss, recipe="fp64", solver="sgd", eta0=eta0).fit(X.astype(np.float32), y, w, offset)
    ranks = nccl_pool.run(fitted, 4, loss=loss, eta0=eta0, recipe=recipe, solver=solver, s=s)
    for coef, intercept, _, found in ranks:
        assert found == [0, 1, 2, 3]
        np.testing.assert_array_equal(coef, ranks[0][0])
        np.testing.assert_array_equal(intercept, ranks[0][1])
    difference = np.linalg.norm(ranks[0][0] - alone.coef_) / np.linalg.norm(alone.coef_)
    assert difference < tolerance, ranks[0][2]


@pytest.mark.parametrize("codec", ["fp32", "nuqsgd-4", "ef-sign"])
@pytest.mark.parametrize(("teams", "solver", "s"), [(2, "ca_sgd", 4), (4, "sgd", 1)])
def test_teams_hold_the_same_bits(nccl_pool, teams, solver, s, codec):
    grid = {"teams": teams, "average_every": 2, "average_codec": codec}
    ranks = nccl_pool.run(fitted, 4, loss="log_loss", eta0=0.05, recipe="fp32", solver=solver, s=s, **grid)
    for coef, intercept, ran, _ in ranks:
        assert ran.endswith(f"averaged every {2 * s} iterations in {codec}")
        np.testing.assert_array_equal(coef, ranks[0][0])
        np.testing.assert_array_equal(intercept, ranks[0][1])
