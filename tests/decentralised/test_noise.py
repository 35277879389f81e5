"""What quantisation noise does: the clock's weights, the limits of stability, the drift of the paper's own form."""

import pytest
import torch

from laconic import (
    DCDPSGD,
    DPSGD,
    ECDPSGD,
    NUQSGD,
    QSGD,
    Clock,
    ErrorFeedback,
    Identity,
    Policy,
    Ring,
    Sign,
    SimulatedGraph,
)
from laconic.exchange.topology import Complete, Exponential, Star, Torus
from laconic.training.decentralised.stability import amplification, held_at, noise_limit

EVERYTHING = Policy(min_dims=0, min_values=0)


@pytest.mark.parametrize("n_steps", [2, 3, 10, 200])
def test_the_papers_weights_average_the_noise(n_steps):
    """x̃ ← (1 − 2/t) x̃ + (2/t) e_t leaves 2 (s − 1) / (t (t − 1)) of noise e_s after step t: they add up to 1."""
    weights = torch.zeros(n_steps, dtype=torch.float64)
    for t in range(1, n_steps + 1):
        weights *= 1 - 2 / t
        weights[t - 1] = 2 / t
    s = torch.arange(1, n_steps + 1, dtype=torch.float64)
    expected = 2 * (s - 1) / (n_steps * (n_steps - 1))
    assert torch.allclose(weights[1:], expected[1:])
    assert float(weights[1:].sum()) == pytest.approx(1)
    assert float(weights[1:].square().sum()) <= 2 / n_steps


class Point(torch.nn.Module):
    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(start.clone())


def gossip(member, topology, codec, n_nodes: int, n_steps: int, start: torch.Tensor, **options) -> SimulatedGraph:
    """Mixing alone: all gradients are zero."""
    models = [Point(row) for row in start]
    graph = SimulatedGraph(
        member, models, lambda p: torch.optim.SGD(p, lr=0.0), topology, codec, policy=EVERYTHING, **options
    )
    for _ in range(n_steps):
        for model in models:
            model.x.grad = torch.zeros_like(model.x)
        graph.step()
    return graph


def test_mixing_from_the_estimate_ends_in_agreement_and_from_zero_it_drifts():
    """From the estimate, noise is a share of the disagreement and goes with it. From zero it is a share of the model:
    each e_s reaches the average with weight 2 (1 − s/t), so that the average walks away as √t."""
    n_nodes, n = 8, 4096
    start = torch.ones(n_nodes, n) + 0.1 * torch.randn(n_nodes, n, generator=torch.Generator().manual_seed(0))
    codec = NUQSGD(bits=4, bucket_size=512)
    ours = gossip(ECDPSGD, Ring(), codec, n_nodes, 80, start)
    paper = gossip(ECDPSGD, Ring(), codec, n_nodes, 80, start, reference="zero")
    spread = float((start - start.mean(dim=0)).norm()) / n_nodes**0.5
    drift = {
        name: float((graph.consensus()["x"] - start.mean(dim=0)).norm())
        for name, graph in (("ours", ours), ("paper", paper))
    }
    assert ours.consensus_distance() < 1e-3 * spread
    assert drift["ours"] < spread
    assert drift["paper"] > 10 * spread


@pytest.mark.parametrize("topology", [Ring(), Torus(), Exponential(), Star(), Complete()], ids=repr)
@pytest.mark.parametrize("omega", [0.0, 0.05, 0.125, 0.3, 0.7, 1.5])
def test_stability_is_what_a_simulation_of_the_noise_finds(topology, omega):
    """Noise of exactly ω ‖v‖² along the worst eigenvector: the mean square changes by the factor that is claimed."""
    mixing = topology.mixing(9)
    t = 2
    factor = amplification(mixing, omega, t)
    generator = torch.Generator().manual_seed(0)
    worst = max(mixing.eigenvalues[1:], key=lambda x: x * x + omega * (1 - x) ** 2)
    y, e = torch.ones(200_000, dtype=torch.float64), torch.zeros(200_000, dtype=torch.float64)
    before = float(y.square().mean() + e.square().mean())
    for _ in range(3):
        sign = 2.0 * torch.randint(2, y.shape, generator=generator).double() - 1
        y, e = worst * (y + e), sign * omega**0.5 * (worst - 1) * (y + e)
    after = float(y.square().mean() + e.square().mean())
    assert after / before == pytest.approx(factor**3, rel=0.05)


def test_the_clock_is_held_where_noise_is_bearable():
    ring = Ring().mixing(8)
    assert noise_limit(ring) == pytest.approx(0.5)
    assert amplification(ring, 0.49, 2) < 1 < amplification(ring, 0.51, 2)
    assert held_at(ring, 0.0) == 2
    assert held_at(ring, 100.0) is None
    for omega in (0.1, 0.4, 0.62, 1.2):
        t = held_at(ring, omega)
        assert amplification(ring, omega, t) < 1
    assert amplification(ring, 0.125, 64) > 1  # a clock that runs on


