"""What each rank does in the suite `exchange`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from laconic.bench.exchange.rivals import BY_LABEL, Rival
from laconic.bench.ranks import barrier, digest
from laconic.exchange import Accounting, AllReduce, Communicator, Exchanged, Pipeline, average_in_pieces
from laconic.kernels import Stream


@dataclass(slots=True)
class _Lane:
    """One contender on one rank, and what was seen of it."""

    run: Callable[[int], Exchanged]
    seconds: list[float] = field(default_factory=list)
    phases: list[Accounting] = field(default_factory=list)


def exchange_on_rank(
    tell: Callable[[str], None],
    *,
    labels: Sequence[str],
    size: int,
    bucket_size: int,
    piece_values: int,
    repeats: int,
) -> dict[str, dict[str, Any]]:
    """All contenders, one after another, `repeats` times around; seconds of each round, bytes, error and a digest.

    Round 0 is not timed; its results are the ones that are checked.
    """
    comm = Communicator.open()
    pipeline = Pipeline(comm)
    v = values(comm.rank, size)
    exact = exact_mean(comm.size, size) if comm.rank == 0 else None
    lanes = {label: _Lane(_run(BY_LABEL[label], pipeline, v, bucket_size, piece_values)) for label in labels}
    found: dict[str, dict[str, Any]] = {}
    for turn in range(repeats + 1):
        tell(f"round {turn} of {repeats}" if turn else "warm-up and checks")
        for label, lane in lanes.items():
            barrier(comm)
            start = time.perf_counter()
            exchanged = lane.run(turn)
            seconds = time.perf_counter() - start
            if turn == 0:
                found[label] = _look(exchanged, exact)
            else:
                lane.seconds.append(seconds)
                lane.phases.append(exchanged.accounting)
    pipeline.close()
    comm.close()
    for label, lane in lanes.items():
        found[label]["seconds"] = lane.seconds
        for phase in ("encode_seconds", "wire_seconds", "decode_seconds"):
            found[label][phase] = median(getattr(accounting, phase) for accounting in lane.phases)
    return found


def values(rank: int, n: int) -> torch.Tensor:
    """The values (n,) of a rank, normal and independent, the same each time."""
    return torch.randn(n, generator=torch.Generator().manual_seed(rank))


def exact_mean(size: int, n: int) -> tuple[torch.Tensor, float]:
    """The mean over ranks in float64, and the mean of the ranks' ‖v‖²."""
    mean, energy = torch.zeros(n, dtype=torch.float64), 0.0
    for rank in range(size):
        v = values(rank, n)
        mean += v
        energy += float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2
    return mean / size, energy / size


def _run(
    rival: Rival, pipeline: Pipeline, v: torch.Tensor, bucket_size: int, piece_values: int
) -> Callable[[int], Exchanged]:
    if rival.is_baseline:
        return _baseline(rival, pipeline.comm, v)
    exchange, codec = rival.make(bucket_size, pipeline.comm.size)
    memory, out = codec.new_memory(v), v.clone()
    if rival.exchange == "nothing":
        return lambda turn: exchange.average(v, codec, comm=pipeline.comm, out=out)
    return lambda turn: average_in_pieces(
        pipeline, exchange, v, codec, Stream(step=turn), memory, piece_values=piece_values, out=out
    )


def _baseline(rival: Rival, comm: Communicator, v: torch.Tensor) -> Callable[[int], Exchanged]:
    """The process group's own all-reduce at its best: into memory that is there, in one call."""
    codec = rival.make(1, comm.size)[1]
    n_bytes = AllReduce().bytes_received(codec, v.numel(), comm.size)
    wire, out = torch.empty_like(v, dtype=torch.bfloat16 if rival.codec == "bf16" else torch.float32), v.clone()

    def run(turn: int) -> Exchanged:
        accounting = Accounting(n_exchanges=1, n_values=v.numel(), bytes_sent=n_bytes, bytes_received=n_bytes)
        with accounting.timed("encode"):
            torch.div(v, comm.size, out=wire) if wire.dtype == v.dtype else wire.copy_(v).div_(comm.size)
        with accounting.timed("wire"):
            comm.all_reduce(wire)()
        with accounting.timed("decode"):
            value = wire if wire.dtype == v.dtype else out.copy_(wire)
        return Exchanged(value, accounting)

    return run


def _look(exchanged: Exchanged, exact: tuple[torch.Tensor, float] | None) -> dict[str, Any]:
    """What to compare across ranks, and with the exact mean."""
    value, accounting = exchanged.value, exchanged.accounting
    seen = {
        "digest": digest([value]),
        "bytes_sent": accounting.bytes_sent,
        "bytes_received": accounting.bytes_received,
    }
    if exact is None:
        return seen
    mean, energy = exact
    error = float((value.double() - mean).square().sum())
    return {**seen, "nmse": error / energy if energy else error}
