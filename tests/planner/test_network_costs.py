"""Messages: what each collective costs as ranks and bytes grow, and a step of training by hand."""

from dataclasses import replace

import pytest

from laconic import Policy
from laconic.errors import InvalidOption
from laconic.planner import DEFAULT, Cluster, CodecRates, Impossible, Link, NetworkJob, NetworkOption, plan
from laconic.planner.network import FEWEST_VALUES, cost
from laconic.planner.terms import WIRE, all_gather, all_reduce, scatter_reduce

LINK = Link(1e-5, 1e-9)
BITS = {"fp32": 32, "bf16": 16, "nuqsgd-8": 8, "nuqsgd-4": 4}
CODEC = CodecRates(4.0, 1e-6, 1e-9, 2e-9, 3e-9, 4e-9)


def cluster(n_ranks, **more):
    return Cluster(n_ranks, LINK, LINK, LINK, codecs={"nuqsgd-4": CODEC, "fp32": CODEC, "bf16": CODEC}, **more)


def wire_bytes(terms):
    return sum(term.count for term in terms if term.unit == "bytes")


@pytest.mark.parametrize("n_ranks", [2, 4, 64, 10_000])
def test_bytes_of_the_exchanges(n_ranks):
    """all_gather: (P − 1) codes; scatter_reduce: 2 (P − 1) / P codes, never above two; a ring: 2 (P − 1) / P values."""
    n = 2**30
    assert wire_bytes(all_gather(n, CODEC, cluster(n_ranks))) == (n_ranks - 1) * n / 2
    assert wire_bytes(scatter_reduce(n, CODEC, cluster(n_ranks))) == pytest.approx(2 * (n_ranks - 1) / n_ranks * n / 2)
    assert wire_bytes(all_reduce(4 * n, LINK, n_ranks)) == pytest.approx(2 * (n_ranks - 1) / n_ranks * 4 * n)


def test_a_chunk_is_at_least_a_bucket():
    assert wire_bytes(scatter_reduce(512, CODEC, cluster(4))) == 2 * 3 * 512 / 2


@pytest.mark.parametrize(("n_bytes", "way"), [(8, "tree"), (10**9, "ring")])
def test_best_is_the_cheaper_all_reduce(n_bytes, way):
    def seconds(algorithm):
        return sum(term.seconds for term in all_reduce(n_bytes, LINK, 1024, algorithm))

    other = {"tree": "ring", "ring": "tree"}[way]
    assert seconds("best") == seconds(way) < seconds(other)


def test_one_rank_sends_nothing():
    for terms in (all_gather(100, CODEC, cluster(1)), scatter_reduce(100, CODEC, cluster(1)), all_reduce(4, LINK, 1)):
        assert not [term for term in terms if term.kind == WIRE]


def test_a_step_by_hand():
    """n = 2²⁰, P = 4, 4 bits: encode 5 calls of 1.25 n values, twice 3 messages of n/8 bytes, decode 5 calls of 2 n."""
    n = 2**20
    got = cost(NetworkJob(n, 0.5, 0.25), NetworkOption("nuqsgd-4", "scatter_reduce"), cluster(4)).seconds
    want = 0.75 + 10e-6 + 1.25 * n * 3e-9 + 6 * 1e-5 + 6 * n / 8 * 1e-9 + 2 * n * 7e-9
    assert got == pytest.approx(want, rel=1e-12)


def test_an_all_gather_decodes_every_rank_s_code():
    n = 2**20
    got = cost(NetworkJob(n), NetworkOption("nuqsgd-4", "all_gather"), cluster(4)).seconds
    assert got == pytest.approx(2e-6 + n * 3e-9 + 3e-5 + 3 * n / 2 * 1e-9 + 4 * n * 7e-9, rel=1e-12)


@pytest.mark.parametrize(
    ("codec", "weights", "gathers", "n_bytes"),
    [
        ("fp32", "fp32", 2, 12),
        ("bf16", "fp32", 2, 10),
        ("nuqsgd-4", "fp32", 1, 4.5),
        ("nuqsgd-4", "bf16", 2, 4.5),
        ("nuqsgd-4", "differences", 2, 1.5),
    ],
)
def test_bytes_of_a_sharded_step(codec, weights, gathers, n_bytes):
    """(P − 1) / P of what the reduce-scatter and the gathers carry, per value."""
    rates = {name: CodecRates(bits, 0, 0, 0, 0, 0) for name, bits in BITS.items()}
    found = cost(
        NetworkJob(2**20, gathers=gathers),
        NetworkOption(codec, "reduce_scatter", weights),
        Cluster(4, LINK, LINK, LINK, codecs=rates),
    )
    assert wire_bytes(found.terms) == pytest.approx(0.75 * 2**20 * n_bytes)


def test_a_sharded_network_is_planned_with_what_its_weights_cost():
    """Differences pay on slow links if there is memory for them; a fast one needs neither."""
    job, slow = NetworkJob(10**8, 0.1, gathers=2), DEFAULT.what_if(bits_per_second=1e9)
    assert plan(job, slow).recommended.option.label == "nuqsgd-4 reduce_scatter, weights differences"
    assert plan(job, replace(slow, memory_bytes=3e8)).recommended.option.weights == "bf16"
    fast = plan(job, DEFAULT.what_if(bits_per_second=1e13, alpha_seconds=0.0))
    assert fast.recommended.option.label == "fp32 reduce_scatter"
    assert not fast.compresses
    with pytest.raises(InvalidOption, match="gathers must be a whole number from 0 to 2; got 3"):
        NetworkJob(10, gathers=3)


def test_what_is_never_compressed_is_not_planned_to_be():
    assert Policy().min_values == FEWEST_VALUES
    for n, compressed in ((1, False), (FEWEST_VALUES - 1, False), (FEWEST_VALUES, True)):
        found = plan(NetworkJob(n), DEFAULT.what_if(bits_per_second=1e7))
        assert any(choice.option.compressed for choice in found.predictions) == found.compresses == compressed
        assert (found.crossing() == "compression pays at no rate of the link") == (not compressed)


def test_messages_hide_behind_backward_but_for_the_last_group():
    job, way = NetworkJob(4 * 2**20, 10.0), NetworkOption("fp32", "all_reduce")
    got = cost(job, way, cluster(4))
    assert got.hidden == got.wire_seconds < 7.5
    slow = cost(job, way, cluster(4).what_if(bits_per_second=1e5))
    assert slow.hidden == 7.5
    assert slow.seconds == pytest.approx(slow.work_seconds + slow.wire_seconds - 7.5)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: NetworkJob(0), "at least 1 parameter"),
        (lambda: NetworkJob(10, -1.0), "backward_seconds"),
        (lambda: cost(NetworkJob(10), NetworkOption("zip", "all_gather"), cluster(2)), "no rates of zip"),
    ],
)
def test_impossible(ask, said):
    with pytest.raises(Impossible, match=said):
        ask()
