"""Laws 6 and 7 for every exchange: after it every rank holds the same bits, and one rank alone is ordinary."""

import re
from datetime import timedelta

import models
import pytest
import torch
from pool import SECONDS

import laconic
from laconic import Codec, Payload, Stream
from laconic.exchange import (
    AllGather,
    BySize,
    Communicator,
    KeptBuffers,
    Pipeline,
    ReduceScatter,
    ScatterReduce,
    Task,
    average_in_pieces,
    by_name,
    run_in_turn,
)
from laconic.exchange.channel import Channel
from laconic.exchange.collectives import chunk_cuts

CODECS = ["fp32", "bf16", "nuqsgd", "qsgd", "qsgdinf", "rotated", "ef-sign", "ef-nuqsgd"]
MEMBERS = [("all_reduce", "fp32", "fixed"), ("all_reduce", "bf16", "fixed"), ("nothing", "fp32", "fixed")]
MEMBERS += [(exchange, codec, "fixed") for exchange in ("all_gather", "scatter_reduce") for codec in CODECS]
MEMBERS += [(exchange, "nuqsgd", coder) for exchange in ("all_gather", "scatter_reduce") for coder in ("rans", "elias")]
MEMBERS += [(exchange, "dithered", None) for exchange in ("all_gather", "scatter_reduce")]
MEMBERS += [("auto", "nuqsgd", "fixed")]
SIZES = [0, 1, 5, 300, 3001]


def member(exchange: str, scheme: str, coder: str | None) -> tuple:
    options = {} if scheme in ("fp32", "bf16", "dithered") else {"bucket_size": 64}
    codec = laconic.codec(scheme, coder, **options)
    return by_name(exchange, codec, size=4), codec


def values(rank: int, n: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(100 * n + rank)).to(models.device)


def exchange_all(group, exchange, scheme, coder):
    """Every length twice, with error memory carried along; the numbers are returned as lists of bits."""
    way, codec = member(exchange, scheme, coder)
    comm = Communicator.over(group)
    results = []
    for n in SIZES:
        v = values(comm.rank, n)
        memory = codec.new_memory(v)
        for step in range(2):
            result = way.average(v, codec, Stream(seed=4, step=step), memory=memory, comm=comm, measure_error=True)
            results.append((result.value, result.accounting))
    return results


class SlotCodec(Codec):
    """A stand-in for what `Codec` does on a GPU: a slot has the first bytes of a payload."""

    def has_slots(self, device):
        return True

    def encode_slot(self, v, stream, memory, slot, *, scale):
        data = self.encode(v, stream, memory, scale=scale).data
        slot[: len(data)] = data[: len(slot)]

    def decode_slots(self, slots, out, weight, verdict, *, scale=laconic.kernels.ONES):
        lengths = self.layout.slot_lengths(slots, out.numel()).tolist()
        fits = [Payload(row[:length]) for row, length in zip(slots, lengths, strict=True) if length <= len(row)]
        verdict += len(slots) - len(fits)
        self.decode_sum(fits, out, weight, scale=scale)


