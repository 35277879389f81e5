"""Laws of sharded training between ranks of one GPU: `python fsdp_checks.py BACKEND STORE RANK SIZE`.

Rank 0 prints a line for each check that was made. NCCL takes several ranks on one GPU if each says that it is on a host
of its own (`NCCL_HOSTID`); `test_fsdp_cuda.py` starts them so. With BACKEND gloo the same runs on the CPU.
"""

import gc
import sys
import traceback
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

import laconic
from laconic import NUQSGD, Codec, Differences, ErrorFeedback, Policy, QSGDInf, Sign
from laconic.training import fsdp

CODECS = {
    "fp32": "fp32",
    "bf16": "bf16",
    "nuqsgd": NUQSGD(bits=4, bucket_size=512),
    "ef-sign": ErrorFeedback(Sign(bucket_size=512)),
    "nuqsgd-rans": Codec(NUQSGD(bits=4, bucket_size=512), laconic.RANS()),
    "dithered": laconic.Dithered(error=0.3),
}
FIXED = ("bf16", "nuqsgd", "ef-sign")
WEIGHTS = {"weights in bf16": "bf16", "8-bit differences": Differences()}
WIDTH, N_LAYERS = 250, 3
DEVICE = torch.device("cpu")


def network():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(N_LAYERS)]
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(WIDTH)).to(DEVICE)


