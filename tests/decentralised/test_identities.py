"""What must be equal: ECD without compression and D-PSGD, a complete graph and AllReduce, an average and its form."""

import copy

import pytest
import torch
from problems import graph_on, logistic, rows, sgd, shards, train

from laconic import DCDPSGD, DPSGD, ECDPSGD, NUQSGD, Clock, Complete, Identity, Policy, Ring, SimulatedGraph, Torus

EVERYTHING = Policy(min_dims=0, min_values=0)
FP32 = Identity("fp32")
EXACT = {
    "ecd": (ECDPSGD, {}),
    "ecd held at 5": (ECDPSGD, {"clock": Clock(hold=5)}),
    "ecd of the paper": (ECDPSGD, {"reference": "zero"}),
    "ecd restarted": (ECDPSGD, {"reference": "zero", "clock": Clock(restart=4)}),
    "dcd": (DCDPSGD, {}),
}


def weights(graph: SimulatedGraph) -> torch.Tensor:
    return torch.stack([torch.cat(node.gather()) for node in graph.nodes])


@pytest.mark.parametrize("order", ["combine_then_adapt", "adapt_then_combine"])
@pytest.mark.parametrize("name", EXACT)
def test_without_compression_all_members_are_dpsgd(name, order):
    member, options = EXACT[name]
    ours = graph_on("logistic", member, Ring(), 5, codec=FP32, order=order, **options)
    plain = graph_on("logistic", DPSGD, Ring(), 5, order=order)
    for step in range(12):
        train(ours, range(step, step + 1))
        train(plain, range(step, step + 1))
        assert torch.allclose(weights(ours), weights(plain), rtol=1e-4, atol=2e-6), step
    assert plain.consensus_distance() > 1e-3


@pytest.mark.parametrize("member", [DPSGD, ECDPSGD, DCDPSGD])
def test_on_a_complete_graph_the_iterates_are_those_of_all_reduce(member):
    """With momentum and weight decay, every step and every node, where gradients are taken at the mixed models."""
    n = 4
    options = {} if member is DPSGD else {"codec": FP32}
    graph = graph_on("logistic", member, Complete(), n, order="adapt_then_combine", **options)
    net, (x, y) = logistic(), shards(n)
    optimizer = sgd(0.1)(net.parameters())
    for step in range(10):
        train(graph, range(step, step + 1))
        optimizer.zero_grad()
        for node in range(n):
            at = rows(step, node, n, len(x[node]))
            (torch.nn.functional.cross_entropy(net(x[node][at]), y[node][at]) / n).backward()
        optimizer.step()
        expected = torch.cat([group.flatten(dict(net.named_parameters())) for group in graph.nodes[0].groups]).detach()
        assert torch.allclose(weights(graph), expected.expand(n, -1), rtol=1e-4, atol=1e-6)
    assert graph.consensus_distance() < 1e-5


class Quadratic(torch.nn.Module):
    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.x = torch.nn.Parameter(start.clone())


@pytest.mark.parametrize("topology", [Ring(), Torus(), Complete()], ids=repr)
@pytest.mark.parametrize("member", [DPSGD, ECDPSGD, DCDPSGD])
def test_the_average_follows_the_closed_form_on_a_quadratic(member, topology):
    """F_i(x) = ½ a ∘ (x − c_i)²: mixing keeps the average, so x̄_t − c̄ = (1 − γ a)^t (x̄_0 − c̄), whatever the graph."""
    n, dimension, lr, n_steps = 6, 20, 0.1, 30
    generator = torch.Generator().manual_seed(0)
    a = 0.5 + torch.rand(dimension, generator=generator)
    centres = torch.randn(n, dimension, generator=generator)
    starts = torch.randn(n, dimension, generator=generator)
    options = {} if member is DPSGD else {"codec": FP32}
    models = [Quadratic(start) for start in starts]
    graph = SimulatedGraph(member, models, lambda p: torch.optim.SGD(p, lr=lr), topology, **options)
    for step in range(1, n_steps + 1):
        graph.zero_grad()
        for model, centre in zip(models, centres, strict=True):
            (0.5 * a * (model.x - centre).square()).sum().backward()
        graph.step()
        mean, centre = graph.consensus()["x"], centres.mean(dim=0)
        expected = centre + (1 - lr * a) ** step * (starts.mean(dim=0) - centre)
        assert torch.allclose(mean, expected, atol=1e-5)


