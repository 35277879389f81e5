"""`laconic.compress` for models of `fully_shard`: FSDP2's reduce-scatter and HSDP's all-reduce, compressed.

Each unit of the model gets a `UnitExchange`, which FSDP2 calls in place of its reduce-scatter, and a `UnitGather` in
place of its all-gather (`fsdp_weights`), on the streams and with the process group that it uses itself. So overlap with
backward, prefetching and resharding are FSDP2's own.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import (
    Accounting,
    Communicator,
    Exchange,
    KeptBuffers,
    ReduceScatter,
    ScatterReduce,
    Task,
    run_in_turn,
)
from laconic.exchange.base import Phases
from laconic.quantizers import Identity, Quantizer
from laconic.training.compressor import Compressor, exchanges_of
from laconic.training.fsdp_units import Columns, ShardedGroup, Unit, find_units, leave_out_replicas, replica_group
from laconic.training.fsdp_weights import PLAIN_BF16, UnitGather, WeightCodec, Weights
from laconic.training.groups import PLAIN, Group, Policy, describe


@dataclass(slots=True)
class Pass:
    """The backward pass under way, over all units.

    found    accounting of the exchanges so far
    n_calls  how often each unit has had a gradient in this pass: once, as a rule
    streams  CUDA streams that FSDP2 exchanges on
    buffers  memory for messages: units follow one another, so that they can share it
    graph    autograd's number of the pass
    """

    compressor: Compressor
    found: Accounting = field(default_factory=Accounting)
    n_calls: Counter[Unit] = field(default_factory=Counter)
    streams: set[torch.cuda.Stream] = field(default_factory=set)
    buffers: dict[object, KeptBuffers] = field(default_factory=dict)
    graph: int = -1

    def begin(self, unit: Unit) -> None:
        """A unit has a gradient. The first of a pass compares configurations, and has the pass's end count a step."""
        graph = torch._C._current_graph_task_id()
        if graph != self.graph:
            self.compressor.agree()
            self.found, self.n_calls, self.graph = Accounting(), Counter(), graph
            _at_the_end(lambda: _at_the_end(self._end))  # after FSDP2's own call at the end, which reduces some units
        self.n_calls[unit] += 1

    def _end(self) -> None:
        for stream in self.streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        self.compressor.finish_step(self.found)

    def task(self, unit: Unit, group: ShardedGroup, v: torch.Tensor, ranks: str) -> tuple[Exchange, Task]:
        """The compressor's task, with random numbers of its own for `ranks` and call, and memory shared by units."""
        stream = torch.cuda.current_stream(v.device) if v.is_cuda else None
        self.streams |= {stream} if stream is not None else set()
        buffers = self.buffers.setdefault((ranks, unit.groups.index(group), stream), KeptBuffers())
        exchange, task = self.compressor.task(group, v)
        tensor = f"{group.index}, {ranks}, call {self.n_calls[unit]}"
        return exchange, replace(task, stream=task.stream.at(tensor=tensor), out=None, buffers=buffers)

    def run(self, running: Sequence[Phases]) -> None:
        """Run exchanges, and remember what they cost."""
        for done in run_in_turn(running):
            self.found += done.accounting


@dataclass(frozen=True, slots=True)
class ColumnsTask(Task):
    """Values that lie in some columns of a matrix `v`; a row of them is gathered when it is encoded, and not before."""

    columns: Columns = field(kw_only=True)

    @property
    def n_values(self) -> int:
        return len(self.v) * sum(self.columns.widths)

    def part(self, first: int, last: int) -> torch.Tensor:
        """One row, which is what a rank gets."""
        row = first // max(1, last - first)
        return self.columns.take(self.v[row : row + 1])


