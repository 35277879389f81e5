"""A codec for the weights of sharded models: every rank computes with the same bits, close to the shards themselves."""

import pytest
import torch
import torch.distributed as dist
from models import batch, sgd, train
from test_fsdp import NUQSGD_4, POLICY, copies, shard

import laconic
from laconic import Differences, Dithered, Policy, QSGDInf
from laconic.training.fsdp_weights import UnitGather

WEIGHTS = {
    "fp32": "fp32",
    "bf16": "bf16",
    "8 bits": QSGDInf(bits=8, bucket_size=64),
    "differences": Differences(),
    "differences, 4 bits": Differences(QSGDInf(bits=4, bucket_size=64)),
    "differences, bf16": Differences("bf16"),
    "differences, dithered": Differences(Dithered(error=0.05)),
}
LARGEST_ERROR = {"fp32": 0.0, "bf16": 2**-8, "8 bits": 0.1}
"""Of each weight over the largest, where no differences are sent."""


class Watched:
    """Every gather in this block: unit, whether in backward, the weights of all ranks, and their shards as they are."""

    def __enter__(self):
        self.original, found = UnitGather.__call__, []

        def gather(unit, output_tensor, input_tensor, group, async_op=False):
            shards = torch.empty_like(output_tensor)
            dist.all_gather_into_tensor(shards, input_tensor.clone(), group=group)
            self.original(unit, output_tensor, input_tensor, group)
            found.append((unit.unit.name, torch._C._current_graph_task_id() != -1, output_tensor.clone(), shards))

        UnitGather.__call__ = gather
        return found

    def __exit__(self, *error):
        UnitGather.__call__ = self.original


def gathered(group, weights, n_steps=3, reshard=True, hybrid=False, policy=POLICY, broken=False):
    """What is gathered in a few steps, and the statistics; if broken, weights are NaN at step 1, 0.5 from then on."""
    rank, options = dist.get_rank(group), {"mesh": copies()} if hybrid else {}
    compress = {"weight_codec": WEIGHTS.get(weights, weights), "policy": policy}
    model, found = shard(group, NUQSGD_4, compress=compress, reshard_after_forward=reshard, **options), []
    for step in range(n_steps):
        if broken and step:
            model[2].weight.data.fill_(torch.nan if step == 1 else 0.5)
        with Watched() as gathers:
            model(batch(rank, step)[0]) if broken else train(model, sgd(model), [step], rank)
        found.append(gathers)
    return found, laconic.stats(model)


KINDS = ("8 bits", "differences", "differences, dithered")
"""Weights that are sent each time, that are kept, and whose size differs: tried in every way to reshard, each time."""
WAYS = [(2, True), (3, True), (2, False), (4, 2), (4, "copies")]


@pytest.mark.parametrize(
    ("weights", "size", "reshard"),
    [
        pytest.param(name, *way, marks=[] if name in KINDS or way == (2, True) else [pytest.mark.exhaustive])
        for name in WEIGHTS
        for way in WAYS
    ],
)
def test_every_rank_computes_with_the_same_weights(pool, weights, size, reshard):
    """In forward as in backward, and as close to the shards as the codec promises."""
    options = {"hybrid": True} if reshard == "copies" else {"reshard": reshard}
    (steps, _), *others = pool.run(gathered, size, weights=weights, **options)
    before = {}
    for step, gathers in enumerate(steps):
        forward = {name: values for name, in_backward, values, _ in gathers if not in_backward}
        for i, (name, in_backward, values, shards) in enumerate(gathers):
            assert all(torch.equal(other[step][i][2], values) for other, _ in others) or (reshard, in_backward) == (
                2,
                True,
            )
            if in_backward and reshard != 2:
                assert torch.equal(values, forward[name])
            elif not in_backward:
                moved = (shards - before.get(name, shards)).abs().max()
                most = LARGEST_ERROR[weights] * shards.abs().max() if weights in LARGEST_ERROR else 0.5 * moved
                assert float((values - shards).abs().max()) <= most
                before[name] = shards


def errors(steps):
    """Of all gathers of each step, beside the shards."""
    return [sum(float((values - shards).norm()) for _, _, values, shards in gathers) for gathers in steps]


def test_errors_do_not_add_up(pool):
    found = errors(pool.run(gathered, 2, weights="differences", n_steps=12)[0][0])
    assert found[0] == 0.0
    assert max(found[6:]) < 3 * max(found[1:6])


def test_warm_up(pool):
    found = errors(pool.run(gathered, 2, weights="bf16", policy=Policy(0, 0, warmup_steps=2), n_steps=4)[0][0])
    assert [error == 0.0 for error in found] == [True, True, False, False]


def test_weights_that_are_not_finite_can_be_again(pool):
    """A weight that is NaN reaches every rank; once the shards are repaired, so are the gathered weights."""
    for steps, _ in pool.run(gathered, 2, weights="differences", n_steps=5, broken=True):
        finite = [all(torch.isfinite(values).all() for _, _, values, _ in gathers) for gathers in steps]
        assert finite == [True, False, True, True, True]
        assert errors(steps)[4] < 1e-3


def test_bytes_of_weights(pool):
    """Per step: two gathers, or one of differences."""
    found = {weights: pool.run(gathered, 2, weights=weights, n_steps=4)[0][1] for weights in (None, *WEIGHTS)}
    sent = {weights: stats["weight_bytes_sent"] for weights, stats in found.items()}
    assert all(stats["weight_bytes_received"] == pytest.approx(sent[name], rel=0.1) for name, stats in found.items())
    plain = 2 * 4 * (25 * 21 + 25 * 51 + 3 * 51)
    assert sent[None] == plain
    assert 0.5 < sent["bf16"] / plain < 0.8
    assert sent["differences"] < 0.35 * plain
    assert sent["differences, 4 bits"] < sent["differences"]
    assert found["differences"]["bytes_sent"] == found[None]["bytes_sent"]


def losses(group, weights, n_steps):
    """Mean loss of the last steps."""
    options = {"weight_codec": WEIGHTS[weights]} if weights else {}
    model = shard(group, "fp32" if weights else None, compress=options)
    found = train(model, sgd(model, 0.02), range(n_steps), dist.get_rank(group))
    return sum(found[-50:]) / 50


LOSSY = [name for name in WEIGHTS if name not in ("fp32", "differences")]


@pytest.mark.parametrize(
    "weights", ["differences", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in LOSSY)]
)
@pytest.mark.parametrize("n_steps", [60, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_loss_is_that_of_plain_training(pool, weights, n_steps):
    """The mean of the last fifty steps."""
    ours, plain = (sum(pool.run(losses, 2, weights=asked, n_steps=n_steps)) for asked in (weights, None))
    assert abs(ours / plain - 1) < 0.02