def test_members_refuse_what_they_cannot_bear():
    net = torch.nn.Linear(64, 64)
    models = [torch.nn.Linear(64, 64) for _ in range(4)]

    def make(member, codec, **options):
        return SimulatedGraph(
            member, models, lambda p: torch.optim.SGD(p, lr=0.1), Ring(), codec, policy=EVERYTHING, **options
        )

    with pytest.raises(ValueError, match=r"DCD-PSGD: QSGD\(bits=4, bucket_size=512\) may lose 3.23 .* Ring\(\) of 4"):
        make(DCDPSGD, QSGD(bits=4, bucket_size=512))
    with pytest.raises(ValueError, match=r"ECD-PSGD: QSGD\(bits=4, bucket_size=512\) may lose 3.23 .* at any clock"):
        make(ECDPSGD, QSGD(bits=4, bucket_size=512))
    make(ECDPSGD, QSGD(bits=4, bucket_size=512), clock=Clock(hold=5))  # asked for by name
    for member in (DCDPSGD, ECDPSGD):
        assert make(member, None).nodes[0].codec.quantizer == NUQSGD(bits=4)
    for codec in (ErrorFeedback(Sign()), Identity("bf16")):
        with pytest.raises(ValueError, match="needs an unbiased quantizer, got"):
            make(ECDPSGD, codec)
    with pytest.raises(ValueError, match=r"D-PSGD sends float32, got NUQSGD\(.*; use DCDPSGD or ECDPSGD"):
        make(DPSGD, NUQSGD(bits=4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for options, said in (
        ({"order": "sideways"}, "unknown order 'sideways'; choose one of combine_then_adapt"),
        ({"reference": "x"}, "unknown reference 'x'; choose one of estimate, zero"),
        ({"seed": -1}, "seed must be a whole number from 0"),
    ):
        with pytest.raises(ValueError, match=said):
            ECDPSGD(net, optimizer, Ring(), "nuqsgd", **options)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(ValueError, match="Linear has no parameters that require a gradient"):
        ECDPSGD(net, optimizer, Ring(), "nuqsgd")
    with pytest.raises(TypeError, match=r"clock must be a Clock such as Clock\(hold=3\), got 3"):
        ECDPSGD(net, optimizer, Ring(), "nuqsgd", clock=3)
    with pytest.raises(TypeError, match=r"policy must be a Policy such as Policy\(min_values=1024\), got 1024"):
        ECDPSGD(models[0], optimizer, Ring(), "nuqsgd", policy=1024)
    with pytest.raises(TypeError, match=r"torch.nn.Module; got <generator"):
        ECDPSGD(models[0].parameters(), optimizer, Ring())
    with pytest.raises(TypeError, match=r"optimizer must be one such as torch\.optim\.SGD\(.*, got <class"):
        ECDPSGD(models[1], torch.optim.SGD, Ring())
    with pytest.raises(ValueError, match="a model is given twice, but each node has its own"):
        SimulatedGraph(ECDPSGD, [net, net], lambda p: optimizer, Ring())
    with pytest.raises(TypeError, match="parameter bias is complex64, and only real numbers are exchanged"):
        ECDPSGD(torch.nn.Linear(2, 2, dtype=torch.complex64), optimizer, Ring(), "nuqsgd")


def test_a_parameter_thawed_later_is_refused():
    net = torch.nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    node = ECDPSGD(net, torch.optim.SGD(net.parameters(), lr=0.1), Ring())
    node.step()
    net.bias.requires_grad_(True)
    with pytest.raises(ValueError, match="parameter bias was frozen, or not there, when this ECDPSGD was made"):
        node.step()


def test_clocks_that_make_no_sense():
    for wrong in (1, 2.5, "3", True):
        for name in ("hold", "restart"):
            with pytest.raises(ValueError, match=f"clock: {name} must be a whole number, at least 2; got {wrong!r}"):
                Clock(**{name: wrong})
    with pytest.raises(ValueError, match="give hold or restart, not both"):
        Clock(hold=3, restart=9)


def test_every_node_rounds_with_its_own_random_numbers():
    start = torch.ones(3, 512)
    graph = gossip(ECDPSGD, Ring(), NUQSGD(bits=4, bucket_size=512), 3, 1, start, reference="zero")
    first, second = graph.nodes[0].estimates[0][0], graph.nodes[0].estimates[1][0]
    assert not torch.equal(first, second)
    again = gossip(ECDPSGD, Ring(), NUQSGD(bits=4, bucket_size=512), 3, 1, start, reference="zero")
    assert torch.equal(first, again.nodes[0].estimates[0][0])
