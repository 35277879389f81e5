"""Laws 6, 7 and 8 over ranks: the fit of one process, whoever holds which columns, in as few messages as promised."""

import json
from functools import cache

import pytest
import torch

from glm.tables import EPOCHS, TOLERANCE, Case, M, N, assert_same_iterates, assert_same_losses, fit
from laconic import Codec, QSGDInf
from laconic.exchange import Communicator
from laconic.glm import Precision, State, begin, recipe, solve
from laconic.glm.solvers import ca_sgd

SHARES = {1: [[0, N]], 2: [[0, 2, N], [0, 0, N]], 3: [[0, 1, 4, N], [0, 4, 4, N], [0, 0, 0, N]]}
"""Where ranks cut the columns: unevenly, and so that some ranks hold none."""
CUTS = [cuts for shares in SHARES.values() for cuts in shares]

SPREAD = [
    Case("gaussian", momentum=0.9, weighted=True, batch_size=32),
    Case("bernoulli", layout="sparse", schedule="cosine", average=5, offset=True),
    Case("multinomial3", schedule="adaptive", order="replacement", intercept=False),
    Case("multinomial5", layout="sparse", momentum=0.9, gradient="sum", weighted=True),
    Case("poisson", layout="strided", order="cyclic", average=0, momentum=0.9, weighted=True, offset=True),
]
MEMBERS = [("sgd", 1), ("ca_sgd", 1), ("ca_sgd", 3), ("ca_sgd", 64)]


def fit_columns(group, case, cuts, members, dtype):
    """For each member: vectors at each epoch's end, history, accounting, messages."""
    comm = Communicator.over(group)
    problem = case.problem(dtype, columns=slice(cuts[comm.rank], cuts[comm.rank + 1]))
    results = []
    for solver, s in members:
        solution, ends = fit(problem, case.options(solver, s, dtype), comm=comm)
        results.append((ends, solution.history, solution.accounting, solution.messages))
    return results


def joined(parts: list[dict]) -> dict:
    """Vectors of all ranks as one; each has its replicated intercept as last column."""
    whole = {}
    for name, value in parts[0].items():
        columns = [part[name][:, :-1] for part in parts] + [value[:, -1:]]
        whole[name] = torch.cat(columns, 1) if len(value) else torch.empty(0, N)
    return whole


