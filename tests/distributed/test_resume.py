"""Law 9: stop, reload, go on = never stopped, bit for bit, error memory and random streams included."""

import io

import pytest
import torch
from models import adamw, sgd, train, weights, wrap

import laconic
from laconic import NUQSGD, Codec, ErrorFeedback, Sign

CODECS = {
    "nuqsgd": NUQSGD(bits=4, bucket_size=256),
    "ef-sign": ErrorFeedback(Sign(bucket_size=256)),
    "ef-dithered": ErrorFeedback(laconic.Dithered(error=0.3)),
    "dithered": laconic.Dithered(error=0.3),
    "ef-rotated": ErrorFeedback(laconic.Rotated(bits=2, bucket_size=256)),
    "ef-nuqsgd-rans": Codec(ErrorFeedback(NUQSGD(bits=2, bucket_size=256)), laconic.RANS()),
}


def checkpoint(model, optimizer) -> bytes:
    buffer = io.BytesIO()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "laconic": laconic.state_dict(model)}
    torch.save(state, buffer)
    return buffer.getvalue()


METRICS = {
    "none": (sgd, "none"),
    "model": (sgd, "auto"),
    "tensor": (adamw, "tensor"),
    "second moment": (adamw, "auto"),
}


def interrupted(group, codec, exchange, metric):
    """Eight steps without a stop; and four, a checkpoint, a new model, four more, with our state and without."""
    rank = torch.distributed.get_rank(group)
    make, name = METRICS[metric]
    options = {"exchange": exchange, "make": make, "metric": name}
    whole, first, second, forgetful = (wrap(group, CODECS[codec], **options) for _ in range(4))
    train(whole, whole.optimizer, range(8), rank)
    train(first, first.optimizer, range(4), rank)
    saved = torch.load(io.BytesIO(checkpoint(first, first.optimizer)), weights_only=True)
    for model in (second, forgetful):
        model.load_state_dict(saved["model"])
        model.optimizer.load_state_dict(saved["optimizer"])
    laconic.load_state_dict(second, saved["laconic"])
    for model in (second, forgetful):
        train(model, model.optimizer, range(4, 8), rank)
    return weights(whole), weights(second), weights(forgetful)


@pytest.mark.parametrize(
    ("codec", "exchange", "metric"),
    [
        ("nuqsgd", "all_gather", "none"),
        ("ef-sign", "scatter_reduce", "none"),
        ("ef-nuqsgd-rans", "all_gather", "none"),
        ("ef-dithered", "scatter_reduce", "second moment"),
        ("dithered", "scatter_reduce", "model"),
        ("ef-rotated", "all_gather", "none"),
        ("nuqsgd", "scatter_reduce", "tensor"),
        pytest.param("nuqsgd", "scatter_reduce", "none", marks=pytest.mark.exhaustive),
        pytest.param("ef-sign", "all_gather", "tensor", marks=pytest.mark.exhaustive),
        pytest.param("ef-nuqsgd-rans", "scatter_reduce", "second moment", marks=pytest.mark.exhaustive),
        pytest.param("ef-dithered", "scatter_reduce", "none", marks=pytest.mark.exhaustive),
    ],
)
def test_resume_is_bit_exact(pool, codec, exchange, metric):
    for whole, resumed, forgetful in pool.run(interrupted, 3, codec=codec, exchange=exchange, metric=metric):
        assert torch.equal(whole, resumed)
        assert not torch.equal(whole, forgetful)  # without the state it would differ


def saved_states(group, codec="ef-sign"):
    rank = torch.distributed.get_rank(group)
    model = wrap(group, CODECS[codec])
    train(model, sgd(model), range(3), rank)
    return laconic.state_dict(model)


def loaded(group, states, codec="ef-sign"):
    model = wrap(group, CODECS[codec])
    laconic.load_state_dict(model, states)
    return laconic.state_dict(model)


@pytest.mark.parametrize("former", [1, 3])
def test_another_number_of_ranks_keeps_the_mean_memory(pool, former):
    before = pool.run(saved_states, former)
    after = pool.run(loaded, 2, states=before)
    for state in after:
        assert state["step"] == 3
        assert state["world_size"] == 2
        for name, memory in state["memory"].items():
            mean = torch.stack([s["memory"][name] for s in before]).mean(dim=0)
            assert torch.allclose(memory, mean, atol=1e-7)
            assert memory.abs().sum() > 0