@pytest.mark.parametrize("member", [ECDPSGD, DCDPSGD])
def test_noise_leaves_when_training_ends(member):
    """A share of what is new: with exact gradients the compressed fixed point is that of D-PSGD, to rounding."""
    n, dimension = 4, 600
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(n, dimension, generator=generator)

    def solve(kind, **options) -> torch.Tensor:
        models = [Quadratic(torch.zeros(dimension)) for _ in range(n)]
        graph = SimulatedGraph(kind, models, lambda p: torch.optim.SGD(p, lr=0.2), Ring(), policy=EVERYTHING, **options)
        for _ in range(150):
            graph.zero_grad()
            for model, centre in zip(models, centres, strict=True):
                (0.5 * (model.x - centre).square()).sum().backward()
            graph.step()
        return weights(graph)

    exact, ours = solve(DPSGD), solve(member, codec=NUQSGD(bits=4, bucket_size=512))
    assert torch.allclose(ours, exact, atol=1e-4)


def test_one_node_without_compression_is_the_optimizer_itself():
    """Law 7, bit for bit, and no process group is made or needed."""
    for order in ("combine_then_adapt", "adapt_then_combine"):
        net, other = logistic(), logistic()
        node = DPSGD(net, sgd(0.1)(net.parameters()), Ring(), order=order)
        plain = sgd(0.1)(other.parameters())
        (x,), (y,) = shards(1)
        for step in range(5):
            at = rows(step, 0, 1, len(x))
            for model, optimizer in ((net, node), (other, plain)):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x[at]), y[at]).backward()
                optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
        assert node.consensus_distance() == 0.0
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("order", ["combine_then_adapt", "adapt_then_combine"])
@pytest.mark.parametrize("member", [DPSGD, ECDPSGD, DCDPSGD])
def test_what_changes_between_steps_is_part_of_the_local_step(member, order):
    """Clamping, say, or further local steps: what each node adds arrives in the average of all."""
    n, options = 4, {} if member is DPSGD else {"codec": FP32}
    models = [Quadratic(torch.full((20,), float(i))) for i in range(n)]
    graph = SimulatedGraph(member, models, lambda p: torch.optim.SGD(p, lr=0.1), Ring(), order=order, **options)
    graph.step()
    before = graph.consensus()["x"]
    for i, model in enumerate(models):
        model.x.data += 10 * i
    graph.step()
    assert torch.allclose(graph.consensus()["x"], before + 15, atol=1e-4)


@pytest.mark.parametrize("order", ["combine_then_adapt", "adapt_then_combine"])
@pytest.mark.parametrize("name", EXACT)
def test_rounding_of_bfloat16_does_not_add_up(name, order):
    """Equal models without gradients stay where they are."""
    member, options = EXACT[name]
    start = torch.randn(600, generator=torch.Generator().manual_seed(0)).bfloat16()
    models = [Quadratic(start) for _ in range(4)]
    graph = SimulatedGraph(
        member, models, lambda p: torch.optim.SGD(p, lr=0.1), Ring(), codec=FP32, order=order, **options
    )
    for _ in range(30):
        graph.step()
    assert all(model.x.equal(start) for model in models)


def test_any_torch_optimizer_makes_the_local_step():
    """Adam's step depends on gradients only, not on where mixing has put the model."""
    models = [logistic() for _ in range(3)]
    graph = SimulatedGraph(
        ECDPSGD,
        models,
        lambda p: torch.optim.Adam(p, lr=0.01),
        Ring(),
        NUQSGD(bits=4, bucket_size=512),
        policy=EVERYTHING,
    )
    x, y = shards(3)
    losses = []
    for _ in range(60):
        graph.zero_grad()
        at = [torch.nn.functional.cross_entropy(net(x[i]), y[i]) for i, net in enumerate(models)]
        for loss in at:
            loss.backward()
        losses.append([float(loss.detach()) for loss in at])
        graph.step()
    assert max(losses[-1]) < 0.5 * min(losses[0])


def test_consensus_averages_buffers_too():
    models = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)) for _ in range(3)]
    graph = SimulatedGraph(DPSGD, models, lambda p: torch.optim.SGD(p, lr=0.1), Ring())
    for i, model in enumerate(models):
        model(torch.randn(8, 4) + i).sum().backward()
    graph.step()
    mean = graph.consensus()
    means = torch.stack([model[1].running_mean for model in models])
    assert torch.allclose(mean["1.running_mean"], means.mean(dim=0))
    assert mean["1.num_batches_tracked"] == 1
    copy.deepcopy(models[0]).load_state_dict(mean)
