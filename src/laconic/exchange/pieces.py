"""Large tensors, averaged in pieces: while one piece is on the wire, the next is quantised, the one before decoded."""

from collections.abc import Iterator

import torch

from laconic.codec import Codec
from laconic.exchange.accounting import Accounting
from laconic.exchange.base import Exchange, Exchanged, Task
from laconic.exchange.scheduler import Scheduler
from laconic.kernels import Stream

PIECE_VALUES = 2**22
"""Values per piece: fewer overlap better, more have fewer messages."""


def average_in_pieces(
    pipeline: Scheduler,
    exchange: Exchange,
    v: torch.Tensor,
    codec: Codec,
    stream: Stream = Stream(),  # noqa: B008
    memory: torch.Tensor | None = None,
    *,
    piece_values: int = PIECE_VALUES,
    measure_error: bool = False,
    out: torch.Tensor | None = None,
) -> Exchanged:
    """Average `v` (n,) over the ranks of the pipeline, about `piece_values` at a time, and wait for it.

    pipeline  a `Pipeline` or `Lockstep`
    out       where the average goes: a contiguous row of float32, which may be `v` itself; new memory if None

    The result has every property that the exchange's own has; its bits depend on `piece_values`, which must be the same
    on all ranks. The seconds of its accounting are sums over pieces, so that together they exceed the time it took.

    >>> import torch, laconic
    >>> from laconic.exchange import AllGather, Communicator, Pipeline
    >>> pipeline = Pipeline(Communicator())
    >>> v = torch.arange(10.0)
    >>> average_in_pieces(pipeline, AllGather(), v, laconic.codec("fp32"), piece_values=4).value.equal(v)
    True
    >>> pipeline.close()
    """
    exchange.require(codec, v, out)
    v = v.reshape(-1)
    average = torch.empty(v.numel(), dtype=torch.float32, device=v.device) if out is None else out
    handles = []
    for first, last in pieces(v.numel(), piece_values, codec.quantizer.bucket_size * pipeline.comm.size):
        part = memory[first:last] if memory is not None and memory.numel() else memory
        at = stream.at(tensor=f"{stream.tensor}+{first}")
        task = Task(v[first:last], codec, at, part, measure_error, average[first:last])
        handles.append(pipeline.start(exchange, task))
    accounting = Accounting()
    for handle in handles:
        accounting += handle.wait().accounting
    accounting.n_exchanges = 1
    return Exchanged(average, accounting)


def pieces(n: int, piece_values: int, multiple: int) -> Iterator[tuple[int, int]]:
    """Cut n values into pieces of about piece_values, each but the last a whole number of `multiple`.

    multiple  a bucket for each rank, so that no rank has more to sum than another

    >>> list(pieces(100, 40, 16)), list(pieces(0, 40, 16))
    ([(0, 32), (32, 64), (64, 96), (96, 100)], [])
    """
    if piece_values < 1:
        raise ValueError(f"piece_values must be at least 1, got {piece_values}")
    width = max(1, piece_values // multiple) * multiple
    for first in range(0, n, width):
        yield first, min(n, first + width)
