"""Laws of the exchange and of the DDP hook over NCCL, on one GPU: `python nccl_checks.py STORE` prints a line for each.

One rank that talks to itself through every collective, for NCCL takes no two ranks on one GPU.
"""

import sys
import traceback

import torch
import torch.distributed as dist
from models import network, sgd, weights
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic import NUQSGD, Codec, Dithered, ErrorFeedback, Policy, Rotated, Sign, Stream
from laconic.exchange import AllGather, AllReduce, Communicator, KeptBuffers, Lockstep, Nothing, ScatterReduce, Task
from laconic.exchange.channel import Channel
from laconic.training import ddp
from laconic.training.hook import average_gradients

CUDA = torch.device("cuda", 0)
SCHEMES = {
    "nuqsgd": Codec(NUQSGD(bits=4, bucket_size=256)),
    "ef-sign": Codec(ErrorFeedback(Sign(bucket_size=256))),
    "bf16": laconic.codec("bf16"),
    "rotated": Codec(Rotated(bits=4, bucket_size=512)),
    "dithered": Codec(Dithered(error=0.1)),
    "ef-dithered": Codec(ErrorFeedback(Dithered(error=0.1))),
}
N_WARM, N_STEPS = 3, 4


def through_nccl() -> Communicator:
    return Communicator(0, 1, (Channel.of(dist.group.WORLD),))


def exchange_is_that_of_a_lone_rank(scheme, exchange):
    """The collectives carry every byte: the average is, bit for bit, what it is without them, four steps long.

    Codes of variable size go in slots from the second step on, and those of the third do not fit.
    """
    codec, lockstep = SCHEMES[scheme], Lockstep(through_nccl(), CUDA)
    drawn = [torch.randn(n, device=CUDA) for n in (3001, 1, 0, 70_001)]
    memories = [[codec.new_memory(v) for v in drawn] for _ in range(2)]
    kept = [KeptBuffers() for _ in drawn]
    for step in range(4):
        tensors = [v if step == 2 else v**5 for v in drawn]
        handles = [
            lockstep.start(
                exchange,
                Task(v, codec, Stream(step=step, tensor=i), memories[0][i], buffers=kept[i], late=True),
            )
            for i, v in enumerate(tensors)
        ]
        for i, (v, handle) in enumerate(zip(tensors, handles, strict=True)):
            alone = exchange.average(v, codec, Stream(step=step, tensor=i), memory=memories[1][i], comm=Communicator())
            assert torch.equal(handle.wait().value, alone.value), (step, i)
    lockstep.close()


def messages_of_unknown_size():
    message = torch.arange(7, dtype=torch.uint8, device=CUDA)
    assert torch.equal(through_nccl().all_to_all([message]).wait()[0], message)


def streams_wait_for_each_other():
    """Values that a slow stream is still to write, averaged and read at once: nothing is read too early."""
    codec, lockstep = laconic.codec("fp32"), Lockstep(through_nccl(), CUDA)
    v = torch.zeros(2**22, device=CUDA)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for i in range(1, 9):
                torch.cuda._sleep(20_000_000)
                v.fill_(i)
                handle = lockstep.start(AllGather() if i % 2 else Nothing(), Task(v, codec, Stream()))
                with lockstep.side_stream.current():
                    torch.cuda._sleep(20_000_000)
                found = handle.wait().value.clone()
                v.zero_()
                assert torch.equal(found, torch.full_like(v, i)), i
        torch.cuda.synchronize()


class Watched:
    """The hook, which from some step on may neither make the host wait nor ask for memory of the GPU."""

    def __init__(self):
        self.strict, self.n_calls, self.n_allocations = False, 0, 0

    def average(self, state, bucket):
        if not self.strict:
            return average_gradients(state, bucket)
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda.set_sync_debug_mode(2)
        try:
            future = average_gradients(state, bucket)
        finally:
            torch.cuda.set_sync_debug_mode(0)
        self.n_calls += 1
        self.n_allocations += torch.cuda.memory_stats()["allocation.all.allocated"] - before
        return future


def wrapped(codec, exchange, watched=None, comm=None, **options):
    """A compressed model whose ranks are `comm`; `watched` in the hook's place."""
    average, opened = ddp.average_gradients, Communicator.__dict__["open"]
    ddp.average_gradients = watched.average if watched else average
    if comm is not None:
        Communicator.open = staticmethod(lambda *_, **__: comm)
    try:
        model = DistributedDataParallel(network(width=100).to(CUDA), **options)
        laconic.compress(model, codec, exchange=exchange, policy=Policy(min_values=100, group_values=1000, alone=True))
    finally:
        ddp.average_gradients, Communicator.open = average, opened
    return model