def timeless(history: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


SOME, ALL = [0, 4, 4, N], CUTS
"""Cuts for every case, and for one dense and one sparse case; `make test-all` has all of them for each."""
FITS = [(case, cuts, torch.float64) for case in SPREAD for cuts in CUTS] + [
    (case, SOME, torch.float32) for case in SPREAD
]


def rarely(case, cuts) -> list:
    return [] if cuts == SOME or case in SPREAD[:2] else [pytest.mark.exhaustive]


@cache
def fit_of_one_process(case, dtype):
    return fit(case.problem(dtype), case.options("sgd", dtype=dtype))


@pytest.mark.parametrize(
    ("case", "cuts", "dtype"),
    [pytest.param(case, cuts, dtype, marks=rarely(case, cuts)) for case, cuts, dtype in FITS],
    ids=str,
)
def test_ranks_fit_what_one_process_fits(pool, case, cuts, dtype):
    size = len(cuts) - 1
    ranks = pool.run(fit_columns, size, case=case, cuts=cuts, members=MEMBERS, dtype=dtype)
    expected, expected_ends = fit_of_one_process(case, dtype)
    for member in range(len(MEMBERS)):
        ends, histories = ([rank[member][i] for rank in ranks] for i in (0, 1))
        whole = [joined([rank[epoch] for rank in ends]) for epoch in range(EPOCHS)]
        assert_same_iterates(whole, expected_ends, TOLERANCE[dtype])
        assert_same_losses(histories[0], expected.history, TOLERANCE[dtype])
        for rank in range(1, size):  # what is replicated, to the last bit
            assert timeless(histories[rank]) == timeless(histories[0])
            for epoch in range(EPOCHS):
                for name, value in ends[0][epoch].items():
                    assert len(ends[rank][epoch][name]) == len(value)
                    assert torch.equal(ends[rank][epoch][name][:, -1:], value[:, -1:]) or not len(value)


def words_of_an_epoch(case: Case, s: int, n_outputs: int) -> int:
    """Σ over blocks of k C words (twice with momentum) and the strictly lower block triangle; the last may be short."""
    sizes = [min(case.batch_size, M - first) for first in range(0, M, case.batch_size)]
    words = 0
    for first in range(0, len(sizes), s):
        block = sizes[first : first + s]
        words += sum(block) * n_outputs * (2 if case.momentum else 1)
        words += sum(block[j] * sum(block[:j]) for j in range(len(block)))
    return words


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("case", [Case("bernoulli", batch_size=9), SPREAD[0], SPREAD[3]], ids=str)
def test_messages_and_bytes_are_those_promised(pool, case, size):
    members = [("sgd", 1), ("ca_sgd", 1), ("ca_sgd", 2), ("ca_sgd", 7)]
    ranks = pool.run(fit_columns, size, case=case, cuts=SHARES[size][0], members=members, dtype=torch.float32)
    n_batches, n_outputs = -(-M // case.batch_size), case.problem().family.n_outputs
    for rank in ranks:
        for (solver, s), (_, history, accounting, messages) in zip(members, rank, strict=True):
            if size == 1:
                assert (messages, accounting.bytes_sent, accounting.n_exchanges) == (0, 0, 0)
                continue
            blocks = -(-n_batches // s)
            assert messages == accounting.n_exchanges == EPOCHS * (blocks + 1)  # one more for the penalty
            assert [row["messages"] for row in history] == [(epoch + 1) * (blocks + 1) for epoch in range(EPOCHS)]
            words = M * n_outputs if solver == "sgd" else words_of_an_epoch(case, s, n_outputs)
            assert accounting.n_values == EPOCHS * (words + 1)
            expected = EPOCHS * (4 * words + 8) * 2 * (size - 1) / size
            assert abs(accounting.bytes_sent - expected) <= messages  # each message rounds down
            assert accounting.bytes_received == accounting.bytes_sent == history[-1]["bytes_sent"]


def test_the_formula_for_whole_blocks():
    """s b C + s (s − 1) / 2 · b² words a block."""
    case, s = Case("multinomial3", batch_size=9), 5
    assert words_of_an_epoch(case, s, 3) == 2 * (s * 9 * 3 + s * (s - 1) // 2 * 81)


CODEC = Codec(QSGDInf(bits=8, bucket_size=64))
WIRES = {"fp32": Precision(), "bf16": Precision(gram_wire="bf16"), "codec": Precision(gram_wire=CODEC)}
WIRES |= {"C": recipe("C"), "D": recipe("D")}
MORE = [("dense", 2), ("sparse", 3)]


def fit_over(group, case, precision, max_iter):
    """Coefficients, intercept, history, messages; and of the first block what went into the wire and what came out."""
    comm, seen, usual = Communicator.over(group), [], ca_sgd.Wire.sum
    cuts = SHARES[comm.size][0]
    problem = case.problem(precision.format("data").storage, columns=slice(cuts[comm.rank], cuts[comm.rank + 1]))

    def sums(self, margins, triangle, iteration):
        result = usual(self, margins, triangle, iteration)
        seen.append([t.clone() for t in (margins, triangle, *result)])
        return result

    ca_sgd.Wire.sum = sums
    try:
        settings = case.options("ca_sgd", 4, recipe=precision, max_iter=max_iter)
        state = begin(problem, settings)
        state.weights.x.fill_(1 / 3)  # margins of no weights would be nothing, and nothing rounds to nothing
        solution = solve(problem, settings, comm=comm, state=state)
    finally:
        ca_sgd.Wire.sum = usual
    return solution.state.coef, solution.state.intercept, solution.history, solution.messages, seen


@pytest.mark.parametrize(
    ("layout", "size"),
    [("dense", 3), ("sparse", 2), *(pytest.param(*both, marks=pytest.mark.exhaustive) for both in MORE)],
)
def test_a_narrow_wire_fits_nearly_as_well(pool, layout, size):
    case = Case("bernoulli", layout=layout, batch_size=8)
    losses = {}
    for name, precision in WIRES.items():
        ranks = pool.run(fit_over, size, case=case, precision=precision, max_iter=10)
        losses[name] = ranks[0][2][-1]["loss"]
        for _, intercept, history, _, seen in ranks[1:]:  # every rank holds the same bits
            assert torch.equal(intercept, ranks[0][1]), name
            assert [(row["loss"], row["objective"]) for row in history] == [
                (row["loss"], row["objective"]) for row in ranks[0][2]
            ], name
            for mine, first in zip(seen, ranks[0][4], strict=True):
                assert torch.equal(mine[2], first[2]), name
                assert torch.equal(mine[3], first[3]), name
    usual = losses.pop("fp32")
    for name, loss in losses.items():
        assert loss == pytest.approx(usual, rel=5e-3), name
        assert loss != usual, name


def test_a_codec_changes_the_gram_matrix_and_nothing_before_it(pool):
    """Margins as in fp32; of the Gram matrix, the levels of the second quantisation, and never far from the sum."""
    case = Case("bernoulli", batch_size=8)
    usual, coded = (
        [rank[4] for rank in pool.run(fit_over, 2, case=case, precision=WIRES[wire], max_iter=1)]
        for wire in ("fp32", "codec")
    )
    first = [[rank[0] for rank in ranks] for ranks in (usual, coded)]
    for a, b in zip(*first, strict=True):
        assert all(torch.equal(a[i], b[i]) for i in (0, 1, 2))
        assert not torch.equal(a[3], b[3])
    total, sent = first[0][0][3], first[1][0][3]
    for bucket, exact in zip(sent.split(64), total.split(64), strict=True):
        # levels of 8-bit QSGDInf are j / 127 of the largest value, which is itself a level
        levels = bucket / bucket.abs().max() * 127
        assert (levels - levels.round()).abs().max() < 1e-3
        parts = sum(rank[1].abs().max() for rank in first[1])
        assert (bucket - exact).abs().max() <= 3 * parts / 127
    assert not torch.equal(usual[0][1][2], coded[0][1][2])  # the next block begins from other weights


def test_a_codec_s_messages_are_two_a_block(pool):
    case, n_blocks = Case("bernoulli", batch_size=8), 3  # 12 batches, 4 at a time
    for precision, messages in ((WIRES["fp32"], n_blocks + 1), (WIRES["codec"], 2 * n_blocks + 1)):
        assert [rank[3] for rank in pool.run(fit_over, 2, case=case, precision=precision, max_iter=1)] == [messages] * 2


def resume_columns(group, case, cuts, solver, precision):
    """A fit never stopped, and one stopped in mid-epoch, put through JSON and gone on with."""
    comm = Communicator.over(group)
    problem = case.problem(torch.float32, columns=slice(cuts[comm.rank], cuts[comm.rank + 1]))
    settings = case.options(solver, 3, torch.float32, recipe=precision)
    whole = solve(problem, settings, comm=comm).state
    stopped = solve(problem, settings, comm=comm, callbacks=[lambda progress: progress.epoch == 1]).state
    tensors = {name: t.clone() for name, t in stopped.tensors().items()}
    again = State.restore(tensors, json.loads(json.dumps(stopped.numbers())))
    solve(problem, settings, comm=comm, state=again)
    return stopped.batch > 0 and all(torch.equal(t, whole.tensors()[name]) for name, t in again.tensors().items())


@pytest.mark.parametrize(("solver", "wire"), [("sgd", "fp32"), ("ca_sgd", "fp32"), ("ca_sgd", "codec")])
def test_going_on_is_never_having_stopped(pool, solver, wire):
    """Law 9, the codec's random numbers included."""
    case = Case("multinomial3", momentum=0.9, average=5, schedule="adaptive", weighted=True)
    assert all(pool.run(resume_columns, 3, case=case, cuts=SHARES[3][1], solver=solver, precision=WIRES[wire]))


def hold_back(group, cuts):
    comm = Communicator.over(group)
    case = Case("poisson", offset=True, weighted=True)
    held = torch.arange(60, M).numpy()
    columns = slice(cuts[comm.rank], cuts[comm.rank + 1])
    problem = case.problem(columns=columns, rows=torch.arange(60).numpy(), validation=held)
    solution = solve(problem, case.options("ca_sgd", 3), comm=comm)
    return [row["validation_loss"] for row in solution.history], solution.messages


def test_rows_held_back_cost_one_message_an_epoch(pool):
    (alone, _), ranks = pool.run(hold_back, 1, cuts=[0, N])[0], pool.run(hold_back, 3, cuts=SHARES[3][1])
    for losses, messages in ranks:
        assert losses == ranks[0][0]
        assert losses == pytest.approx(alone, rel=1e-12)
        assert messages == EPOCHS * (5 + 2)  # 15 batches, 3 at a time; penalty; rows held back


def diverge(group):
    comm = Communicator.over(group)
    case = Case("gaussian")
    cuts = SHARES[comm.size][0]
    problem = case.problem(columns=slice(cuts[comm.rank], cuts[comm.rank + 1]))
    solve(problem, case.options("ca_sgd", eta0=50.0, max_iter=100), comm=comm)


def test_every_rank_learns_of_divergence(pool):
    outcomes = pool.outcomes(diverge, 3)
    assert all(not good and kind == "Diverged" for good, (kind, _, _) in outcomes)
    assert len({message for _, (_, message, _) in outcomes}) == 1
