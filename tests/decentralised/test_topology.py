"""Topologies: every mixing matrix is what it must be, and one that is not is refused with the row."""

import numpy as np
import pytest
import torch

from laconic import DCDPSGD, DPSGD, ECDPSGD, Complete, Custom, Exponential, Ring, SimulatedGraph, Star, Torus
from laconic.exchange import Mixing
from laconic.exchange.topology import TOPOLOGIES as NAMES
from laconic.exchange.topology import topology_for

TOPOLOGIES = [Ring(), Torus(), Exponential(), Star(), Star(hub=0), Complete()]
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=repr)
def test_matrices_are_symmetric_doubly_stochastic_and_connected(topology, size):
    mixing = topology.mixing(size)
    matrix = torch.tensor(mixing.rows, dtype=torch.float64)
    assert matrix.shape == (size, size)
    assert torch.equal(matrix, matrix.T)
    assert torch.allclose(matrix.sum(dim=0), torch.ones(size, dtype=torch.float64), atol=1e-12)
    assert (matrix >= 0).all()
    assert 0 < mixing.spectral_gap <= 1 + 1e-12
    for i in range(size):
        assert i not in mixing.neighbours(i)
        assert mixing.tracked(i) == sorted([i, *mixing.neighbours(i)])
        assert all(i in mixing.neighbours(j) for j in mixing.neighbours(i))


@pytest.mark.parametrize("size", [2, 5, 8])
def test_mixing_shrinks_disagreement_by_the_gap(size):
    for topology in TOPOLOGIES:
        mixing = topology.mixing(size)
        x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
        x -= x.mean()
        mixed = torch.tensor(mixing.rows, dtype=torch.float64) @ x
        assert abs(mixed.mean()) < 1e-12
        assert mixed.norm() <= (1 - mixing.spectral_gap) * x.norm() + 1e-12


def test_known_gaps():
    for n in (4, 8, 16):
        least = 1 - (1 + 2 * torch.cos(torch.tensor(2 * torch.pi / n, dtype=torch.float64))) / 3
        assert Ring().mixing(n).spectral_gap == pytest.approx(float(min(least, torch.tensor(2 / 3))))
        assert Star().mixing(n).spectral_gap == pytest.approx(1 / n)
        assert Complete().mixing(n).spectral_gap == pytest.approx(1)
    assert Torus().mixing(16).spectral_gap == pytest.approx(0.4)


WRONG = {
    "asymmetric": ([[0.5, 0.5, 0], [0.4, 0.5, 0.1], [0, 0.1, 0.9]], r"row 0 is not symmetric, W\[0\]\[1\] = 0.5 but"),
    "sum": ([[0.5, 0.5, 0], [0.5, 0.3, 0.1], [0, 0.1, 0.9]], "row 1 sums to 0.9, expected 1"),
    "negative": ([[1.5, -0.5], [-0.5, 1.5]], r"row 0 has W\[0\]\[0\] = 1.5, expected a weight from 0 to 1"),
    "not a number": ([[float("nan"), 0.5], [0.5, 0.5]], "row 0 has W"),
    "not square": ([[0.5, 0.5], [1.0]], "row 1 has 1 values, expected 2"),
    "empty": ([], "at least one row"),
    "in parts": ([[1.0, 0.0], [0.0, 1.0]], "row 1: node 1 cannot be reached from node 0"),
    "swaps only": ([[0.0, 1.0], [1.0, 0.0]], "only swap their models"),
}


@pytest.mark.parametrize(("matrix", "said"), WRONG.values(), ids=WRONG)
def test_wrong_matrices_are_refused_with_the_row(matrix, said):
    with pytest.raises(ValueError, match=said):
        Custom(matrix)


KINDS = {"lists": list, "NumPy": np.array, "tensor": torch.tensor, "mixing": Mixing.of}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_matrix_may_be_of_any_kind_and_is_for_its_own_size(kind):
    topology = Custom(kind([[0.75, 0.25], [0.25, 0.75]]))
    assert topology == Custom([[0.75, 0.25], [0.25, 0.75]])
    assert hash(topology) == hash(Custom([[0.75, 0.25], [0.25, 0.75]]))
    assert topology.mixing(2) == Mixing.of([[0.75, 0.25], [0.25, 0.75]])
    assert topology.edges(2) == [(0, 1)]
    with pytest.raises(ValueError, match="the mixing matrix has 2 rows and there are 3 nodes"):
        topology.mixing(3)


def test_what_rounding_leaves_of_a_matrix_is_no_edge_of_one_end_only():
    """Or one end would wait for the other for ever."""
    mixing = Mixing.of([[0.7, 0.3, 1e-8], [0.3, 0.4, 0.3], [0.0, 0.3, 0.7 + 1e-8]])
    assert [mixing.neighbours(i) for i in range(3)] == [[1, 2], [0, 2], [0, 1]]
    mixing = Mixing.of([[0.7, 0.3, 0.0], [0.3 + 1e-8, 0.4, 0.3], [-1e-8, 0.3, 0.7]])
    assert [mixing.neighbours(i) for i in range(3)] == [[1], [0, 2], [1]]
    assert mixing.weight(0, 1) == mixing.weight(1, 0)
    assert mixing.weight(0, 2) == mixing.weight(2, 0) == 0.0


def test_other_mistakes_are_told():
    with pytest.raises(ValueError, match="n_rows must divide the number of nodes, got 3 rows for 8 nodes"):
        Torus(n_rows=3).mixing(8)
    with pytest.raises(ValueError, match="hub must be a node from 0 to 3, got 4"):
        Star(hub=4).mixing(4)
    for wrong in (-1, 1.0, True):
        with pytest.raises(ValueError, match=f"star: hub must be a whole number, at least 0; got {wrong}"):
            Star(hub=wrong)
        with pytest.raises(ValueError, match=f"torus: n_rows must be a whole number, at least 1; got {wrong}"):
            Torus(n_rows=wrong)
    with pytest.raises(ValueError, match="at least 1 node, got 0"):
        Ring().mixing(0)
    with pytest.raises(ValueError, match="unknown topology 'line'; choose one of ring, torus"):
        topology_for("line")
    with pytest.raises(TypeError, match=r"topology must be one such as Ring\(\), or a name such as 'ring', got 3"):
        topology_for(3)
    for matrix in ([1.0], 1.0, [[None]], [["a"]]):
        with pytest.raises(TypeError, match=r"mixing matrix: expected rows of numbers such as .* got "):
            Custom(matrix)


MEMBERS = {"DPSGD": DPSGD, "DCDPSGD": DCDPSGD, "ECDPSGD": ECDPSGD}


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_optimizers_take_a_topology_by_name(member):
    net = torch.nn.Linear(4, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for name, kind in NAMES.items():
        assert member(net, sgd, name).topology == kind() == topology_for(name)
        graph = SimulatedGraph(member, [torch.nn.Linear(4, 1) for _ in range(4)], torch.optim.SGD, name)
        assert graph.nodes[3].mixing == kind().mixing(4)
    for wrong, error in (("line", ValueError), (None, TypeError)):
        with pytest.raises(error, match="topology"):
            member(net, sgd, wrong)
