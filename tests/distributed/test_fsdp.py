"""Training under `fully_shard`: FSDP2's own gradients where nothing is lost, and DDP's laws for every codec."""

from functools import cache

import pytest
import torch
import torch.distributed as dist
from models import batch, network, sgd, train
from test_ddp import CODECS
from torch.distributed._composable import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import laconic
from laconic import NUQSGD, Differences, Policy

POLICY = Policy(min_values=100)
NUQSGD_4 = NUQSGD(bits=4, bucket_size=256)


@cache
def copies() -> DeviceMesh:
    """Two copies of a model, each sharded over two ranks."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))


def shard(group, codec=None, *, net=None, root=True, compress=None, **options):
    """A sharded model, a unit for each layer with weights; `compress` are options of that."""
    net = network(width=50) if net is None else net
    options = {"mesh": None if group is None else DeviceMesh.from_group(group, "cpu"), **options}
    for layer in net if root != "only" else ():
        if list(layer.parameters()):
            fully_shard(layer, **options)
    if root:
        fully_shard(net, **options)
    if codec is not None:
        laconic.compress(net, codec, **{"policy": POLICY, **(compress or {})})
    return net


def whole(tensors) -> torch.Tensor:
    """Weights or gradients, gathered."""
    return torch.cat([t.full_tensor().detach().reshape(-1).float() for t in tensors])


def training(group, codec, n_steps=30):
    model = shard(group, CODECS[codec] if codec else None)
    losses = train(model, sgd(model), range(n_steps), dist.get_rank(group))
    return whole(model.parameters()), losses, laconic.stats(model) if codec else None


FALLS = ("nuqsgd-4", "ef-sign", "dithered")
"""Codecs whose loss is seen to fall each time, that of the others only under DDP."""


@pytest.mark.parametrize(
    ("codec", "n_steps"),
    [
        *((codec, 3) for codec in CODECS if codec not in FALLS),
        *(pytest.param(codec, 30, marks=[] if codec in FALLS else [pytest.mark.exhaustive]) for codec in CODECS),
    ],
)
def test_training(pool, codec, n_steps):
    """In every codec what was sent is as small as it should be, and after thirty steps the loss has fallen."""
    ranks = pool.run(training, 2, codec=codec, n_steps=n_steps)
    first, last = (sum(losses[i] for _, losses, _ in ranks) for i in (0, -1))
    assert last < 0.95 * first or n_steps == 3
    stats = ranks[0][2]
    assert stats["steps"] == n_steps
    assert stats["values"] == sum(-(-n // 2) * 2 * m for n, m in ((50, 21), (50, 51), (5, 51)))
    assert (stats["ratio"] > 3) == (codec not in ("fp32", "bf16"))
    assert stats["nmse"] >= 0 or codec == "fp32"


def in_mode(group, mode, codec, weight_codec=None):
    """Three steps in one of FSDP2's modes; weights, gradients, and what `compress` counted."""
    rank, options, n_steps = dist.get_rank(group), {"compress": {"weight_codec": weight_codec}}, 3
    net = network(width=50)
    if mode in ("bf16", "fp16"):
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[mode]
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=dtype, output_dtype=torch.float
        )
    elif mode == "reduce in fp32":
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    elif mode == "no reshard":
        options["reshard_after_forward"] = False
    elif mode == "reshard to two":
        options["reshard_after_forward"] = 2
    elif mode == "root only":
        options["root"] = "only"
    elif mode == "no root":
        options["root"] = False
    elif mode == "columns":
        net = torch.nn.Sequential(net[0], torch.nn.ReLU(), torch.nn.Linear(50, 5, bias=False))
        options["shard_placement_fn"] = lambda p: Shard(1) if p.shape == (50, 20) else None
    elif mode == "tied":
        net[4] = torch.nn.Linear(50, 50)
        net[4].weight = net[2].weight
        options["root"] = "only"
    elif mode == "frozen":
        net[0].requires_grad_(False)
        net[2].bias.requires_grad_(False)
    elif mode == "offloaded":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    elif mode == "checkpointed":
        checkpoint(net[2])
    elif mode.startswith("unused"):
        net.register_module("extra", torch.nn.Linear(*((64, 64) if mode == "unused" else (50, 50))))
        net.forward = lambda x: torch.nn.Sequential.forward(torch.nn.Sequential(*list(net)[:5]), x)
        options["root"] = "only"
    elif mode == "meta":
        net = network(width=50).to("meta")
    elif mode == "tensor parallel":
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        net = parallelize_module(net, copies()["shards"], plan)
        options["mesh"] = copies()["copies"]
        rank = copies().get_local_rank("copies")
    model = shard(group, codec, net=net, **options)
    if mode == "meta":
        model.to_empty(device="cpu")
        torch.manual_seed(rank)
        for p in model.parameters():
            torch.nn.init.normal_(p.to_local(), std=0.1)
    elif mode == "force sum":
        for layer in (*model[::2], model):
            layer.set_force_sum_reduction_for_comms(True)
    elif mode == "frozen later":
        model[2].requires_grad_(False)
    elif mode == "unused, and reduced":  # by its size it could be either of two layers
        model.set_reduce_scatter_unused_params(True)
    elif mode == "prefetched":
        model[0].set_modules_to_forward_prefetch([model[2]])
        model[4].set_modules_to_backward_prefetch([model[2], model[0]])
    elif mode == "compiled":
        model.compile(backend="eager")
    optimizer = sgd(model, 0.02)
    for step in range(n_steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        if mode == "accumulated":
            model.set_requires_gradient_sync(False)
            torch.nn.functional.cross_entropy(model(x[:4]), y[:4]).backward()
            model.set_requires_gradient_sync(True)
            x, y = x[4:], y[4:]
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if mode == "clipped":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if mode == "evaluated":
            with torch.inference_mode():
                model(x)
    found = laconic.stats(model)["steps"] if codec else n_steps
    return whole(model.parameters()), whole(p.grad for p in model.parameters() if p.grad is not None), found


MODES = {
    "bf16": 2,
    "fp16": 3,
    "reduce in fp32": 2,
    "no reshard": 2,
    "reshard to two": 4,
    "root only": 3,
    "no root": 2,
    "columns": 2,
    "tied": 2,
    "frozen": 2,
    "frozen later": 2,
    "offloaded": 2,
    "checkpointed": 2,
    "unused": 2,
    "unused, and reduced": 2,
    "prefetched": 2,
    "meta": 2,
    "force sum": 2,
    "compiled": 2,
    "accumulated": 2,
    "clipped": 2,
    "evaluated": 2,
    "tensor parallel": 4,
    "uneven": 3,
}
"""Modes of FSDP2, and on how many ranks."""


@pytest.mark.parametrize("weights", [Differences("fp32"), pytest.param(None, marks=pytest.mark.exhaustive)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_fp32_is_plain_fsdp(pool, mode, weights):
    """In every mode gradients and weights are what they are without `compress`."""
    if mode == "unused, and reduced" and not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        pytest.skip("needs FSDPModule.set_reduce_scatter_unused_params, which this torch does not have")
    (weights, gradients, _), (ours, our_gradients, n_steps) = (
        pool.run(in_mode, MODES[mode], mode=mode, codec=codec, weight_codec=weights)[0] for codec in (None, "fp32")
    )
    assert n_steps == 3
    tolerance = 4e-3 if mode == "bf16" else 1e-3 if mode == "fp16" else 1e-6
    assert torch.allclose(gradients, our_gradients, rtol=tolerance, atol=tolerance)
    assert torch.allclose(weights, ours, rtol=tolerance, atol=tolerance)


def test_ranks_that_are_tensor_parallel_round_alike(pool):
    """What such ranks have in common, they still have in common after they rounded it apart from each other."""
    first, *others = pool.run(in_mode, 4, mode="tensor parallel", codec=NUQSGD_4)
    assert all(torch.equal(first[0], weights) for weights, _, _ in others)


def test_one_rank_sends_nothing(pool):
    ((weights, _, stats),) = pool.run(training, 1, codec="nuqsgd-4", n_steps=3)
    ((plain, _, _),) = pool.run(training, 1, codec=None, n_steps=3)
    assert torch.equal(weights, plain)
    assert stats["bytes_sent"] == 0


def one_backward(group, codec, factor=None, seed=0, broken_rank=None, same_batch=False, **options):
    """A sharded model's gradients after one backward pass, this rank's own, and the state."""
    rank = dist.get_rank(group)
    x, y = batch(0 if same_batch else rank, 0)
    if rank == broken_rank:
        x[0, 0] = torch.nan
    model, alone = shard(group, codec, compress={"seed": seed, **options}), network(width=50)
    for layer in (*model[::2], model):
        if factor is not None:
            layer.set_gradient_divide_factor(factor)
    for net in (model, alone):
        torch.nn.functional.cross_entropy(net(x), y).backward()
    own = {name: p.grad for name, p in alone.named_parameters()}
    return {name: p.grad.full_tensor() for name, p in model.named_parameters()}, own, laconic.state_dict(model)


@pytest.mark.parametrize("factor", [None, 3.0, 2.0])
@pytest.mark.parametrize("size", [2, 3])
def test_what_is_not_sent_is_remembered(pool, size, factor):
    """average = mean of (gradient − memory), parameter by parameter, whatever the sums are divided by."""
    ranks = pool.run(one_backward, size, codec=CODECS["ef-sign"], factor=factor)
    for name, average in ranks[0][0].items():
        sent = [own[name] - state["memory"].get(name, 0.0) for _, own, state in ranks]
        assert torch.allclose(average, sum(sent) / (factor or size), atol=1e-6), name
    assert ranks[0][2]["memory"]["2.weight"].abs().sum() > 0


def test_ranks_round_apart_and_seeds_decide(pool):
    same, again, other = (
        pool.run(one_backward, 2, codec=NUQSGD_4, seed=seed, same_batch=True)[0] for seed in (0, 0, 1)
    )
    name = "2.weight"
    assert torch.equal(same[0][name], again[0][name])
    assert not torch.equal(same[0][name], other[0][name])
    levels = (same[0][name][0].abs() / same[0][name].abs().max()).log2()
    assert not torch.equal(
        levels, levels.round()
    )  # one rank's roundings have powers of two only, the mean of two has not


@pytest.mark.parametrize("codec", ["nuqsgd-4", "ef-sign", "dithered"])
def test_a_value_that_is_not_finite_reaches_its_owner(pool, codec):
    averages, _, state = pool.run(one_backward, 2, codec=CODECS[codec], broken_rank=1)[0]
    assert not any(torch.isfinite(average).all() for average in averages.values())
    assert all(torch.isfinite(memory).all() for memory in state["memory"].values())


def with_policy(group, policy):
    model = shard(group, NUQSGD_4, compress={"policy": policy})
    found = []
    for step in range(4):
        train(model, sgd(model), [step], dist.get_rank(group))
        found.append(whole(model.parameters()))
    return found, laconic.stats(model)


def test_policy(pool):
    nothing, warm, all_of_it, some = (
        pool.run(with_policy, 2, policy=policy)[0]
        for policy in (Policy(min_values=10**9), Policy(min_values=100, warmup_steps=2), Policy(0, 0), POLICY)
    )
    equal = [torch.equal(a, b) for a, b in zip(nothing[0], warm[0], strict=True)]
    assert equal == [True, True, False, False]
    assert nothing[1]["bytes_sent"] > some[1]["bytes_sent"] > all_of_it[1]["bytes_sent"]


def hybrid(group, codec, n_steps=3, factor=None, same_batch=False, **options):
    """Training on two copies of two shards."""
    rank = 0 if same_batch else dist.get_rank(group)
    model = shard(group, CODECS.get(codec, codec), mesh=copies(), compress=options)
    for layer in (*model[::2], model):
        if factor is not None:
            layer.set_gradient_divide_factor(factor)
    losses = train(model, sgd(model), range(n_steps), rank)
    local = torch.cat([p.to_local().detach().reshape(-1) for p in model.parameters()])
    return local, sum(losses), laconic.stats(model) if codec else None, whole(p.grad for p in model.parameters())


@pytest.mark.parametrize("n_steps", [3, pytest.param(200, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("codec", CODECS)
def test_copies_are_identical(pool, codec, n_steps):
    ranks = pool.run(hybrid, 4, codec=codec, n_steps=n_steps)
    for first, second in ((0, 2), (1, 3)):
        assert torch.equal(ranks[first][0], ranks[second][0])
    assert ranks[0][2]["steps"] == n_steps


def test_fp32_is_plain_hsdp(pool):
    plain, ours = (pool.run(hybrid, 4, codec=codec)[0] for codec in (None, "fp32"))
    assert torch.allclose(plain[0], ours[0], atol=1e-6)


def test_copies_round_apart(pool):
    """Given the same batch, two copies do not make the same error, which averaging would not reduce."""
    ranks = pool.run(hybrid, 4, codec="nuqsgd-4", n_steps=1, same_batch=True, exchange="nothing")
    assert not torch.equal(ranks[0][0], ranks[2][0])


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"replica_codec": "fp32"}, 0.02),
        ({"codec": "nuqsgd-4", "replica_codec": "bf16", "exchange": "all_reduce"}, 0.8),
        ({"replica_codec": laconic.QSGDInf(bits=8, bucket_size=64), "exchange": "scatter_reduce"}, 0.05),
        ({"replica_codec": NUQSGD_4, "exchange": "all_gather"}, 0.8),
        ({"exchange": "nothing"}, None),
        ({"factor": 4.0}, 0.02),
        ({"factor": 1.0}, 0.02),
    ],
)
def test_codec_and_exchange_between_copies(pool, options, most):
    exact = pool.run(hybrid, 4, codec="fp32", n_steps=1)
    found = pool.run(hybrid, 4, **{"codec": "bf16", "n_steps": 1, **options})
    assert torch.equal(found[0][0], found[2][0]) == (most is not None)
    if most is not None:
        gradient = found[0][3] * options.get("factor", 4.0) / 4.0
        assert float((gradient - exact[0][3]).norm() / exact[0][3].norm()) < most
