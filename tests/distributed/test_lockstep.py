"""What NCCL and GPUs use, shown on the CPU over Gloo: exchanges without threads, whole collectives, memory kept."""

import pytest
import torch
from test_exchanges import MEMBERS, member, values

import laconic
from laconic import Stream
from laconic.exchange import AllGather, Communicator, KeptBuffers, Lockstep, Task
from laconic.exchange.channel import Channel

LENGTHS = (3001, 0, 17, 5000, 1, 64)
CPU = torch.device("cpu")


def collective(group) -> Communicator:
    """Ranks that talk as over NCCL: by collectives of the process group, in one order."""
    comm = Communicator.over(group)
    return Communicator(comm.rank, comm.size, (Channel(group, comm.rank, comm.size, gloo=frozenset()),))


def locksteps(group, exchange, scheme, coder, like_nccl):
    """Two steps of six tensors in lockstep, in memory that is kept, against the same one after another."""
    way, codec = member(exchange, scheme, coder)
    plain = Communicator.over(group)
    comm = collective(group) if like_nccl else plain
    lockstep, equal = Lockstep(comm, CPU), []
    tensors = [values(comm.rank, n) for n in LENGTHS]
    memories = [[codec.new_memory(v) for v in tensors] for _ in range(2)]
    kept = [KeptBuffers() for _ in tensors]
    for step in range(2):
        rule = [(codec, Stream(step=step, tensor=i)) for i in range(len(tensors))]
        tasks = [
            Task(v, *r, memory, buffers=buffers)
            for v, r, memory, buffers in zip(tensors, rule, memories[0], kept, strict=True)
        ]
        found = [handle.wait().value for handle in [lockstep.start(way, task) for task in tasks]]
        single = [
            way.average(v, *r, memory=memory, comm=plain).value
            for v, r, memory in zip(tensors, rule, memories[1], strict=True)
        ]
        equal += [torch.equal(a, b) for a, b in zip(found, single, strict=True)]
    lockstep.close()
    return equal


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("like_nccl", [False, True])
@pytest.mark.parametrize(("exchange", "scheme", "coder"), MEMBERS)
def test_the_same_bits_as_one_after_another(pool, exchange, scheme, coder, like_nccl, size):
    for equal in pool.run(locksteps, size, exchange=exchange, scheme=scheme, coder=coder, like_nccl=like_nccl):
        assert all(equal)
        assert len(equal) == 2 * len(LENGTHS)


def new_rows(group, exchange):
    """How many rows of memory were new at each of three steps."""
    way, codec = member(exchange, "nuqsgd", "fixed")
    comm, kept, known, counts = collective(group), KeptBuffers(), 0, []
    lockstep = Lockstep(comm, CPU)
    for step in range(3):
        task = Task(values(comm.rank, 3001), codec, Stream(step=step), buffers=kept)
        lockstep.start(way, task).wait()
        counts.append(len(kept) - known)
        known = len(kept)
    return counts


@pytest.mark.parametrize("exchange", ["all_gather", "scatter_reduce"])
def test_memory_is_new_once(pool, exchange):
    for counts in pool.run(new_rows, 3, exchange=exchange):
        assert counts[0] > 0
        assert counts[1:] == [0, 0]


class Failing(AllGather):
    def phases(self, task, comm):
        yield
        raise ValueError("a broken phase")


def test_after_an_error_every_exchange_fails_with_it():
    lockstep, codec = Lockstep(Communicator(), CPU), laconic.codec("fp32")
    handles = [
        lockstep.start(way, Task(torch.ones(3), codec, Stream())) for way in (AllGather(), Failing(), AllGather())
    ]
    assert torch.equal(handles[0].wait().value, torch.ones(3))
    for handle in handles[1:]:
        with pytest.raises(ValueError, match="a broken phase"):
            handle.wait()