@dataclass(frozen=True, slots=True)
class UnitExchange:
    """What FSDP2 calls for one unit; `allocate` and `__call__` are its interface of a reduce-scatter.

    between  says what codec there is between replicas
    """

    unit: Unit
    under_way: Pass
    between: ScatterReduce

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the unit's gradient, and for this rank's part of the average."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """This rank's row of the average of `input_tensor`, a row per rank, to `output_tensor`:

        1. at the first step, and at the first after a state was loaded, compare configurations across ranks;
        2. of each row, gather the columns of the compressed parameters, and those of the others, and encode them;
        3. all-to-all, decode and sum own row (`ReduceScatter`);
        4. write the sums to the columns of `output_tensor`.

        `op` says what the sums are multiplied by. All work is queued on the current stream, where FSDP2 goes on.
        """
        self.under_way.begin(self.unit)
        comm = self.under_way.compressor.comm
        exchange = ReduceScatter(self._weight(op))
        rows, own = input_tensor.view(comm.size, -1), output_tensor.view(1, -1)
        parts = self.unit.columns(rows.shape[1])
        self.under_way.run([self._reduce_scatter(exchange, rows, own, *part) for part in parts])

    def _reduce_scatter(
        self, exchange: Exchange, rows: torch.Tensor, own: torch.Tensor, group: ShardedGroup, at: Columns, held: Columns
    ) -> Phases:
        """Steps 2 to 4 for one group, whose columns are `at` in `rows` and `held` in the group's error memory."""
        compressor = self.under_way.compressor
        _, task = self.under_way.task(self.unit, group, rows, f"copy {compressor.replicas.rank}")
        codec = PLAIN_BF16 if task.codec is PLAIN and rows.dtype == torch.bfloat16 else task.codec
        task = ColumnsTask(rows, codec, task.stream, task.memory, task.measure_error, buffers=task.buffers, columns=at)
        memory = None
        if task.memory is not None and task.memory.numel():
            memory = task.memory.view(len(rows), -1)
            task = replace(task, memory=held.take(memory))
        if at.is_all_of(own) and own.dtype == torch.float32:
            task = replace(task, out=own.view(-1))
        done = yield from exchange.phases(task, compressor.comm)
        at.put(done.value, own)
        compressor.bits |= {group.index: done.accounting.bits} if group.compressed else {}
        if memory is not None and task.memory is not None:
            held.put(task.memory, memory)
            group.clear_padding(memory.view(-1))
        return done

    def _weight(self, op: Any) -> float | None:
        """What the sum over ranks is multiplied by; None for their mean."""
        if op == dist.ReduceOp.AVG:
            return None
        return 1.0 if op == dist.ReduceOp.SUM else 1.0 / self.unit.fsdp.gradient_divide_factor

    def average_replicas(self, output: torch.Tensor) -> None:
        """Average this rank's row over the copies of the model, in place: what HSDP's all-reduce does."""
        own = output.view(1, -1)
        self.under_way.run([self._average(own, *part) for part in self.unit.columns(own.shape[1])])
        if self.unit.fsdp.gradient_divide_factor is not None:  # which divides the sum over all ranks
            output.mul_(self.under_way.compressor.replicas.size)
        if output.is_cuda:
            output.record_stream(torch.cuda.current_stream(output.device))

    def _average(self, own: torch.Tensor, group: ShardedGroup, at: Columns, held: Columns) -> Phases:
        compressor = self.under_way.compressor
        v = at.take(own).float()
        exchange, task = self.under_way.task(self.unit, group, v, f"shard {compressor.comm.rank}")
        codec = PLAIN if task.codec is PLAIN else self.between.second_codec(task.codec)
        task = replace(task, codec=codec, memory=None, measure_error=False, out=v)
        done = yield from exchange.phases(task, compressor.replicas)
        at.put(done.value, own)
        done.accounting.n_values = 0  # they were counted by the reduce-scatter
        return done


