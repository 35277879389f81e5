"""Training under `fully_shard`: FSDP2's own gradients where nothing is lost, and DDP's laws for every codec."""

import pytest
import torch
import torch.distributed as dist
from models import batch, network, sgd, train
from test_ddp import CODECS
from torch.distributed._composable import checkpoint
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import laconic
from laconic import NUQSGD, Policy

POLICY = Policy(min_values=100)
NUQSGD_4 = NUQSGD(bits=4, bucket_size=256)


def shard(group, codec=None, *, net=None, root=True, compress=None, **options):
    """A sharded model, a unit for each layer with weights; `compress` are options of that."""
    net = network(width=50) if net is None else net
    options.setdefault("mesh", DeviceMesh.from_group(group, "cpu"))
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


@pytest.mark.parametrize("codec", CODECS)
def test_training(pool, codec):
    """Thirty steps in every codec: the loss falls, and what was sent is as small as it should be."""
    ranks = pool.run(training, 2, codec=codec)
    first, last = (sum(losses[i] for _, losses, _ in ranks) for i in (0, -1))
    assert last < 0.95 * first
    stats = ranks[0][2]
    assert stats["steps"] == 30
    assert stats["values"] == sum(-(-n // 2) * 2 * m for n, m in ((50, 21), (50, 51), (5, 51)))
    assert (stats["ratio"] > 4) == (codec not in ("fp32", "bf16"))
    assert stats["nmse"] >= 0 or codec == "fp32"


def in_mode(group, mode, codec):
    """Five steps in one of FSDP2's modes; weights, gradients, and what `compress` counted."""
    rank, options, n_steps = dist.get_rank(group), {}, 5
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
    elif mode == "unused":
        net.register_module("extra", torch.nn.Linear(64, 64))
        net.forward = lambda x: torch.nn.Sequential.forward(torch.nn.Sequential(*list(net)[:5]), x)
        options["root"] = "only"
    elif mode == "meta":
        net = network(width=50).to("meta")
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
    "meta": 2,
    "force sum": 2,
    "compiled": 2,
    "accumulated": 2,
    "clipped": 2,
    "uneven": 3,
}
"""Modes of FSDP2, and on how many ranks."""


@pytest.mark.parametrize("mode", MODES)
def test_fp32_is_plain_fsdp(pool, mode):
    """In every mode gradients and weights are what they are without `compress`."""
    (weights, gradients, _), (ours, our_gradients, n_steps) = (
        pool.run(in_mode, MODES[mode], mode=mode, codec=codec)[0] for codec in (None, "fp32")
    )
    assert n_steps == 5
    tolerance = 4e-3 if mode == "bf16" else 1e-3 if mode == "fp16" else 1e-6
    assert torch.allclose(gradients, our_gradients, rtol=tolerance, atol=tolerance)
    assert torch.allclose(weights, ours, rtol=tolerance, atol=tolerance)
