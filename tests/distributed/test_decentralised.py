"""Decentralised training over ranks: replicas agree, so does simulation, resume is bit-exact, failures have names."""

import io
import os
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
from models import batch, network, sgd, weights

import laconic
from forking import forked
from laconic import DCDPSGD, DPSGD, ECDPSGD, NUQSGD, RANS, Codec, Complete, Policy, Ring, SimulatedGraph, Star
from laconic.exchange import Accounting, Communicator, Neighbours

FINE = NUQSGD(bits=4, bucket_size=256)
SMALL = Policy(min_values=100, group_values=1000)
MEMBERS = {
    "dpsgd": (DPSGD, {}),
    "dcd": (DCDPSGD, {"codec": FINE}),
    "dcd-rans": (DCDPSGD, {"codec": Codec(FINE, RANS())}),
    "ecd": (ECDPSGD, {"codec": FINE}),
    "dcd-dithered": (DCDPSGD, {"codec": laconic.Dithered(error=0.05)}),
    "ecd-rotated": (ECDPSGD, {"codec": laconic.Rotated(bits=4, bucket_size=256)}),
    "ecd-elias": (ECDPSGD, {"codec": Codec(FINE, laconic.Elias())}),
    "ecd-paper": (ECDPSGD, {"codec": FINE, "reference": "zero"}),
    "ecd-atc": (ECDPSGD, {"codec": FINE, "order": "adapt_then_combine"}),
    "ecd-warm": (ECDPSGD, {"codec": FINE, "policy": Policy(min_values=100, warmup_steps=2)}),
}
TOPOLOGIES = {"ring": Ring(), "star": Star(), "complete": Complete()}


def make(group, member, topology, net):
    kind, options = MEMBERS[member]
    return kind(net, sgd(net), TOPOLOGIES[topology], **{"group": group, "policy": SMALL, **options})


def steps(node, chosen, rank):
    for step in chosen:
        x, y = batch(rank, step)
        node.zero_grad()
        torch.nn.functional.cross_entropy(node.model(x), y).backward()
        node.step()


def train_node(group, member, topology):
    """Weights, estimates, bytes an edge, average and distance of one rank."""
    rank = torch.distributed.get_rank(group)
    node = make(group, member, topology, network(seed=rank))  # different models: the first exchange tells them
    steps(node, range(6), rank)
    edges = {j: (edge.bytes_sent, edge.bytes_received) for j, edge in node.edges.items()}
    found = weights(node.model), node.estimates, edges, node.consensus(), node.consensus_distance()
    node.close()
    return found


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("member", MEMBERS)
def test_replicas_agree_and_simulation_is_the_same(pool, member, topology):
    """Laws 6 and 7; and what goes out on an edge at one end comes in at the other."""
    size = 4
    ranks = pool.run(train_node, size, member=member, topology=topology)
    kind, options = MEMBERS[member]
    nets = [network(seed=node) for node in range(size)]
    graph = SimulatedGraph(
        kind,
        nets,
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        TOPOLOGIES[topology],
        **{"policy": SMALL, **options},
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the ranks: sums of gradients then run in the same order
    try:
        for step in range(6):
            graph.zero_grad()
            for node, net in enumerate(nets):
                x, y = batch(node, step)
                torch.nn.functional.cross_entropy(net(x), y).backward()
            graph.step()
    finally:
        torch.set_num_threads(threads)
    for rank, (model, estimates, edges, consensus, distance) in enumerate(ranks):
        assert torch.equal(model, weights(nets[rank]))
        assert sorted(edges) == TOPOLOGIES[topology].mixing(size).neighbours(rank)
        for j, rows in estimates.items():
            assert all(torch.equal(a, b) for a, b in zip(rows, ranks[j][1][j], strict=True))
            if j != rank:
                assert edges[j] == ranks[j][2][rank][::-1]
                assert edges[j][0] > 0
        for name, value in graph.consensus().items():
            assert torch.allclose(consensus[name], value, atol=1e-6)
        assert distance == pytest.approx(graph.consensus_distance(), rel=1e-3, abs=1e-6)


def by_another_name(group, backend):
    """Six steps of ranks 0 to 2, over a group that is Gloo and does not say so."""
    part = torch.distributed.new_group([0, 1, 2], backend=backend)
    if torch.distributed.get_rank() == 3:
        return None
    assert Communicator.over(part).is_gloo(torch.device("cpu"))
    return train_node(part, "ecd", "ring")[0]


@pytest.mark.parametrize("backend", ["cpu:gloo", "cpu:gloo,cuda:gloo", "undefined"])
def test_gloo_by_any_name(pool, backend):
    """What torch calls a group without a backend's name is "undefined"."""
    usual = pool.run(train_node, 3, member="ecd", topology="ring")
    others = pool.run(by_another_name, 4, backend=backend)[:3]
    assert all(torch.equal(model, other) for (model, *_), other in zip(usual, others, strict=True))


def train_alone(group, member):
    assert Communicator.over(group).size == 1
    net = network()
    node = make(group, member, "ring", net)
    steps(node, range(3), 0)
    return weights(net), node.consensus_distance()


@pytest.mark.parametrize("member", MEMBERS)
def test_one_rank_is_ordinary(pool, member):
    model, distance = pool.run(train_alone, 1, member=member)[0]
    assert torch.isfinite(model).all()
    assert distance == 0.0


def checkpoint(node) -> dict:
    buffer = io.BytesIO()
    state = {"model": node.model.state_dict(), "optimizer": node.optimizer.state_dict(), "node": node.state_dict()}
    torch.save(state, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


def interrupted(group, member):
    """Twelve steps without a stop; and six, a checkpoint, a new model, six more; and the same without our state."""
    rank = torch.distributed.get_rank(group)
    whole = make(group, member, "ring", network(seed=rank))
    steps(whole, range(12), rank)

    first = make(group, member, "ring", network(seed=rank))
    steps(first, range(6), rank)
    saved = checkpoint(first)
    found = [weights(whole.model)]
    for remembers in (True, False):
        node = make(group, member, "ring", network(seed=99))
        node.model.load_state_dict(saved["model"])
        node.optimizer.load_state_dict(saved["optimizer"])
        if remembers:
            node.load_state_dict(saved["node"])
        steps(node, range(6, 12), rank)
        found.append(weights(node.model))
        node.close()
    whole.close()
    first.close()
    return found


@pytest.mark.parametrize("member", [m for m in MEMBERS if m != "dpsgd"])
def test_resume_is_bit_exact(pool, member):
    """Law 9; D-PSGD's estimates are the models, so that it has nothing to forget."""
    for whole, resumed, forgetful in pool.run(interrupted, 3, member=member):
        assert torch.equal(whole, resumed)
        assert not torch.equal(whole, forgetful)


def disagree(group, field):
    rank = torch.distributed.get_rank(group)
    options = {"codec": FINE, "seed": 0, "policy": SMALL, "group": group}
    topology = Ring()
    if field == "seed":
        options["seed"] = rank % 2
    elif field == "bits":
        options["codec"] = NUQSGD(bits=8 if rank == 1 else 4, bucket_size=256)
    elif field == "topology":
        topology = Star() if rank == 1 else Ring()
    net = network()
    steps(ECDPSGD(net, sgd(net), topology, **options), range(1), rank)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("seed", "seed is 0 on rank 0 and 1 on rank 1"),
        ("bits", "quantizer is NUQSGD(bits=4"),
        ("topology", "topology is Ring() on rank 0 and Star(hub=0) on rank 1"),
    ],
)
def test_ranks_that_disagree_are_told(pool, field, said):
    for good, result in pool.outcomes(disagree, 3, field=field):
        assert not good
        kind, message, _ = result
        assert kind == "Disagreement"
        assert said in message


