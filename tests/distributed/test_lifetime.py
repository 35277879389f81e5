"""From `compress` to the end of a model: copies, one rank alone, other codecs, closing, and errors that stay."""

import copy
import gc
import io
import logging
import logging.handlers
import os
import sys
import threading
import warnings
from unittest import mock

import pytest
import torch
from models import adamw, batch, network, sgd, train, weights, wrap
from test_fsdp import copies, shard
from torch.nn.parallel import DistributedDataParallel

import laconic
from forking import forked
from laconic import NUQSGD, Codec, ErrorFeedback, Policy, Sign
from laconic.training.compressor import Compressor

SMALL = Policy(min_values=100, group_values=1000)
KINDS = ("DDP", "FSDP", "HSDP")


def compressed(group, codec, kind, **policy):
    """A model under DDP, a sharded one, or copies of a sharded one."""
    policy = Policy(min_values=100, group_values=1000, **policy)
    if kind == "DDP":
        return wrap(group, codec, policy=policy)
    return shard(group, codec, compress={"policy": policy}, **({"mesh": copies()} if kind == "HSDP" else {}))


def deep(model):
    return copy.deepcopy(model)


def pickled(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def averaged(model):
    return torch.optim.swa_utils.AveragedModel(model).module


def copied(group, how):
    """A copy of a compressed model trains, uncompressed or compressed anew; the first one is as it was."""
    rank = torch.distributed.get_rank(group)
    model = wrap(None, "nuqsgd")
    train(model, sgd(model), range(2), rank)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other = how(model)
    assert ["a copy of a compressed model is not compressed" in str(one.message) for one in said] == [True]
    with pytest.raises(ValueError, match="not compressed"):
        laconic.stats(other)
    train(other, sgd(other), range(2), rank)
    laconic.compress(other, "nuqsgd", policy=SMALL) if how is deep else None
    train(model, sgd(model), range(2), rank)
    return weights(model), laconic.stats(model)["steps"]


@pytest.mark.parametrize("how", [deep, pickled, averaged])
def test_a_copy_is_not_compressed(pool, how):
    first, *others = pool.run(copied, 4, how=how)
    assert first[1] == 4
    assert all(torch.equal(first[0], other[0]) for other in others)


def alone(group, policy):
    """What one rank's gradient differs by from plain DDP's, and what is said of it."""
    handler = logging.handlers.BufferingHandler(100)
    logger = logging.getLogger("laconic")
    logger.addHandler(handler), logger.setLevel(logging.INFO)
    gradients = []
    for codec in (None, "nuqsgd"):
        model = wrap(group, codec, policy=policy)
        torch.nn.functional.cross_entropy(model(batch(0, 0)[0]), batch(0, 0)[1]).backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    logger.removeHandler(handler)
    said = [record.getMessage() for record in handler.buffer if "alone" in record.getMessage()]
    return torch.equal(*gradients), said, laconic.stats(model)


def test_one_rank_is_left_as_it_is(pool):
    same, said, stats = pool.run(alone, 1, policy=SMALL)[0]
    assert same
    assert said == ["one rank trains alone: its gradients are left as they are; Policy(alone=True) quantises them"]
    assert stats["codec"].endswith("not used by one rank alone")
    assert stats["ratio"] != stats["ratio"]  # nothing was sent
    same, said, stats = pool.run(alone, 1, policy=Policy(min_values=100, alone=True))[0]
    assert not same
    assert not said


def changing(group, codecs, kind):
    """Two steps with each codec after another; bits of each, and the weights at the end."""
    rank = torch.distributed.get_rank(group)
    model, bits = compressed(group, codecs[0], kind), []
    optimizer = sgd(model)
    for codec in codecs:
        laconic.set_codec(model, codec)
        train(model, optimizer, range(2), rank)
        bits.append(laconic.stats(model)["bits_by_parameter"]["2.weight"])
    return weights(model), bits, laconic.stats(model)["codec"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_codec_may_change_between_steps(pool, kind):
    codecs = ["bf16", None, NUQSGD(bits=4, bucket_size=256), ErrorFeedback(Sign(bucket_size=256)), "fp32"]
    first, *others = pool.run(changing, 4, codecs=codecs, kind=kind)
    assert all(torch.equal(first[0], other[0]) for other in others)
    bf16, off, nuqsgd, sign, fp32 = first[1]
    assert 16 < bf16 < 17
    assert off == fp32 == 32
    assert 4 < nuqsgd < 6
    assert 1 < sign < 3
    assert first[2] == "Identity(dtype='fp32'): given to set_codec"


def resources():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def ended(group, how):
    """Threads and descriptors before a model, with it, and after its end."""
    rank = torch.distributed.get_rank(group)
    train(wrap(None, None), sgd(network()), range(1), rank)  # torch's own threads
    gc.collect()
    _join_closing()
    before = resources()
    model = wrap(None, "nuqsgd")
    train(model, sgd(model), range(2), rank)
    during = resources()
    if how == "close":
        laconic.training.ddp.compressor_of(model).close()
    else:
        del model
        gc.collect()
        _join_closing()
    torch.distributed.barrier(group)
    return before, during, resources()


def _join_closing():
    for thread in threading.enumerate():
        if thread.name == "laconic-closing":
            thread.join()


def test_no_thread_starts_while_python_shuts_down():
    """A model that is collected then: a thread that Python does not wait for would abort the process."""
    ended = mock.patch.object(threading.main_thread(), "is_alive", return_value=False)
    with ended, mock.patch.object(threading, "Thread") as made:
        laconic.training.ddp._close_later(mock.Mock())
    assert not made.called


@pytest.mark.parametrize("how", ["close", "delete"])
def test_threads_and_descriptors_are_given_back(pool, how):
    for before, during, after in pool.run(ended, 4, how=how):
        assert all(more > less for more, less in zip(during, before, strict=True))
        assert all(less <= more for less, more in zip(after, before, strict=True))


def closed(group, kind):
    rank = torch.distributed.get_rank(group)
    model = compressed(group, "nuqsgd", kind)
    train(model, sgd(model), range(1), rank)
    compressor = laconic.training.ddp.compressor_of(model)
    compressor.close()
    compressor.close()
    for use in (lambda: train(model, sgd(model), range(1), rank), lambda: laconic.set_codec(model, "bf16")):
        with pytest.raises(RuntimeError, match=r"closed; call laconic\.compress"):
            use()
    with torch.no_grad():
        model(batch(rank, 0)[0])
    laconic.compress(model, "qsgdinf", policy=SMALL)
    train(model, sgd(model), range(2), rank)
    return weights(model), laconic.stats(model)["steps"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_compressor_says_so_and_another_may_follow(pool, kind):
    first, *others = pool.run(closed, 4, kind=kind)
    assert first[1] == 2
    assert all(torch.equal(first[0], other[0]) for other in others)


def failing_to_begin(group, kind):
    """Preparing the codec fails; the model is then as if `compress` was not called, and may be compressed."""
    model, rank = compressed(group, None, kind), torch.distributed.get_rank(group)
    fails = mock.patch.object(Compressor, "prepare", side_effect=OSError("no folder for kernels"))
    with fails, pytest.raises(OSError, match="no folder"):
        laconic.compress(model, "nuqsgd", policy=SMALL)
    with pytest.raises(ValueError, match="not compressed"):
        laconic.stats(model)
    train(model, sgd(model), range(1), rank)
    laconic.compress(model, "nuqsgd", policy=SMALL)
    train(model, sgd(model), range(2), rank)
    return weights(model), laconic.stats(model)["steps"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_compress_leaves_the_model_as_it_was(pool, kind):
    first, *others = pool.run(failing_to_begin, 4, kind=kind)
    assert first[1] == 2
    assert all(torch.equal(first[0], other[0]) for other in others)


def failing_again(group):
    """What three backward passes in a row are told where the ranks disagree."""
    rank = torch.distributed.get_rank(group)
    model, told = wrap(group, "nuqsgd", seed=rank), []
    for _ in range(3):
        try:
            train(model, sgd(model), range(1), rank)
        except laconic.Disagreement as error:
            told.append(str(error))
    with torch.no_grad():
        model(batch(rank, 0)[0])
    return told


def test_an_error_is_raised_again(pool):
    for told in pool.run(failing_again, 2):
        assert len(told) == 3
        assert len(set(told)) == 1
        assert told[0].startswith("ranks disagree: seed is 0 on rank 0 and 1 on rank 1")


def named(group, exchange):
    """A few steps with codecs by name, and those of simulated workers in the same metric."""
    rank = torch.distributed.get_rank(group)
    codecs = {"0.*": None, "2.weight": ErrorFeedback(Sign(bucket_size=64)), "*.bias": "bf16"}
    policy = Policy(min_values=100, group_values=1000, codecs=codecs)
    model = wrap(group, laconic.QSGDInf(bits=8), policy=policy, exchange=exchange)
    train(model, sgd(model), range(3), rank)
    net = network()
    workers = laconic.SimulatedWorkers(net, laconic.QSGDInf(bits=8), 3, policy=policy)
    optimizer = sgd(net)
    for step in range(3):
        rows = [batch(worker, step) for worker in range(3)]
        workers.backward([lambda x=x, y=y: torch.nn.functional.cross_entropy(net(x), y) for x, y in rows])
        optimizer.step()
    return weights(model), weights(net), laconic.stats(model)["bits_by_parameter"]


@pytest.mark.parametrize("exchange", ["auto", "scatter_reduce", "all_gather"])
def test_parameters_may_have_codecs_of_their_own(pool, exchange):
    first, *others = pool.run(named, 3, exchange=exchange)
    assert all(torch.equal(first[0], other[0]) for other in others)
    assert exchange != "all_gather" or torch.equal(first[0], first[1])
    bits = first[2]
    assert bits["0.weight"] == bits["0.bias"] == 32
    assert 1 < bits["2.weight"] < 3
    assert bits["4.bias"] > 16
    assert 8 < bits["4.weight"] < 16
    assert len(bits) == 6


def by_hook(group, how):
    """A few steps with a hook that the user registers: before DDP, after it, or in PyTorch's wrapper."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper

    rank, net = torch.distributed.get_rank(group), network()
    model = DistributedDataParallel(net, process_group=group)
    given = model if how == "after" else net
    state, hook = laconic.hook(given, NUQSGD(bits=4, bucket_size=256), process_group=group, policy=SMALL)
    model.register_comm_hook(state, fp16_compress_wrapper(hook) if how == "wrapped" else hook)
    train(model, sgd(model), range(3), rank)
    other = wrap(group, NUQSGD(bits=4, bucket_size=256), policy=SMALL)
    train(other, sgd(other), range(3), rank)
    return weights(model), weights(other), laconic.stats(given)["steps"]


def resumed_by_hook(group):
    """Two steps, a state, and one more; and the same by a hook that has not been called before the state is loaded."""
    rank, codec = torch.distributed.get_rank(group), ErrorFeedback(Sign(bucket_size=64))
    model = wrap(group, codec, policy=SMALL)
    train(model, sgd(model), range(2), rank)
    state, before = laconic.state_dict(model), copy.deepcopy(model.module)
    train(model, sgd(model), range(2, 3), rank)
    hook = laconic.hook(before, codec, process_group=group, policy=SMALL)
    with pytest.raises(ValueError, match="this model's hook was not called yet: train a step first, or load a state"):
        laconic.stats(before)
    again = DistributedDataParallel(before, process_group=group)
    again.register_comm_hook(*hook)
    laconic.load_state_dict(before, state)
    train(again, sgd(again), range(2, 3), rank)
    return weights(model), weights(again)


def test_a_hook_goes_on_from_a_state(pool):
    for whole, stopped in pool.run(resumed_by_hook, 2):
        assert torch.equal(whole, stopped)


@pytest.mark.parametrize("how", ["before", "after", "wrapped"])
def test_the_hook_alone(pool, how):
    first, *others = pool.run(by_hook, 2, how=how)
    assert first[2] == 3
    assert all(torch.equal(first[0], other[0]) for other in others)
    assert torch.equal(first[0], first[1]) == (how != "wrapped")
    assert torch.allclose(first[0], first[1], atol=0.1)


def drifting(group, dtype):
    """Four steps; before the third, one bit of a parameter changes on a rank."""
    rank = torch.distributed.get_rank(group)
    model = wrap(group, "bf16", net=network().to(dtype), policy=Policy(min_values=100, verify_every=2))
    train(model, sgd(model), range(2), rank) if dtype == torch.float32 else None
    if rank == 2:
        model.module[2].weight.data.view(torch.uint8)[7, 9] ^= 1
    with pytest.raises(laconic.Disagreement) as found:
        model(batch(rank, 3)[0].to(dtype)).sum().backward()
    return str(found.value)


def drifting_copies(group):
    """The same with two copies of a sharded model."""
    rank = torch.distributed.get_rank(group)
    model = compressed(group, "bf16", "HSDP", verify_every=2)
    train(model, sgd(model), range(2), rank)
    if rank == 2:
        model[2].weight.to_local().data.view(torch.uint8)[7, 9] ^= 1
    with pytest.raises(laconic.Disagreement) as found:
        train(model, sgd(model), range(1), rank)
    return str(found.value)


def test_copies_of_shards_are_verified(pool):
    for said in pool.run(drifting_copies, 4):
        assert said.startswith("parameter 2.weight of rank 2 differs from that of rank 0 at step 2")


def named_shards(group, kind):
    """Three steps in which some parameters have a codec of their own, or none; bits of each."""
    codecs = {"0.*": None, "2.weight": laconic.QSGDInf(bits=8, bucket_size=64), "4.*": NUQSGD(bits=2, bucket_size=64)}
    model = compressed(group, "bf16", kind, codecs=codecs)
    train(model, sgd(model), range(3), torch.distributed.get_rank(group))
    return weights(model), laconic.stats(model)["bits_by_parameter"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_shards_may_have_codecs_of_their_own(pool, kind):
    first, *others = pool.run(named_shards, 4, kind=kind)
    assert all(torch.equal(first[0], other[0]) for other in others)
    assert first[1]["0.weight"] == 32
    assert 8 < first[1]["2.weight"] < 10
    assert 2 < first[1]["4.weight"] < 8
    assert first[1]["2.bias"] == 32


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 2), (torch.bfloat16, 0)])
def test_replicas_are_verified(pool, dtype, step):
    for said in pool.run(drifting, 3, dtype=dtype):
        assert said.startswith(f"parameter 2.weight of rank 2 differs from that of rank 0 at step {step}")


COMPILED = {
    "ef-sign": lambda: wrap(None, ErrorFeedback(Sign(bucket_size=256)), make=sgd),
    "elias": lambda: wrap(None, Codec(laconic.QSGDInf(bits=3), laconic.Elias()), make=sgd),
    "nuqsgd in a metric": lambda: wrap(None, NUQSGD(bits=4, bucket_size=256), make=adamw, metric="auto"),
    "shards and their weights": lambda: shard(
        torch.distributed.group.WORLD, "bf16", compress={"weight_codec": Codec(laconic.QSGDInf(), laconic.Elias())}
    ),
    "copies of shards": lambda: shard(
        None, "bf16", mesh=copies(), compress={"replica_codec": Codec(NUQSGD(), laconic.Elias())}
    ),
}


def compiling(rank, case, store, pipe):
    """How many kernels `compress` has compiled or loaded in this process, how many the first two steps, and a log."""
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=4)
    handler, logger = logging.handlers.BufferingHandler(100), logging.getLogger("laconic")
    logger.addHandler(handler), logger.setLevel(logging.INFO)
    counts = [kernels()]
    model = COMPILED[case]()
    counts.append(kernels())
    train(model, getattr(model, "optimizer", None) or sgd(model), range(2), rank)
    counts.append(kernels())
    pipe.send((counts, [record.getMessage() for record in handler.buffer]))
    os._exit(0)


def kernels() -> int:
    """Compiled kernels of this process."""
    modules = [module for name, module in sys.modules.items() if name.startswith("laconic.kernels.cpu")]
    found = {
        id(value): value
        for module in modules
        for value in vars(module).values()
        if hasattr(value, "nopython_signatures")
    }
    return sum(len(kernel.nopython_signatures) for kernel in found.values())


@pytest.mark.parametrize("case", COMPILED)
def test_kernels_are_compiled_before_the_first_step(tmp_path, case):
    with forked(compiling, 4, case, str(tmp_path / "store")) as (_, pipes):
        told = [pipe.recv() for pipe in pipes]
    for (before, ready, after), _ in told:
        assert before < ready == after
    assert sum("kernels are ready, compiled or loaded in" in line for _, log in told for line in log) == 1


def shares_of_copies(group):
    model = shard(group, "fp32", net=network(width=400), mesh=copies(), compress={"exchange": "all_reduce"})
    train(model, sgd(model), range(2), torch.distributed.get_rank(group))
    return laconic.stats(model)["ratio"]


def test_the_ratio_of_copies_is_that_to_fsdp2(pool):
    assert pool.run(shares_of_copies, 4) == pytest.approx([1.0] * 4, rel=0.02)


def shares(group, codec, dtype):
    """The ratio after two steps, and what a logger was warned of."""
    handler, logger = logging.handlers.BufferingHandler(100), logging.getLogger("laconic")
    logger.addHandler(handler)
    model = wrap(group, codec, net=network(width=400).to(dtype), policy=Policy())
    for step in range(2):
        model(batch(0, step)[0].to(dtype)).sum().backward()
    logger.removeHandler(handler)
    warned = [record.getMessage() for record in handler.buffer if record.levelno == logging.WARNING]
    return laconic.stats(model)["ratio"], warned


RATIOS = {
    "fp32": ("fp32", torch.float32, 2, 1.0),
    "fp32, 4 ranks": ("fp32", torch.float32, 4, 1.0),
    "bf16": ("bf16", torch.float32, 2, 2.0),
    "bf16 of bfloat16": ("bf16", torch.bfloat16, 2, 1.0),
    "8 bits of bfloat16": (laconic.QSGDInf(bits=8), torch.bfloat16, 2, 2.0),
    "8 bits": (laconic.QSGDInf(bits=8), torch.float32, 2, 4.0),
}


@pytest.mark.parametrize("case", RATIOS)
def test_the_ratio_is_that_to_pytorch(pool, case):
    codec, dtype, size, ratio = RATIOS[case]
    found, warned = pool.run(shares, size, codec=codec, dtype=dtype)[0]
    assert found == pytest.approx(ratio, rel=0.1)
    assert not warned


def test_sign_warns_of_learning_rates(pool):
    ranks = pool.run(shares, 2, codec=ErrorFeedback(Sign()), dtype=torch.float32)
    assert [len(warned) for _, warned in ranks] == [1, 0]
    assert "a learning rate that suits float32 may be far too large for it" in ranks[0][1][0]


def compiled(group):
    """Three steps of a compressed model under torch.compile, and of one without it."""
    rank, found = torch.distributed.get_rank(group), []
    for compile_ in (lambda model: torch.compile(model, backend="eager"), lambda model: model):
        model = wrap(group, NUQSGD(bits=4, bucket_size=256))
        train(compile_(model), sgd(model), range(3), rank)
        found.append((weights(model), laconic.stats(compile_(model))["steps"]))
    return found


def test_torch_compile_goes_around_a_compressed_model(pool):
    for (ours, steps), (plain, _) in pool.run(compiled, 2):
        assert steps == 3
        assert torch.allclose(ours, plain, atol=1e-5)
