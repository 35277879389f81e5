"""`laconic.compress` for models of `fully_shard`: FSDP2's reduce-scatter and HSDP's all-reduce, compressed.

Each unit of the model gets a `UnitExchange`, which FSDP2 calls in place of its reduce-scatter, and a `UnitGather` in
place of its all-gather (`fsdp_weights`), on the streams and with the process group that it uses itself. So overlap with
backward, prefetching and resharding are FSDP2's own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import (
    Accounting,
    Communicator,
    Exchange,
    GatherChunks,
    KeptBuffers,
    ReduceScatter,
    ScatterReduce,
    Task,
    by_name,
    run_in_turn,
)
from laconic.exchange.base import Phases
from laconic.quantizers import Quantizer
from laconic.training.compressor import Compressor, Settings
from laconic.training.fsdp_units import (
    Columns,
    ShardedGroup,
    Unit,
    count_units,
    find_units,
    leave_out_replicas,
    replica_group,
)
from laconic.training.fsdp_weights import PLAIN_BF16, UnitGather, WeightCodec, Weights, require_unbiased
from laconic.training.groups import PLAIN, Group
from laconic.training.metric import Metric, SquaredError


@dataclass(slots=True, repr=False)
class ShardedCompressor(Compressor):
    """All state of a model of `fully_shard`, and the backward pass under way, over all units.

    units     of the model
    n_units   number of all units that the model had, frozen ones included
    copies    its `second_codec` is the codec between copies of the model
    n_calls   how often each unit has had a gradient in this pass: normally once
    streams   CUDA streams that FSDP2 exchanges on
    messages  memory for messages, which units share, since they are exchanged one after another
    graph     autograd's id of the pass
    """

    units: Sequence[Unit] = ()
    n_units: int = 0
    copies: ScatterReduce = field(default_factory=ScatterReduce)
    n_calls: Counter[Unit] = field(default_factory=Counter)
    streams: set[torch.cuda.Stream] = field(default_factory=set)
    messages: dict[object, KeptBuffers] = field(default_factory=dict)
    graph: int = -1

    @classmethod
    def of(
        cls,
        model: torch.nn.Module,
        settings: Settings,
        replica_codec: Codec | Quantizer | str | None,
        weight_codec: WeightCodec | None,
    ) -> "ShardedCompressor":
        """The compressor of a model; FSDP2 does not use it before `install`."""
        units = find_units(model, settings.policy)
        comm = _ranks(units, "sharded", lambda fsdp: fsdp._reduce_scatter_process_group)
        replicas = _ranks(units, "replicated", replica_group)
        copies = ScatterReduce(replica_codec)
        _check_replicas(comm, replicas, settings, copies)
        weights = Weights.asked_for(weight_codec)
        for unit in units if weights.codec is not None else ():
            unit.check_weights()
        groups = [group for unit in units for group in unit.groups]
        parameters = {name: p.sharded_param for unit in units for name, p in unit.parameters.items()}
        device = units[0].fsdp.device
        n_units = count_units(model)
        return cls(
            settings, groups, parameters, device, comm, replicas, weights, units=units, n_units=n_units, copies=copies
        )

    def check_model(self, model: torch.nn.Module) -> None:
        """The same, and that the model was not sharded further since: FSDP2 would average those units by itself."""
        self.require_open()
        if not self.agreed and count_units(model) != self.n_units:
            raise ValueError(
                "fully_shard was called after laconic.compress, which does not know of those parameters; "
                "call compress() after the last fully_shard"
            )

    def _exchange_for(self, asked: str | Exchange, codec: Codec, n: int) -> Exchange:
        """The exchange between copies of the model."""
        return by_name(asked, self.copies.second_codec(codec), self.replicas.size, n)

    def _metric_for(self, codec: Codec) -> Metric:
        return SquaredError("ranks share no second moments of a sharded model")

    def _sends(self, group: Group) -> Iterable[tuple[Exchange, Codec]]:
        exchange, codec = self._exchange_and_codec(group)
        yield ReduceScatter(), codec
        if self.replicas.size > 1:
            yield exchange, codec if codec is PLAIN else self.copies.second_codec(codec)
        if group.compressed and self.weights.codec is not None:
            yield GatherChunks(add=self.weights.kept), self.weights.codec

    def facts(self) -> dict[str, object]:
        second = self.copies.second_codec(self.codec)
        between = f"{second.quantizer!r}, {second.coder!r}"
        return {**Compressor.facts(self), "replica_codec": between, "weight_codec": self.weights.describe()}

    @property
    def plain_bytes(self) -> float:
        """Bytes that FSDP2's reduce-scatter, and all-reduce between copies, would have this rank send in float32."""
        shards, copies = self.comm.size, self.replicas.size
        parts = (shards - 1) / shards + 2 * (copies - 1) / copies / shards
        return parts * 4 * self.totals.n_values / max(1, self.n_counted)

    def install(self) -> None:
        """Have FSDP2 use this compressor's exchanges from now on."""
        gathering = _ranks(self.units, "sharded", lambda fsdp: fsdp._all_gather_process_group)
        gathering = self.comm if gathering.channels == self.comm.channels else gathering
        for unit in self.units:
            ours, gather = UnitExchange(unit, self), UnitGather(unit, self, gathering, unit.fsdp._all_gather_comm)
            self.weights.units.append(gather)
            unit.module.set_custom_reduce_scatter(ours)
            unit.module.set_custom_all_gather(gather)
            if self.replicas.size > 1:
                leave_out_replicas(unit.fsdp)
                unit.module.set_all_reduce_hook(ours.average_replicas)

    def uninstall(self) -> None:
        """Have FSDP2 use its own exchanges again, as before `install`."""
        for unit in self.units:
            for name, value in unit.native.items():
                setattr(unit.fsdp, name, value)

    def begin(self, unit: Unit) -> None:
        """Called when a unit has a gradient. The first call of a pass compares configurations, and queues `_end`."""
        graph = torch._C._current_graph_task_id()
        if graph != self.graph:
            self.agree()
            self.under_way, self.n_calls, self.graph = Accounting(), Counter(), graph
            _at_the_end(lambda: _at_the_end(self._end))  # after FSDP2's own final callback, which reduces some units
        self.n_calls[unit] += 1

    def _end(self) -> None:
        for stream in self.streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)
        self.finish_step()

    def unit_task(self, unit: Unit, group: ShardedGroup, v: torch.Tensor, ranks: str) -> tuple[Exchange, Task]:
        """`task`, with a random stream of its own for `ranks` and call, and message buffers shared by units."""
        if v.is_cuda:
            self.streams.add(torch.cuda.current_stream(v.device))
        buffers = self.buffers((ranks, unit.groups.index(group)), v)
        exchange, task = self.task(group, v)
        tensor = f"{group.index}, {ranks}, call {self.n_calls[unit]}"
        return exchange, replace(task, stream=task.stream.at(tensor=tensor), out=None, buffers=buffers)

    def buffers(self, purpose: object, like: torch.Tensor) -> KeptBuffers:
        """Memory for messages; on a GPU, separate for each stream."""
        stream = torch.cuda.current_stream(like.device) if like.is_cuda else None
        return self.messages.setdefault((purpose, stream), KeptBuffers())