def compress_sharded(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str,
    replica_codec: Codec | Quantizer | str | None,
    weight_codec: WeightCodec | None,
    exchange: str | Exchange,
    policy: Policy,
    seed: int,
    error_every: int,
) -> tuple[Compressor, Callable[[Codec], tuple[Exchange, dict[int, Exchange]]]]:
    """What `laconic.compress` does with a model of `fully_shard`; and how copies average under another codec."""
    if isinstance(codec, str) and codec == "auto":
        raise InvalidOption(Option("codec", "auto"), " measures for DistributedDataParallel only; name a codec")
    units, first = find_units(model, policy), codec_for(codec)
    device = units[0].fsdp.device
    comm = _ranks(units, "sharded", lambda fsdp: fsdp._reduce_scatter_process_group)
    replicas = _ranks(units, "replicated", replica_group)
    copies = ScatterReduce(None if replica_codec is None else codec_for(replica_codec))
    _check_replicas(comm, replicas, exchange, replica_codec, copies.second_codec(first))
    if policy.verify_every and replicas.size == 1:
        raise InvalidOption(Option("policy"), ": verify_every compares copies of the model, and there is one")
    weights = Weights.asked_for(weight_codec)
    for unit in units if weights.codec is not None else ():
        _check_weights(unit)
    groups: list[Group] = [group for unit in units for group in unit.groups]
    between = partial(
        exchanges_of, exchange, groups=groups, policy=policy, size=replicas.size, sent=copies.second_codec
    )
    chosen, own = between(first)
    config = {
        **describe(first, policy, groups),
        "exchange": repr(chosen),
        "replica_codec": "by codec"
        if copies.second is None
        else f"{copies.second.quantizer!r}, {copies.second.coder!r}",
        "weight_codec": weights.describe(),
    }
    compressor = Compressor(
        groups, first, chosen, policy, comm, device, config, seed, error_every, replicas=replicas, weights=weights
    )
    compressor.exchanges = own
    compressor.parameters = {name: p.sharded_param for unit in units for name, p in unit.parameters.items()}
    under_way, gathering = Pass(compressor), _ranks(units, "sharded", lambda fsdp: fsdp._all_gather_process_group)
    gathering = comm if gathering.channels == comm.channels else gathering
    for unit in units:
        ours = UnitExchange(unit, under_way, copies)
        unit.module.set_custom_reduce_scatter(ours)
        weights.units.append(UnitGather(unit, compressor, gathering, unit.fsdp._all_gather_comm))
        unit.module.set_custom_all_gather(weights.units[-1])
        if replicas.size > 1:
            leave_out_replicas(unit.fsdp)
            unit.module.set_all_reduce_hook(ours.average_replicas)
    return compressor, between


def give_back(compressor: Compressor) -> None:
    """Have FSDP2 exchange by itself again what a closed compressor did."""
    for gather in compressor.weights.units:
        for name, value in gather.unit.native.items():
            setattr(gather.unit.fsdp, name, value)


def _at_the_end(call: Callable[[], None]) -> None:
    """Have autograd call this when the backward pass ends, after what it was given to call before."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _ranks(units: list[Unit], how: str, group_of: Callable[[Any], dist.ProcessGroup | None]) -> Communicator:
    """The ranks that the units are sharded or replicated over, which must be the same for all."""
    groups = [group_of(unit.fsdp) for unit in units]
    if len({() if group is None else tuple(dist.get_process_group_ranks(group)) for group in groups}) > 1:
        raise ValueError(f"parts of the model are {how} over different ranks; give fully_shard one mesh for all of it")
    return Communicator() if groups[0] is None else Communicator.over(groups[0])


def _check_weights(unit: Unit) -> None:
    """Raise `InvalidOption` if this unit's weights cannot be sent by a codec."""
    all_gather, dtypes = type(unit.fsdp._all_gather_comm).__name__, unit.weight_dtypes
    if all_gather != "DefaultAllGather":
        problem = f"has an all-gather of its own, {all_gather}"
    elif len(dtypes) > 1:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        problem = f"gathers weights of several types, {names}"
    elif any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in unit.fsdp.fsdp_params):
        problem = "has weights that say themselves how they are gathered"
    else:
        return
    raise InvalidOption(f"{unit.title} {problem}; leave ", Option("weight_codec"), " out")


def _check_replicas(
    comm: Communicator,
    replicas: Communicator,
    exchange: str | Exchange,
    replica_codec: Codec | Quantizer | str | None,
    second: Codec,
) -> None:
    if replicas.size > 1 and comm.size == 1:
        raise ValueError("the mesh has copies of the model and no shards; use DistributedDataParallel")
    for name, value, default in (("exchange", exchange, "auto"), ("replica_codec", replica_codec, None)):
        if replicas.size == 1 and value is not default and value != default:
            raise InvalidOption(Option(name), f" is for copies of the model, and there is one; leave {name} out")
    quantizer = second.quantizer
    if quantizer is not quantizer.core or not (quantizer.unbiased or isinstance(quantizer, Identity)):
        raise InvalidOption(
            Option("replica_codec"),
            f" must be unbiased or Identity, for no error memory is kept between copies; got {quantizer!r}",
        )
