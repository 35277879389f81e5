"""Sharded models: resume bit for bit, states of other numbers of ranks, ranks that disagree, and what is refused."""

import io

import pytest
import torch
import torch.distributed as dist
from models import network, sgd, train
from test_ddp import CODECS
from test_fsdp import NUQSGD_4, copies, shard, whole
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather

import laconic
from laconic import NUQSGD, Differences, ErrorFeedback, Policy, QSGDInf, Sign


def interrupted(group, codec, hybrid, weight_codec):
    """Six steps without a stop; and three, a checkpoint, a new model, three more; the same without laconic's state."""
    rank, options = dist.get_rank(group), {"mesh": copies()} if hybrid else {}
    options["compress"] = {"weight_codec": weight_codec}
    unbroken = shard(group, CODECS[codec], **options)
    train(unbroken, sgd(unbroken), range(6), rank)
    first = shard(group, CODECS[codec], **options)
    optimizer = sgd(first)
    train(first, optimizer, range(3), rank)
    buffer = io.BytesIO()
    torch.save(laconic.state_dict(first), buffer)
    state = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    found = [whole(unbroken.parameters())]
    for remembers in (True, False):
        model = shard(group, CODECS[codec], **options)
        model.load_state_dict(first.state_dict())
        again = sgd(model)
        again.load_state_dict(optimizer.state_dict())
        if remembers:
            laconic.load_state_dict(model, state)
        train(model, again, range(3, 6), rank)
        found.append(whole(model.parameters()))
    return found


@pytest.mark.parametrize(
    ("codec", "size", "weights"),
    [
        ("nuqsgd-4", 2, None),
        ("ef-sign", 3, None),
        ("ef-nuqsgd-elias", 2, "bf16"),
        ("ef-sign", 4, Differences()),
        ("dithered", 4, QSGDInf(bits=8, bucket_size=64)),
        ("fp32", 3, Differences()),
    ],
)
def test_resume_is_bit_exact(pool, codec, size, weights):
    ranks = pool.run(interrupted, size, codec=codec, hybrid=size == 4, weight_codec=weights)
    for unbroken, resumed, forgetful in ranks:
        assert torch.equal(unbroken, resumed)
        assert not torch.equal(unbroken, forgetful)


def saved(group):
    model = shard(group, CODECS["ef-sign"])
    train(model, sgd(model), range(3), dist.get_rank(group))
    return laconic.state_dict(model)


def loaded(group, states):
    model = shard(group, CODECS["ef-sign"])
    laconic.load_state_dict(model, states)
    return laconic.state_dict(model)


@pytest.mark.parametrize("size", [2, 4])
def test_another_number_of_ranks_keeps_the_mean_memory(pool, size):
    before = pool.run(saved, 3)
    for rank, state in enumerate(pool.run(loaded, size, states=before)):
        assert [int(state[name]) for name in ("step", "rank", "world_size")] == [3, rank, size]
        for name, memory in state["memory"].items():
            assert torch.allclose(memory, sum(s["memory"][name] for s in before) / 3, atol=1e-7)
            assert memory.shape == dict(network(width=50).named_parameters())[name].shape
            assert memory.abs().sum() > 0


def through_distributed_checkpoint(group, folder, former):
    """Save if former is 0, or else load what so many ranks saved: the model as one, each rank's memory by its key."""
    import torch.distributed.checkpoint as dcp

    rank = dist.get_rank(group)
    model = shard(group, CODECS["ef-sign"], compress={"weight_codec": Differences()})
    if not former:
        train(model, sgd(model), range(3), rank)
        state = {"model": model.state_dict(), f"laconic.{rank}": laconic.state_dict(model)}
        dcp.save(state, checkpoint_id=folder, process_group=group)
    else:
        states = {f"laconic.{r}": laconic.state_dict(model) for r in range(former)}
        state = {"model": model.state_dict(), **states}
        dcp.load(state, checkpoint_id=folder, process_group=group)
        laconic.load_state_dict(model, [state[name] for name in states])
    return whole(model.parameters()), laconic.state_dict(model)


@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoint_of_other_ranks(pool, tmp_path):
    folder = str(tmp_path / "checkpoint")
    before = pool.run(through_distributed_checkpoint, 3, folder=folder, former=0)
    for weights, state in pool.run(through_distributed_checkpoint, 2, folder=folder, former=3):
        assert torch.equal(weights, before[0][0])
        assert int(state["step"]) == 3
        for name, memory in state["memory"].items():
            assert torch.allclose(memory, sum(s["memory"][name] for _, s in before) / 3, atol=1e-7)
        for name, gathered in state["weights"]["values"].items():
            assert torch.equal(gathered, before[0][1]["weights"]["values"][name])