def exchange_in_slots(group, exchange, n):
    """Averages by slots and whole, of values that are sometimes much harder to code than those before."""
    comm = Communicator.over(group)
    codec = SlotCodec(laconic.NUQSGD(bits=4, bucket_size=64), laconic.RANS())
    kept, before, found = KeptBuffers(), Channel.is_gloo, []
    way = {"all_gather": AllGather(), "scatter_reduce": ScatterReduce()}[exchange]
    Channel.is_gloo = lambda self, device: False
    try:
        for step, density in enumerate([0.05, 0.06, 1.0 if comm.rank == 0 else 0.05, 1.0, 0.9, 0.01, 0.01]):
            v = values(comm.rank, n) * (torch.arange(n) % 100 < 100 * density)
            task = Task(v, codec, Stream(seed=4, step=step), measure_error=True, buffers=kept, late=True)
            (ours,) = run_in_turn([way.phases(task, comm)])
            whole = way.average(v, codec, Stream(seed=4, step=step), comm=comm)
            same = torch.equal(ours.value, whole.value)
            found.append((same, dict(kept.capacities), ours.accounting.bytes_sent, whole.accounting.bytes_sent))
    finally:
        Channel.is_gloo = before
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("exchange", ["all_gather", "scatter_reduce"])
def test_what_does_not_fit_its_slot_is_sent_again(pool, exchange, size):
    ranks = pool.run(exchange_in_slots, size, exchange=exchange, n=30_001)
    for found in ranks:
        assert all(same for same, *_ in found)
        capacities = [capacity for _, capacity, *_ in found]
        assert capacities == [capacity for _, capacity, *_ in ranks[0]]
        assert capacities[2][0] > 2 * capacities[1][0]  # one rank's values were longer: all learn it
        assert capacities[4] == capacities[3]
        assert capacities[6][0] < capacities[4][0]
        if size > 1:
            sent = [ours / whole for *_, ours, whole in found]
            assert 1 <= sent[1] < 1.5  # by slots alone
            assert sent[2] > 1.01  # some bytes, and all of them again


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(("exchange", "scheme", "coder"), MEMBERS)
def test_replicas_agree_and_the_average_is_near(pool, exchange, scheme, coder, size):
    ranks = pool.run(exchange_all, size, exchange=exchange, scheme=scheme, coder=coder)
    way, codec = member(exchange, scheme, coder)
    for i, n in enumerate([n for n in SIZES for _ in range(2)]):
        value, accounting = ranks[0][i]
        inputs = torch.stack([values(rank, n) for rank in range(size)])
        assert value.shape == (n,)
        assert value.dtype == torch.float32
        assert accounting.n_values == n
        if exchange != "nothing":
            assert all(torch.equal(value, other[i][0]) for other in ranks)
            assert accounting.bytes_received <= way.bytes_received(codec, n, size)
            if size > 1 and n > 300:
                assert accounting.bytes_sent > 0
        else:
            assert all(torch.equal(ranks[r][i][0], inputs[r]) for r in range(size))
        if scheme == "fp32" and exchange != "nothing":
            assert torch.allclose(value, inputs.mean(dim=0), atol=1e-6)
        if not scheme.startswith("ef-") and exchange != "nothing" and n == SIZES[-1]:
            error = float((value - inputs.mean(dim=0)).square().sum()) / float(inputs.square().sum() / size)
            assert error <= 1.5 * way.variance_bound(codec, n, size) + 1e-12  # a mean over 3001 values: well within


def scatter(group, scheme, coder, weight):
    """This rank's chunk of the average, for lengths that divide by the number of ranks."""
    comm, (_, codec) = Communicator.over(group), member("scatter_reduce", scheme, coder)
    found = []
    for n in (n * comm.size for n in SIZES):
        v = values(comm.rank, n)
        result = ReduceScatter(weight).average(v, codec, comm=comm, memory=codec.new_memory(v))
        found.append((n, result.value, result.accounting))
    return found


@pytest.mark.parametrize("weight", [None, 0.5])
@pytest.mark.parametrize(("scheme", "coder"), [(codec, "fixed") for codec in CODECS] + [("nuqsgd", "elias")])
def test_reduce_scatter_leaves_each_rank_its_chunk(pool, scheme, coder, weight):
    size, way, (_, codec) = 3, ReduceScatter(weight), member("scatter_reduce", scheme, coder)
    for chunks in zip(*pool.run(scatter, size, scheme=scheme, coder=coder, weight=weight), strict=True):
        n, value = chunks[0][0], torch.cat([value for _, value, _ in chunks])
        inputs = torch.stack([values(rank, n) for rank in range(size)])
        wanted = inputs.sum(dim=0) * (1 / size if weight is None else weight)
        assert value.shape == (n,)
        for _, _, accounting in chunks:
            assert accounting.n_values == n
            assert accounting.bytes_received <= way.bytes_received(codec, n, size)
        if scheme == "fp32":
            assert torch.allclose(value, wanted, atol=1e-6)
        if not scheme.startswith("ef-") and weight is None and n == size * SIZES[-1]:
            error = float((value - wanted).square().sum()) / float(inputs.square().sum() / size)
            assert error <= 1.5 * way.variance_bound(codec, n, size) + 1e-12