def test_all_states_at_the_same_size_means_one_s_own(pool):
    before = pool.run(saved_states, 2)
    for own, state in zip(before, pool.run(loaded, 2, states=before), strict=True):
        assert all(torch.equal(own["memory"][name], memory) for name, memory in state["memory"].items())


@pytest.mark.parametrize("former", [1, 2, 3])
def test_without_memory_any_rank_s_state_will_do(pool, former):
    state = pool.run(saved_states, former, codec="nuqsgd")[-1]
    for rank, after in enumerate(pool.run(loaded, 2, states=state, codec="nuqsgd")):
        assert (int(after["step"]), int(after["rank"]), after["memory"]) == (3, rank, {})


def through_distributed_checkpoint(group, folder):
    import torch.distributed.checkpoint as dcp

    rank = torch.distributed.get_rank(group)
    model = wrap(group, CODECS["ef-sign"], metric="tensor")
    train(model, sgd(model), range(3), rank)
    saved = laconic.state_dict(model)
    dcp.save({f"laconic.{rank}": saved}, checkpoint_id=folder, process_group=group)

    fresh = wrap(group, CODECS["ef-sign"], metric="tensor")
    state = {f"laconic.{rank}": laconic.state_dict(fresh)}
    dcp.load(state, checkpoint_id=folder, process_group=group)
    laconic.load_state_dict(fresh, state[f"laconic.{rank}"])
    return saved, laconic.state_dict(fresh)


@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoint_keeps_every_rank_s_memory(pool, tmp_path):
    ranks = pool.run(through_distributed_checkpoint, 2, folder=str(tmp_path / "checkpoint"))
    for saved, loaded_again in ranks:
        assert int(loaded_again["step"]) == 3
        assert int(loaded_again["rank"]) == int(saved["rank"])
        assert all(torch.equal(loaded_again["memory"][name], memory) for name, memory in saved["memory"].items())
        assert saved["metric"]["0.weight"] > 0
        assert torch.equal(loaded_again["metric"]["0.weight"], saved["metric"]["0.weight"])
    first, second = (saved["memory"]["0.weight"] for saved, _ in ranks)
    assert not torch.equal(first, second)


@pytest.fixture(scope="module")
def three_states(pool):
    return pool.run(saved_states, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[0], "this state is from 3 ranks and there are 2 now"),
        (lambda s: s[:2], "need the states of ranks 0 to 2, got \\[0, 1\\]"),
        (lambda s: [], "got no state"),
        (
            lambda s: {"model": {}, "laconic": s[0]},
            "takes what state_dict gave; this has no 'format', but model, laconic",
        ),
        (lambda s: [s[0], "state-1.pt"], "takes what state_dict gave, got str"),
        (lambda s: {"format": 1}, "takes what state_dict gave; this has no 'step', but format"),
        (lambda s: {**s[1], "world_size": 2}, "this state is from rank 1 and this is rank 0, whose memory is another"),
        (lambda s: [s[0], s[1], {**s[2], "step": 9}], "not of one moment: their step is 3 and 9"),
        (lambda s: [s[0], s[1], {**s[2], "seed": 9}], "not of one moment: their seed is 0 and 9"),
        (lambda s: {**s[0], "format": 9, "world_size": 2}, "state has format 9, this laconic reads 1"),
        (lambda s: {**s[0], "memory": {}, "world_size": 2}, "state and model differ in the memory of 0.weight"),
        (lambda s: [s[0], s[1], {**s[2], "memory": {}}], "state and model differ in the memory of 0.weight"),
        (lambda s: [*s[:2], s[2] | {"step": torch.tensor(-1)}], "state: step must be a whole number .*; got -1"),
        (lambda s: [*s[:2], s[2] | {"memory": [1.0]}], "state has no tensors by name as its memory, but list"),
        (lambda s: [*s[:2], s[2] | {"metric": {"0.weight": 1.0}}], "as its metric of 0.weight, but float"),
        (
            lambda s: [*s[:2], s[2] | {"memory": s[2]["memory"] | {"0.weight": torch.ones(1, dtype=torch.cfloat)}}],
            "memory of 0.weight must be a dense tensor of real numbers; the state has torch.complex64",
        ),
        (
            lambda s: [*s[:2], s[2] | {"memory": s[2]["memory"] | {"0.weight": torch.ones(1, 20)}}],
            "memory of 0.weight has shape",
        ),
    ],
)
def test_wrong_states_are_refused(pool, three_states, change, message):
    states = change(three_states)
    with pytest.raises(AssertionError, match=message):
        pool.run(loaded, 2, states=states)