@cache
def mesh(n_copies):
    size = dist.get_world_size()
    shape, names = ((n_copies, size // n_copies), ("copies", "shards")) if n_copies > 1 else ((size,), ("shards",))
    return init_device_mesh(DEVICE.type, shape, mesh_dim_names=names)


def sharded(codec, *, n_copies=1, compress=None, factor=None, **options):
    net = network()
    for layer in (*net, net):
        fully_shard(layer, mesh=mesh(n_copies), **options)
        if factor is not None:
            layer.set_gradient_divide_factor(factor)
    if codec is not None:
        laconic.compress(net, CODECS[codec], policy=Policy(min_values=100), **(compress or {}))
    return net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def step(model, optimizer, number):
    generator = torch.Generator().manual_seed(1000 * number + dist.get_rank())
    x = torch.randn(16, WIDTH, generator=generator).to(DEVICE)
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()


def trained(codec, n_steps=4, **options):
    model, optimizer = sharded(codec, **options)
    for number in range(n_steps):
        step(model, optimizer, number)
    return model


def whole(model):
    return torch.cat([p.detach().to(DEVICE).full_tensor().reshape(-1).float().cpu() for p in model.parameters()])


def fp32_is_plain(tolerance=1e-6, **options):
    plain, ours = whole(trained(None, **options)), whole(trained("fp32", **options))
    assert torch.allclose(plain, ours, rtol=tolerance, atol=tolerance), float((plain - ours).abs().max())


def training(codec, **options):
    """The loss falls, as it does without compression, and statistics are those of the steps."""
    model = trained(codec, 20, **options)
    moved, as_plain = whole(model) - whole(trained(None, 0)), whole(trained(None, 20)) - whole(trained(None, 0))
    assert float((moved - as_plain).norm() / as_plain.norm()) < 0.9
    stats = laconic.stats(model)
    assert stats["steps"] == 20
    assert 0 <= stats["nmse"] < 2
    assert stats["bytes_sent"] > 0


def gathered_alike(codec, **options):
    """All ranks compute with the same weights, close to the shards."""
    model = trained(codec, 10, **options)
    model[1].unshard()
    mine = model[1].weight.detach().clone()
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first)
    model[1].reshard()
    exact = model[1].weight.full_tensor().detach()
    assert 0 < float((mine - exact).norm() / exact.norm()) < 0.01


def copies_are_identical(codec):
    model = trained(codec, 10, n_copies=2)
    local = torch.cat([p.to_local().detach().reshape(-1) for p in model.parameters()])
    found = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(found, local)
    half = len(found) // 2
    assert all(torch.equal(found[r], found[r + half]) for r in range(half))


class Watched:
    """Every call of a unit's exchange between two calls of `around`."""

    def __init__(self, around):
        self.around, self.originals = around, {}

    def __enter__(self):
        gather = (fsdp.UnitGather, "__call__")
        for owner, name in ((fsdp.UnitExchange, "__call__"), (fsdp.UnitExchange, "average_replicas"), gather):
            original = self.originals[owner, name] = getattr(owner, name)

            def watched(*arguments, original=original, **named):
                self.around(True)
                found = original(*arguments, **named)
                self.around(False)
                return found

            setattr(owner, name, watched)

    def __exit__(self, *error):
        for (owner, name), original in self.originals.items():
            setattr(owner, name, original)


def streams_wait_for_each_other(codec, **options):
    """The weights are the same whether streams are slow, or the host waits for all of them around every exchange."""

    def slow(begins):
        torch.cuda._sleep(5_000_000)

    found = []
    for around in (slow, lambda begins: torch.cuda.synchronize(), lambda begins: None):
        with Watched(around):
            found.append(whole(trained(codec, 6, **options)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def the_host_does_not_wait(codec, **options):
    model, optimizer = sharded(codec, **options)
    for number in range(3):
        step(model, optimizer, number)
    with Watched(lambda begins: torch.cuda.set_sync_debug_mode(2 if begins else 0)):
        for number in range(3, 6):
            step(model, optimizer, number)


def resumed_is_never_stopped(codec, **options):
    model, optimizer = sharded(codec, **options)
    for number in range(3):
        step(model, optimizer, number)
    again, other = sharded(codec, **options)
    again.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    momentum = torch.utils._pytree.tree_map(
        lambda v: v.clone() if isinstance(v, torch.Tensor) else v, optimizer.state_dict()
    )
    other.load_state_dict(momentum)
    laconic.load_state_dict(again, laconic.state_dict(model))
    for number in range(3, 6):
        step(model, optimizer, number)
        step(again, other, number)
    assert torch.equal(whole(model), whole(again))


def extra_memory(codec, most, **options):
    """Peak memory beyond FSDP2's own, in units of the gradient of one layer, is at most this."""
    peaks = []
    for chosen in (None, codec):
        torch.cuda.synchronize()
        begin = torch.cuda.memory_allocated()
        model, optimizer = sharded(chosen, **options)
        for number in range(6):
            if number == 3:
                torch.cuda.reset_peak_memory_stats()
            step(model, optimizer, number)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - begin)
        del model, optimizer
        gc.collect()
    units = (peaks[1] - peaks[0]) / (4 * WIDTH * (WIDTH + 1))
    assert units <= most, f"{units:.2f} gathered units"


def checks(backend, size):
    """Name to check."""
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    found = {
        "fp32 is plain": (fp32_is_plain, {}),
        "fp32 is plain, reduced in bf16": (fp32_is_plain, {"mp_policy": bf16, "tolerance": 1e-3}),
    }
    found |= {f"training, {codec}": (training, {"codec": codec}) for codec in CODECS if codec != "fp32"}
    for name, weights in WEIGHTS.items():
        options = {"codec": "nuqsgd", "compress": {"weight_codec": weights}}
        found[f"training, {name}"] = (training, options)
        found[f"resume, {name}"] = (resumed_is_never_stopped, options)
        found[f"{name}: the same on every rank"] = (gathered_alike, options)
        if backend == "nccl":
            found[f"streams, {name}"] = (streams_wait_for_each_other, options)
            found[f"streams, {name}, bf16"] = (streams_wait_for_each_other, options | {"mp_policy": bf16})
            found[f"the host does not wait, {name}"] = (the_host_does_not_wait, options)
    lossless = {"compress": {"weight_codec": Differences("fp32")}}
    found["differences in fp32 are plain"] = (fp32_is_plain, lossless)
    found |= {f"resume, {codec}": (resumed_is_never_stopped, {"codec": codec}) for codec in ("nuqsgd", "ef-sign")}
    if backend == "nccl":
        found["fp32 is plain, divided by 3"] = (fp32_is_plain, {"factor": 3.0})
        found["fp32 is plain, offloaded"] = (fp32_is_plain, {"offload_policy": CPUOffloadPolicy()})
        for codec in FIXED:
            found[f"the host does not wait, {codec}"] = (the_host_does_not_wait, {"codec": codec})
        for codec in (*FIXED, "nuqsgd-rans"):
            found[f"streams, {codec}"] = (streams_wait_for_each_other, {"codec": codec})
        found["extra memory, nuqsgd"] = (extra_memory, {"codec": "nuqsgd", "most": 1.5 if size == 2 else 1.0})
        kept = {"codec": "nuqsgd", "most": N_LAYERS + 1.5, "compress": {"weight_codec": Differences()}}
        found["extra memory, differences"] = (extra_memory, kept)
        found["differences in fp32 are plain, offloaded"] = (
            fp32_is_plain,
            lossless | {"offload_policy": CPUOffloadPolicy()},
        )
        found["streams, reduced in bf16"] = (streams_wait_for_each_other, {"codec": "nuqsgd", "mp_policy": bf16})
    if size == 4:
        found |= {f"copies, {codec}": (copies_are_identical, {"codec": codec}) for codec in CODECS}
        found["copies, fp32 is plain"] = (fp32_is_plain, {"n_copies": 2})
        found["copies, resume"] = (resumed_is_never_stopped, {"codec": "ef-sign", "n_copies": 2})
        slow = {"codec": "nuqsgd", "n_copies": 2, "compress": {"replica_codec": QSGDInf(bits=8)}}
        if backend == "nccl":
            found["copies, streams"] = (streams_wait_for_each_other, slow)
            found["copies, streams, reduced in bf16"] = (streams_wait_for_each_other, slow | {"mp_policy": bf16})
            found["copies, the host does not wait"] = (the_host_does_not_wait, slow)
    return found


def main(backend, store, rank, size):
    global DEVICE
    if backend == "nccl":
        DEVICE = torch.device("cuda", 0)
        torch.cuda.set_device(DEVICE)
    torch.set_num_threads(1)
    dist.init_process_group(backend, f"file://{store}", timedelta(seconds=120), size, rank)
    for name, (check, options) in checks(backend, size).items():
        try:
            check(**options)
            outcome = "ok"
        except Exception:  # noqa: BLE001 (each check is a test of its own)
            outcome = traceback.format_exc().replace("\n", " | ")
        bad = torch.tensor([float(outcome != "ok")], device=DEVICE)
        dist.all_reduce(bad)
        if outcome == "ok" and bad:
            outcome = f"failed on {int(bad)} other ranks"
        if rank == 0 or outcome != "ok":
            print(f"{name}\t{outcome}", flush=True)  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
