"""The outcome: after as many steps, the average model is as good as that of AllReduce training."""

from functools import cache

import pytest
from problems import all_reduce_loss, consensus_loss, graph_on, train

from laconic import DCDPSGD, DPSGD, ECDPSGD, NUQSGD, QSGD, Policy, Ring, Torus

EVERYTHING = Policy(min_dims=0, min_values=0)
N_NODES = 4
N_STEPS = {"logistic": 150, "cnn": 120}
CODECS = {
    "nuqsgd-4": NUQSGD(bits=4, bucket_size=512),
    "nuqsgd-8": NUQSGD(bits=8, bucket_size=512),
    "qsgd-4": QSGD(bits=4, bucket_size=64),
    "qsgd-8": QSGD(bits=8, bucket_size=512),
}
"""Buckets from the limit of stability on a ring, 0.5 of ‖v‖²; QSGD at 4 bits (1.1) needs ECD-PSGD's held clock."""
WITHIN = 1.02
MEMBERS = [("ecd", ECDPSGD, codec) for codec in CODECS] + [
    ("dcd", DCDPSGD, codec) for codec in CODECS if codec != "qsgd-4"
]


@cache
def baseline(problem: str) -> float:
    return all_reduce_loss(problem, N_NODES, N_STEPS[problem])


def final_loss(problem: str, member, topology=Ring(), **options) -> float:  # noqa: B008
    graph = graph_on(problem, member, topology, N_NODES, policy=EVERYTHING, **options)
    train(graph, range(N_STEPS[problem]))
    return consensus_loss(graph)


def rarely(codec: str, problem: str) -> list:
    """Marks of what is tried with fewer bits, too."""
    return [pytest.mark.exhaustive] if codec.endswith("-8") and problem == "cnn" else []


@pytest.mark.parametrize(
    ("member", "codec", "problem"),
    [
        pytest.param(member, codec, problem, marks=rarely(codec, problem), id=f"{name}-{codec}-{problem}")
        for name, member, codec in MEMBERS
        for problem in N_STEPS
    ],
)
def test_the_loss_is_within_two_percent_of_all_reduce(member, codec, problem):
    assert final_loss(problem, member, codec=CODECS[codec]) <= WITHIN * baseline(problem)


@pytest.mark.parametrize("problem", N_STEPS)
def test_so_is_that_of_dpsgd_and_of_other_graphs_and_orders(problem):
    assert final_loss(problem, DPSGD) <= WITHIN * baseline(problem)
    other = final_loss(problem, ECDPSGD, Torus(), codec=CODECS["nuqsgd-4"], order="adapt_then_combine")
    assert other <= WITHIN * baseline(problem)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_papers_own_form_is_not(bits):
    """Its noise is a share of the whole model (docs/decentralised.md): a known limit, the reason for our default."""
    codec = NUQSGD(bits=bits, bucket_size=512)
    assert final_loss("logistic", ECDPSGD, codec=codec, reference="zero") > WITHIN * baseline("logistic")