def pipelined(group, exchange, scheme, coder):
    """Ten tensors in flight at once, against the same ten one after another."""
    way, codec = member(exchange, scheme, coder)
    comm = Communicator.open(group)
    pipeline = Pipeline(comm)
    tensors = [values(comm.rank, n) for n in (3001, 0, 17, 5000, 1, 64, 640, 2000, 2, 999)]
    tasks = [Task(v, codec, Stream(tensor=i), codec.new_memory(v)) for i, v in enumerate(tensors)]
    results = [handle.wait().value for handle in [pipeline.start(way, task) for task in tasks]]
    single = [
        way.average(v, codec, Stream(tensor=i), memory=codec.new_memory(v), comm=comm).value
        for i, v in enumerate(tensors)
    ]
    pipeline.close()
    comm.close()
    return all(torch.equal(a, b) for a, b in zip(results, single, strict=True))


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(("exchange", "scheme", "coder"), MEMBERS)
def test_a_pipeline_gives_the_same_bits(pool, exchange, scheme, coder, size):
    assert all(pool.run(pipelined, size, exchange=exchange, scheme=scheme, coder=coder))


def limits(group, asked):
    comm = Communicator.open(timeout=asked)
    found = [channel.timeout() for channel in (*Communicator.over().channels, *comm.channels)]
    comm.close()
    return found


@pytest.mark.parametrize("asked", [None, timedelta(seconds=17)])
def test_new_channels_wait_as_long_as_their_group(pool, asked):
    """Unless another time is asked for; torch's own default would be half an hour, whatever the group's."""
    for group, *channels in pool.run(limits, 4, asked=asked):
        assert group == timedelta(seconds=SECONDS)
        assert channels == [asked or group] * 2


def close_twice(group):
    comm = Communicator.open()
    known = torch.distributed.distributed_c10d._world.pg_map
    before = len(known)
    comm.close()
    comm.close()
    return before - len(known)


def test_channels_may_be_closed_again(pool):
    assert pool.run(close_twice, 4) == [2] * 4


def outside(group):
    part = torch.distributed.new_group([0, 1, 2])
    if torch.distributed.get_rank() < 3:
        return None
    with pytest.raises(ValueError, match="rank 3 is not in the process group that was given; call this on its ranks"):
        Communicator.open(part)
    return "told"


def test_a_rank_that_is_not_in_the_group_is_told(pool):
    assert pool.run(outside, 4) == [None, None, None, "told"]


def average_non_finite(group, exchange, bad):
    way, codec = member(exchange, "nuqsgd", "fixed")
    comm = Communicator.over(group)
    v = values(comm.rank, 300)
    if comm.rank == comm.size - 1:
        v[70] = bad
    return torch.isfinite(way.average(v, codec, comm=comm).value)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
@pytest.mark.parametrize("exchange", ["all_gather", "scatter_reduce"])
def test_one_rank_s_non_finite_value_reaches_every_rank(pool, exchange, bad):
    for finite in pool.run(average_non_finite, 3, exchange=exchange, bad=bad):
        assert not finite[64:128].any()
        assert finite[:64].all()
        assert finite[128:].all()


def mean_over_steps(group, exchange, n_steps):
    way, codec = member(exchange, "nuqsgd", "fixed")
    comm = Communicator.over(group)
    v = values(comm.rank, 640)
    total = torch.zeros(640, dtype=torch.float64)
    for step in range(n_steps):
        total += way.average(v, codec, Stream(step=step), comm=comm).value
    return total / n_steps


@pytest.mark.parametrize("exchange", ["all_gather", "scatter_reduce"])
def test_the_average_is_unbiased(pool, exchange):
    """‖mean over T steps − exact mean‖² has expectation at most bound / T; six times that is never seen."""
    n_steps, (way, codec) = 200, member(exchange, "nuqsgd", "fixed")
    mean = pool.run(mean_over_steps, 3, exchange=exchange, n_steps=n_steps)[0]
    inputs = torch.stack([values(rank, 640) for rank in range(3)]).double()
    energy = float(inputs.square().sum()) / 3
    assert float((mean - inputs.mean(dim=0)).square().sum()) / energy < 6 * way.variance_bound(codec, 64, 3) / n_steps


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_chunks_are_whole_buckets(n, size):
    cuts = chunk_cuts(n, 64, size)
    assert cuts[0] == 0
    assert cuts[-1] == n
    assert len(cuts) == size + 1
    assert cuts == sorted(cuts)
    assert all(cut % 64 == 0 for cut in cuts[:-1] if cut < n)


