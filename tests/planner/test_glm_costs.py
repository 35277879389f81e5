"""Counts and costs of SGD and CA-SGD: the published orders, by doubling one thing at a time; then the arithmetic."""

from dataclasses import replace

import pytest

from laconic.planner import DEFAULT, Cluster, GlmJob, GlmOption, Impossible, Link, SolverRates
from laconic.planner.glm import average_cost, blocks_per_average, cost, counts, options
from laconic.planner.terms import all_reduce

JOB = GlmJob(n_rows=2**20, n_features=2**14, batch_size=16)
SGD, CA = GlmOption("sgd", "fp32"), GlmOption("ca_sgd", "fp32", s=64)


def per_iteration(job, option, n_ranks):
    """Flops that matter at scale, words and messages of one iteration, with an all-reduce along a tree."""
    c = counts(job, option, n_ranks)
    messages, volume = all_reduce(c.words, Link(1.0, 1.0), n_ranks, "tree")
    flops = c.gemm_flops or c.gemv_flops
    return {"flops": flops / option.s, "words": volume.count / option.s, "messages": messages.count / option.s}


# (algorithm, what is changed, by how much flops, words and messages of an iteration grow)
# SGD: b n / P flops, b log P words, log P messages; CA-SGD: s b² n / P, s b² log P, log P / s. arXiv 2011.08281
PUBLISHED = [
    (SGD, {"n_features": 2**15}, {}, 16, (2, 1, 1)),
    (SGD, {"batch_size": 32}, {}, 16, (2, 2, 1)),
    (SGD, {}, {}, 256, (1 / 16, 2, 2)),
    (SGD, {"density": 0.5}, {}, 16, (0.5, 1, 1)),
    (CA, {"n_features": 2**15}, {}, 16, (2, 1, 1)),
    (CA, {"batch_size": 32}, {}, 16, (4, 4, 1)),
    (CA, {}, {}, 256, (1 / 16, 2, 2)),
    (CA, {}, {"s": 128}, 16, (2, 2, 0.5)),
    (CA, {"density": 0.5}, {}, 16, (0.5, 1, 1)),
]


@pytest.mark.parametrize(("option", "of_job", "of_option", "n_ranks", "growth"), PUBLISHED)
def test_published_orders(option, of_job, of_option, n_ranks, growth):
    job = GlmJob(**{"n_rows": JOB.n_rows, "n_features": JOB.n_features, "batch_size": JOB.batch_size, **of_job})
    other = GlmOption(option.solver, option.recipe, of_option.get("s", option.s))
    before, after = per_iteration(JOB, option, 16), per_iteration(job, other, n_ranks)
    for name, times in zip(before, growth, strict=True):
        assert after[name] / before[name] == pytest.approx(times, rel=0.02), name


def test_ca_sgd_sends_s_times_the_gram_blocks_and_one_message():
    sgd, ca = counts(JOB, SGD, 4), counts(JOB, CA, 4)
    assert ca.messages == sgd.messages == 1
    assert sgd.words == 16
    assert ca.words == 64 * 16 + 16 * 16 * 64 * 63 // 2


def test_memory_is_the_columns_and_the_block():
    job = GlmJob(1000, 100, batch_size=10)
    plain, half = (counts(job, GlmOption("sgd", recipe), 4).memory_bytes for recipe in ("fp32", "C"))
    assert plain - half == 1000 * 25 * 2
    assert counts(job, GlmOption("ca_sgd", "fp32", 8), 4).memory_bytes > plain