@dataclass(frozen=True, slots=True)
class ColumnsTask(Task):
    """A task whose values are some columns of a matrix `v`; each row is gathered only when it is encoded."""

    columns: Columns = field(kw_only=True)

    @property
    def n_values(self) -> int:
        return len(self.v) * sum(self.columns.widths)

    def part(self, first: int, last: int) -> torch.Tensor:
        """The row that one rank receives."""
        row = first // max(1, last - first)
        return self.columns.take(self.v[row : row + 1])


@dataclass(frozen=True, slots=True)
class UnitExchange:
    """The reduce-scatter of one unit; `allocate` and `__call__` are FSDP2's interface of a reduce-scatter."""

    unit: Unit
    compressor: ShardedCompressor

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
        """Average `input_tensor`, a row per rank, over ranks, and write this rank's row to `output_tensor`:

        1. at the first step, and at the first after a state was loaded, compare configurations across ranks;
        2. of each row, gather the columns of the compressed parameters, and those of the others, and encode them;
        3. all-to-all, decode and sum own row (`ReduceScatter`);
        4. write the sums to the columns of `output_tensor`.

        `op` determines the factor of the sums. All work is queued on the current stream, where FSDP2 goes on.
        """
        self.compressor.begin(self.unit)
        rows, own = input_tensor.view(self.compressor.comm.size, -1), output_tensor.view(1, -1)
        exchange, parts = ReduceScatter(self._weight(op)), self.unit.columns(rows.shape[1])
        run_in_turn([self._reduce_scatter(exchange, rows, own, *part) for part in parts])

    def _reduce_scatter(
        self, exchange: Exchange, rows: torch.Tensor, own: torch.Tensor, group: ShardedGroup, at: Columns, held: Columns
    ) -> Phases:
        """Steps 2 to 4 for one group, whose columns are `at` in `rows` and `held` in the group's error memory."""
        compressor = self.compressor
        _, task = compressor.unit_task(self.unit, group, rows, f"copy {compressor.replicas.rank}")
        codec = PLAIN_BF16 if task.codec is PLAIN and rows.dtype == torch.bfloat16 else task.codec
        out = own.view(-1) if at.is_all_of(own) and own.dtype == torch.float32 else None
        memory, kept = task.memory, None
        if memory is not None and memory.numel():
            kept = memory.view(len(rows), -1)
            memory = held.take(kept)
        task = ColumnsTask(rows, codec, task.stream, memory, task.measure_error, out, task.buffers, columns=at)
        done = yield from exchange.phases(task, compressor.comm)
        at.put(done.value, own)
        compressor.count(group, done)
        if memory is not None and kept is not None:
            held.put(memory, kept)
            group.clear_padding(kept.view(-1))
        return done

    def _weight(self, op: Any) -> float | None:
        """What the sum over ranks is multiplied by; None for their mean."""
        if op == dist.ReduceOp.AVG:
            return None
        return 1.0 if op == dist.ReduceOp.SUM else 1.0 / self.unit.fsdp.gradient_divide_factor

    def average_replicas(self, output: torch.Tensor) -> None:
        """Average this rank's row over the copies of the model, in place: what HSDP's all-reduce does."""
        own = output.view(1, -1)
        run_in_turn([self._average(own, group, at) for group, at, _ in self.unit.columns(own.shape[1])])
        if self.unit.fsdp.gradient_divide_factor is not None:  # which divides the sum over all ranks
            output.mul_(self.compressor.replicas.size)
        if output.is_cuda:
            output.record_stream(torch.cuda.current_stream(output.device))

    def _average(self, own: torch.Tensor, group: ShardedGroup, at: Columns) -> Phases:
        compressor, v = self.compressor, at.take(own).float()
        exchange, task = compressor.unit_task(self.unit, group, v, f"shard {compressor.comm.rank}")
        codec = PLAIN if task.codec is PLAIN else compressor.copies.second_codec(task.codec)
        task = replace(task, codec=codec, memory=None, measure_error=False, out=v)
        done = yield from exchange.phases(task, compressor.replicas)
        at.put(done.value, own)
        done.accounting.n_values = 0  # they were counted by the reduce-scatter
        compressor.under_way += done.accounting
        return done