def gathered_otherwise(group, state):
    """Load a state with weights into a model of one unit; what it has then. A state of another model is refused."""
    model = shard(group, NUQSGD_4, root="only", compress={"weight_codec": Differences()})
    laconic.load_state_dict(model, state)
    state["weights"]["values"]["0.weight"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"the weights of 0.weight has shape \(3,\) in the state and \(50, 20\) here"):
        laconic.load_state_dict(model, state)
    return laconic.state_dict(model)["weights"]


def gathered_once(group):
    model = shard(group, NUQSGD_4, compress={"weight_codec": Differences()})
    train(model, sgd(model), range(3), dist.get_rank(group))
    return laconic.state_dict(model)


def test_gathered_weights_do_not_depend_on_units(pool):
    state = pool.run(gathered_once, 2)[0]
    for weights in pool.run(gathered_otherwise, 3, state=state):
        assert weights["gathers"].tolist() == [3]
        assert all(torch.equal(value, state["weights"]["values"][name]) for name, value in weights["values"].items())


def disagree(group, field, odd):
    mine = dist.get_rank(group) == odd
    options = {"mesh": copies()} if dist.get_world_size(group) == 4 else {}
    codec = NUQSGD(bits=8 if mine and field == "bits" else 4)
    compress = {"seed": int(mine and field == "seed")}
    if mine and field in ("replica_codec", "weight_codec"):
        compress[field] = "bf16"
    model = shard(group, codec, compress=compress, **options)
    if field == "step":
        laconic.load_state_dict(model, laconic.state_dict(model) | {"step": torch.tensor(3 if mine else 4)})
    train(model, sgd(model), range(1), dist.get_rank(group))


@pytest.mark.parametrize(
    ("field", "size", "odd", "message"),
    [
        ("bits", 2, 1, "quantizer is NUQSGD(bits=4, bucket_size=512, p=0.5) on rank 0 and NUQSGD(bits=8"),
        ("seed", 4, 3, "seed is 0 on rank 0 and 1 on rank 3"),
        ("step", 4, 2, "step is 4 on rank 0 and 3 on rank 2"),
        ("replica_codec", 4, 1, "replica_codec is "),
        ("weight_codec", 2, 1, "weight_codec is none on rank 0 and Identity(dtype='bf16'), "),
    ],
)
def test_ranks_that_disagree_all_find_out(pool, field, size, odd, message):
    for good, found in pool.outcomes(disagree, size, field=field, odd=odd):
        assert not good
        assert found[0] == "Disagreement"
        assert message in found[1]


class OwnAllGather(DefaultAllGather):
    """A user's."""


def refused(group, case):
    """The error that a model or an argument gets."""
    mesh = DeviceMesh.from_group(group, "cpu")
    net, options, codec = network(width=50), {}, NUQSGD_4
    if case == "replicated":
        from torch.distributed._composable.replicate_with_fsdp import replicate

        replicate(net, mesh=mesh)
    elif case == "two meshes":
        fully_shard(net[0], mesh=mesh)
        fully_shard(net, mesh=copies())
    elif case == "copies only":
        fully_shard(net, mesh=init_device_mesh("cpu", (4, 1), mesh_dim_names=("copies", "shards")))
    elif case == "nothing to learn":
        fully_shard(net.requires_grad_(False), mesh=mesh)
    elif case == "biased between copies":
        fully_shard(net, mesh=copies())
        options = {"replica_codec": ErrorFeedback(Sign())}
    elif case == "several types":
        net[0].weight = torch.nn.Parameter(net[0].weight.detach().bfloat16(), requires_grad=False)
        fully_shard(net, mesh=mesh)
        options = {"weight_codec": Differences()}
    elif case == "a part":
        fully_shard(net[0], mesh=mesh)
        fully_shard(net, mesh=mesh)
    elif case == "hook":
        fully_shard(net, mesh=copies()).set_all_reduce_hook(lambda gradient: None)
    else:
        fully_shard(net, mesh=mesh)
    if case == "reduce-scatter":
        net.set_allocate_memory_from_process_group_for_comm(True)
    elif case == "twice":
        laconic.compress(net, codec)
    elif case == "a part":
        laconic.compress(net[0], codec)
    elif case == "differences":
        options = {"weight_codec": case}
    elif case == "automatic":
        codec = "auto"
    elif case == "optimizer":
        options = {"optimizer": torch.optim.AdamW(net.parameters())}
    elif case == "metric":
        options = {"metric": "tensor"}
    elif case == "policy":
        options = {"policy": Policy(codecs={"head*": None})}
    elif case == "verify_every":
        options = {"policy": Policy(verify_every=1)}
    elif case == "biased weights":
        options = {"weight_codec": Differences(ErrorFeedback(Sign()))}
    elif case == "all-gather":
        net.set_custom_all_gather(OwnAllGather())
        options = {"weight_codec": "bf16"}
    elif case in ("replica_codec", "exchange"):
        options = {case: "fp32" if case == "replica_codec" else "all_gather"}
    try:
        laconic.compress(net, codec, **options)
    except (ValueError, TypeError) as error:
        return str(error)
    return "nothing was refused"