def step(model, optimizer, number, rank=0):
    x = torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * number + rank)).to(CUDA)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), x[:, :5].argmax(dim=1)).backward()
    optimizer.step()


def hook_neither_waits_nor_allocates(scheme, exchange, comm, **options):
    watched = Watched()
    model = wrapped(SCHEMES[scheme], exchange, watched, comm(), **options)
    optimizer = sgd(model)
    for number in range(N_WARM + N_STEPS):
        watched.strict = number >= N_WARM
        step(model, optimizer, number)
    assert watched.n_calls >= N_STEPS
    fixed = SCHEMES[scheme].fixed_size and scheme != "rotated"  # whose short bucket takes some memory
    assert watched.n_allocations == 0 or not fixed, f"{watched.n_allocations} allocations in {watched.n_calls} calls"
    assert torch.isfinite(weights(model)).all()
    stats = laconic.stats(model)
    assert stats["steps"] == N_WARM + N_STEPS
    assert 0 <= stats["nmse"] < 2


def training_is_that_of_a_lone_rank(scheme):
    """Through NCCL or not, on the default stream or another: the same weights."""
    found = []
    for comm, stream in ((None, None), (through_nccl(), None), (through_nccl(), torch.cuda.Stream())):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            model = wrapped(SCHEMES[scheme], AllGather(), comm=comm)
            optimizer = sgd(model)
            for number in range(5):
                step(model, optimizer, number)
        torch.cuda.synchronize()
        found.append(weights(model))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def resumed_is_never_stopped(scheme):
    model = wrapped(SCHEMES[scheme], AllGather(), comm=through_nccl())
    optimizer = sgd(model)
    for number in range(3):
        step(model, optimizer, number)
    saved = {name: value.clone() for name, value in model.module.state_dict().items()}
    momentum, state = optimizer.state_dict(), laconic.state_dict(model)
    momentum = torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, momentum)
    for number in range(3, 6):
        step(model, optimizer, number)
    again = wrapped(SCHEMES[scheme], AllGather(), comm=through_nccl())
    again.module.load_state_dict(saved)
    laconic.load_state_dict(again, state)
    other = sgd(again)
    other.load_state_dict(momentum)
    for number in range(3, 6):
        step(again, other, number)
    assert torch.equal(weights(model), weights(again))


def non_finite_values_stay_so():
    v = torch.randn(1000, device=CUDA)
    v[300] = torch.nan
    finite = torch.isfinite(AllGather().average(v, SCHEMES["nuqsgd"], comm=through_nccl()).value).cpu()
    assert not finite[256:512].any()
    assert finite[:256].all()
    assert finite[512:].all()


def checks():
    """Name to check."""
    found = {
        "messages of unknown size": (messages_of_unknown_size,),
        "streams wait for each other": (streams_wait_for_each_other,),
        "non-finite values stay so": (non_finite_values_stay_so,),
        "exchange, bf16, all_reduce": (exchange_is_that_of_a_lone_rank, "bf16", AllReduce()),
    }
    for scheme in SCHEMES:
        found[f"training, {scheme}"] = (training_is_that_of_a_lone_rank, scheme)
        found[f"resume, {scheme}"] = (resumed_is_never_stopped, scheme)
        for way in (AllGather(), ScatterReduce()):
            found[f"exchange, {scheme}, {way.name}"] = (exchange_is_that_of_a_lone_rank, scheme, way)
            for comm in (through_nccl, Communicator):
                name = f"hook, {scheme}, {way.name}, {comm.__name__}"
                found[name] = (hook_neither_waits_nor_allocates, scheme, way, comm)
    found["hook, gradients as views"] = (
        lambda: hook_neither_waits_nor_allocates("nuqsgd", AllGather(), through_nccl, gradient_as_bucket_view=True),
    )
    return found


def main(store):
    torch.cuda.set_device(CUDA)
    dist.init_process_group("nccl", f"file://{store}", rank=0, world_size=1)
    for name, (check, *arguments) in checks().items():
        try:
            check(*arguments)
            outcome = "ok"
        except Exception:  # noqa: BLE001 (each check is a test of its own)
            outcome = traceback.format_exc().replace("\n", " | ")
        print(f"{name}\t{outcome}", flush=True)  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