def _at_the_end(call: Callable[[], None]) -> None:
    """Have autograd call this when the backward pass ends, after the callbacks queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _ranks(units: Sequence[Unit], how: str, group_of: Callable[[Any], dist.ProcessGroup | None]) -> Communicator:
    """The ranks that the units are sharded or replicated over, which must be the same for all."""
    groups = [group_of(unit.fsdp) for unit in units]
    if len({() if group is None else tuple(dist.get_process_group_ranks(group)) for group in groups}) > 1:
        raise ValueError(f"parts of the model are {how} over different ranks; give fully_shard one mesh for all of it")
    return Communicator() if groups[0] is None else Communicator.over(groups[0])


def _check_replicas(comm: Communicator, replicas: Communicator, settings: Settings, copies: ScatterReduce) -> None:
    one_copy = replicas.size == 1
    if not one_copy and comm.size == 1:
        raise ValueError("the mesh has copies of the model and no shards; use DistributedDataParallel")
    for name, given in (("exchange", settings.exchange != "auto"), ("replica_codec", copies.second is not None)):
        if given and one_copy:
            raise InvalidOption(Option(name), f" is for copies of the model, and there is one; leave {name} out")
    if settings.policy.verify_every and one_copy:
        raise InvalidOption(Option("policy"), ": verify_every compares copies of the model, and there is one")
    if copies.second is not None:
        require_unbiased("replica_codec", codec_for(copies.second), "no error memory is kept between copies")