REFUSED = {
    "replicated": (2, "the root is replicated, not sharded; wrap it in DistributedDataParallel"),
    "two meshes": (4, "parts of the model are sharded over different ranks; give fully_shard one mesh for all of it"),
    "copies only": (4, "the mesh has copies of the model and no shards; use DistributedDataParallel"),
    "nothing to learn": (2, "FSDPSequential has no sharded parameters that require a gradient"),
    "biased between copies": (4, "replica_codec must be unbiased or Identity, for no error memory is kept between"),
    "hook": (4, "the root has an all-reduce hook, which is where compressed gradients are exchanged; leave that out"),
    "reduce-scatter": (2, "the root has a reduce-scatter of its own, ProcessGroupAllocReduceScatter; leave that out"),
    "a part": (2, "0 is compressed already; call compress() once, for the whole model"),
    "twice": (2, "this model is compressed already; call compress() once"),
    "automatic": (2, "codec='auto' measures for DistributedDataParallel only; name a codec"),
    "optimizer": (2, "optimizer of a sharded model knows this rank's second moments only, which make no metric; leave"),
    "metric": (2, "metric must be 'auto' or 'none' for a sharded model, whose ranks share no second moments"),
    "policy": (2, "policy: its codecs have 'head*', which matches no parameter; names are such as '0.weight'"),
    "biased weights": (2, "weight_codec must be unbiased or Identity, for weights have no error memory; got"),
    "differences": (2, "weight_codec must be Differences() or a codec; got 'differences'"),
    "all-gather": (2, "the root has an all-gather of its own, OwnAllGather; leave weight_codec out"),
    "several types": (2, "the root gathers weights of several types, bfloat16, float32; leave weight_codec out"),
    "replica_codec": (2, "replica_codec is for copies of the model, and there is one; leave replica_codec out"),
    "verify_every": (2, "policy: verify_every compares copies of the model, and there is one"),
    "exchange": (2, "exchange is for copies of the model, and there is one; leave exchange out"),
}
"""Why each case is refused, and on how many ranks."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compressed_is_refused_in_a_sentence(pool, case):
    size, message = REFUSED[case]
    if case == "replicated":
        pytest.importorskip("torch.distributed._composable.replicate_with_fsdp")
    assert all(message in found for found in pool.run(refused, size, case=case))


def sharded_later(group):
    """A forward pass, for training, of a model that was sharded further after compress()."""
    mesh, net = DeviceMesh.from_group(group, "cpu"), network(width=50)
    fully_shard(net[0], mesh=mesh)
    laconic.compress(net, NUQSGD_4)
    fully_shard(net, mesh=mesh)
    train(net, sgd(net), range(1), dist.get_rank(group))


def test_parts_that_are_sharded_after_compress_are_not_left_out_silently(pool):
    for good, found in pool.outcomes(sharded_later, 2):
        assert not good
        assert "fully_shard was called after laconic.compress" in found[1]


def untold(group, case):
    """A backward pass whose gradients do not tell which parameters they are of."""
    net = network(width=50)
    if case == "unused":
        net.register_module("extra", torch.nn.Linear(50, 50))
        net.forward = lambda x: torch.nn.Sequential.forward(torch.nn.Sequential(*list(net)[:5]), x)
    net[2].requires_grad_(case == "unused")
    model = shard(group, NUQSGD_4, net=net, root="only")
    net[2].requires_grad_()
    train(model, sgd(model), range(1), dist.get_rank(group))


@pytest.mark.parametrize("case", ["unused", "thawed"])
def test_gradients_that_cannot_be_told_apart(pool, case):
    for good, found in pool.outcomes(untold, 2, case=case):
        assert not good
        assert "that does not tell which parameters it is of; use all of them in forward, and thaw none" in found[1]