def oversized(group):
    """Rank 1 announces a code longer than its codec can make."""
    place = Neighbours.open(Ring(), group)
    try:
        own = torch.tensor([10**6 if place.rank == 1 else 10])
        place.announce(own, [100], {j: Accounting() for j in place.ranks})
    except laconic.CorruptPayload as error:
        return str(error)
    return None


def test_a_neighbour_s_lengths_are_not_trusted(pool):
    told = pool.run(oversized, 2)[0]
    assert "edge 0–1: rank 1 announces codes of [1000000] bytes" in told


def disappearing(rank, store, way, pipe):
    """One of four ranks; the second dies or hangs, the others tell what they are told."""
    torch.distributed.init_process_group("gloo", f"file://{store}", timedelta(seconds=120), 4, rank)
    net = network()
    node = ECDPSGD(net, sgd(net), Ring(), FINE, policy=SMALL, timeout=timedelta(seconds=120))
    steps(node, range(3), rank)  # may have to compile kernels
    node.neighbours = replace(node.neighbours, timeout=timedelta(seconds=2))
    if rank == 1:
        if way == "hangs":
            pipe.poll(None)  # answers nobody, and ends with the test
        os._exit(17)
    try:
        steps(node, range(3, 6), rank)
    except Exception as error:  # noqa: BLE001 (told to the test)
        pipe.send((type(error).__name__, str(error)))
        pipe.poll(None)  # its own end must not be what the others notice
    os._exit(0)


@pytest.mark.parametrize("way", ["dies", "hangs"])
def test_a_neighbour_that_disappears_is_named_by_its_edge(tmp_path, way):
    with forked(disappearing, 4, str(tmp_path / "store"), way) as (ranks, pipes):
        told = {rank: pipes[rank].recv() for rank in (0, 2)}
    assert ranks[1].exitcode == 17
    for rank, edge in ((0, "0–1"), (2, "1–2")):
        kind, text = told[rank]
        assert kind == "ExchangeFailed"
        assert f"on rank {rank} of 4, on edge {edge}: rank 1 stopped" in text
        assert "within 2 s" in text