def test_auto_explains_itself():
    nuq, sign = laconic.codec("nuqsgd"), laconic.codec("ef-sign")
    assert by_name("auto", laconic.codec("fp32"), 8).name == "all_reduce"
    assert by_name("auto", nuq, 2).name == "all_gather"
    assert by_name("auto", sign, 4).name == "all_gather"
    for codec, size in ((nuq, 4), (sign, 64)):
        way = by_name("auto", codec, size)
        assert way.choose(codec, 2**20, size).name == "scatter_reduce"
        assert way.choose(codec, 1000, size).name == "all_gather"


def test_bad_arguments():
    with pytest.raises(ValueError, match="unknown exchange 'ring'; choose one of auto, all_reduce, all_gather"):
        by_name("ring", laconic.codec("fp32"), 2)
    with pytest.raises(ValueError, match="all_reduce sums values on the wire and cannot carry NUQSGD"):
        by_name("all_reduce", laconic.codec("nuqsgd"), 2)


FP32 = laconic.codec("fp32")
UNFIT = {
    "complex": ({"v": torch.ones(4, dtype=torch.complex64)}, TypeError, "cannot quantize a tensor of complex64"),
    "whole": ({"v": torch.ones(4, dtype=torch.int64)}, TypeError, "cannot quantize a tensor of int64"),
    "no tensor": ({"v": [1.0]}, TypeError, "expected a torch.Tensor, got builtins.list"),
    "a quantizer": ({"codec": laconic.NUQSGD()}, TypeError, r"codec must be a Codec such as .*, got NUQSGD\("),
    "short": (
        {"out": torch.empty(3)},
        ValueError,
        r"out must be a contiguous row of 4 float32 values, .* of shape \(3,\)",
    ),
    "wide": (
        {"out": torch.empty(4, dtype=torch.float64)},
        ValueError,
        "row of 4 float32 values, got torch.float64",
    ),
    "with gaps": ({"out": torch.empty(8)[::2]}, ValueError, "out must be a contiguous row of 4 float32"),
}


@pytest.mark.parametrize("exchange", ["all_reduce", "all_gather", "scatter_reduce", "nothing"])
@pytest.mark.parametrize(("change", "kind", "said"), UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_averaged_is_told(exchange, change, kind, said):
    way, given = by_name(exchange, FP32, 1), {"v": torch.ones(4), "codec": FP32, **change}
    with pytest.raises(kind, match=said):
        way.average(**given)
    pipeline = Pipeline(Communicator())
    with pytest.raises(kind, match=said):
        average_in_pieces(pipeline, way, **given)
    pipeline.close()


@pytest.mark.parametrize("second", ["ef-sign", "ef-nuqsgd", "ef-bf16", "sign"])
def test_averages_are_not_sent_with_a_bias_or_a_memory(second):
    codec = laconic.codec(second)
    said = re.escape(f"cannot send them in second={codec.quantizer!r}, which is biased; use NUQSGD, QSGD, QSGDInf or")
    ways = [ScatterReduce(codec), BySize(AllGather(), ScatterReduce(codec))]
    for way in ways:
        with pytest.raises(ValueError, match=said):
            by_name(way, laconic.codec("nuqsgd"), 4)
        with pytest.raises(ValueError, match=said):
            way.average(torch.ones(3), laconic.codec("nuqsgd"))


@pytest.mark.parametrize("second", ["fp32", "bf16", "nuqsgd", "qsgd", "qsgdinf"])
def test_averages_go_in_anything_else(second):
    codec = laconic.codec(second)
    way = by_name(ScatterReduce(codec), laconic.codec("ef-sign"), 4)
    assert torch.isfinite(way.average(torch.ones(3), laconic.codec("nuqsgd")).value).all()
    assert way == ScatterReduce(second) == ScatterReduce(codec.quantizer)
    with pytest.raises(TypeError, match=r"quantizer must be one such as NUQSGD\(bits=4\), got 3"):
        ScatterReduce(3)


def test_second_quantisation_of_a_biased_codec_is_unbiased():
    assert ScatterReduce().second_codec(laconic.codec("ef-sign")).quantizer.unbiased
    assert ScatterReduce().second_codec(laconic.codec("ef-nuqsgd")) == laconic.codec("nuqsgd")
    other = Codec(laconic.QSGDInf(bits=8))
    assert ScatterReduce(second=other).second_codec(laconic.codec("nuqsgd")) == other