RATES = SolverRates(1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
HAND = Cluster(2, Link(1e7, 1e8), Link(0, 0), Link(0, 0), {"ca_sgd fp32": RATES})


def test_the_arithmetic_by_hand():
    """b = 2, s = 3, n_p = 5: k = 6 rows, 30 values, 240 and 120 flops, 12 entries, 4 · 18 bytes in a ring of 2."""
    got = cost(GlmJob(100, 10, batch_size=2), GlmOption("ca_sgd", "fp32", 3), HAND)
    want = 1 + 3 * 10 + 6 * 100 + 30e3 + 240e4 + 120e5 + 12e6 + 2 * 1e7 + 72e8
    assert got.seconds == pytest.approx(want / 3, rel=1e-12)
    assert sum(term.seconds for term in got.terms) == pytest.approx(want, rel=1e-12)


def test_one_process_has_all_columns_and_no_messages():
    alone = {"sgd fp32": RATES, "sgd fp32, one process": replace(RATES, iteration_seconds=2.0)}
    job = GlmJob(100, 10, batch_size=2)
    got = cost(job, GlmOption("sgd", "fp32", alone=True), replace(HAND, solvers=alone))
    assert got.seconds == pytest.approx(2 + 10 + 2 * 100 + 20e3 + 80e4, rel=1e-12)
    assert got.wire_seconds == 0
    assert counts(job, GlmOption("sgd", "fp32", alone=True), 2) == counts(job, GlmOption("sgd", "fp32"), 1)


def test_teams_average_more_seldom_where_there_are_more_of_them_and_for_a_tenth_of_the_time():
    job, option, team = GlmJob(10_000, 2000, batch_size=8), GlmOption("ca_sgd", "C", 32), DEFAULT.what_if(2)
    every = [blocks_per_average(job, option, teams, team) for teams in (2, 4, 16)]
    assert every == sorted(every)
    assert every[0] > 1
    block = 32 * cost(job, replace(option, recipe="fp32"), team).seconds
    for teams, blocks in zip((2, 4, 16), every, strict=True):
        average = average_cost(job, teams, team)
        assert average.seconds <= 0.1 * blocks * block < average.seconds + 0.1 * block


@pytest.mark.parametrize(
    ("n", "messages", "n_bytes"),
    [(2000, 3, 3 * 4 * 1001), (2**18, 6 + 3, 1.5 * 4 * 2**17 + 3 * 4)],
    ids=["gathered", "summed, and the intercept gathered"],
)
def test_an_average_of_four_teams_of_two_ranks_sends_what_its_code_does(n, messages, n_bytes):
    terms = average_cost(GlmJob(10_000, n), 4, DEFAULT.what_if(2)).terms
    sent = {unit: sum(term.count for term in terms if term.unit == unit) for unit in ("messages", "bytes")}
    assert sent == {"messages": messages, "bytes": n_bytes}


def test_one_rank_sends_nothing():
    assert cost(JOB, SGD, Cluster(1, HAND.all_reduce, HAND.narrow, HAND.all_to_all, DEFAULT.solvers)).wire_seconds == 0


IMPOSSIBLE = {
    "s above an epoch": (lambda: options(GlmJob(100, 10, batch_size=50), DEFAULT, s=4), None),
    "batch above the rows": (lambda: GlmJob(10, 10, batch_size=11), "a batch of 11 rows does not fit into 10"),
    "one class": (lambda: GlmJob(10, 10, family="multinomial", batch_size=2), "give n_outputs, the number of classes"),
    "outputs of one": (lambda: GlmJob(10, 10, n_outputs=7, batch_size=2), "take family='multinomial' for 7 classes"),
    "density": (lambda: GlmJob(10, 10, density=0.0), "density"),
    "a loss gap of no number": (
        lambda: GlmJob(100, 10, loss_gap=float("nan")),
        "loss_gap must be a number of at least 0",
    ),
    "a loss gap without end": (
        lambda: GlmJob(100, 10, loss_gap=float("inf")),
        "loss_gap must be a number of at least 0",
    ),
    "no rates": (lambda: cost(JOB, SGD, HAND), "no rates of sgd fp32"),
    "rows": (lambda: GlmJob(0, 10), "n_rows"),
}


@pytest.mark.parametrize(("ask", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible(ask, said):
    if said is None:
        with pytest.raises(Impossible, match="s = 4 iterations are more than the 2 of an epoch"):
            [cost(GlmJob(100, 10, batch_size=50), way, DEFAULT) for way in ask()]
    else:
        with pytest.raises(Impossible, match=said):
            ask()


def test_what_does_not_fit_is_left_out_and_if_nothing_fits_one_error_says_so():
    job = GlmJob(10_000, 1000, batch_size=100)
    need = [counts(job, way, 4).memory_bytes for way in options(job, DEFAULT)]
    tight = replace(DEFAULT, memory_bytes=sorted(need)[len(need) // 2])
    assert 0 < len(options(job, tight)) < len(need)
    with pytest.raises(Impossible, match="does not fit; use more ranks"):
        options(job, replace(DEFAULT, memory_bytes=1000.0))
