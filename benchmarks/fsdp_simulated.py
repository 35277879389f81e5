"""Sharded training with all ranks in one process: the units, rows, codecs, random numbers and exchanges of `compress`.

Several ranks on one GPU communicate over sockets, and 500 steps take an hour. Here the shards of all ranks are one
matrix per unit, every rank's gradient is computed in turn, and messages are passed in memory. Up to the order of sums
this trains as FSDP2 does, which a test checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist  # noqa: TID251 (a process group without ranks)
from torch.testing._internal.distributed.fake_pg import FakeStore

from laconic.bench.fsdp import sharded
from laconic.codec import Codec
from laconic.exchange import Communicator, GatherChunks, ReduceScatter, Task, run_in_turn
from laconic.exchange.messages import Inbox, Messages
from laconic.kernels import Stream
from laconic.training.fsdp import ColumnsTask
from laconic.training.fsdp_units import Unit, find_units
from laconic.training.fsdp_weights import WeightCodec, Weights
from laconic.training.groups import PLAIN, Policy


@dataclass(frozen=True, slots=True)
class OneProcess(Communicator):
    """A communicator whose messages are passed within the process.

    mail  messages by (sender, receiver), shared by all ranks
    """

    mail: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict, compare=False)

    def send(self, messages: Messages) -> Inbox:
        made = messages.made(self.rank, [None] * self.size)
        self.mail.update({(self.rank, to): message for to, message in made})
        return Inbox([partial(self.mail.__getitem__, (sender, self.rank)) for sender in range(self.size)])


def units_of(network: torch.nn.Module, size: int) -> list[Unit]:
    """Shard a network on the CPU as the first of `size` ranks would, and return its units."""
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    return find_units(sharded(network, torch.device("cpu")), Policy())


class Backward:
    """Gradients of a network's loss on batches of one shape; on a GPU by a CUDA graph, whose memory they share.

    Without a graph, the host would take longer to launch a pass's kernels than the GPU to run them.
    """

    def __init__(self, network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
        self.network, self.x, self.y = network, x.clone(), y.clone()
        self.graph = torch.cuda.CUDAGraph() if x.is_cuda else None
        if self.graph is not None:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # libraries are loaded before the capture
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._run()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self.graph):
                self._run()

    def _run(self) -> None:
        self.network.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(self.network(self.x), self.y).backward()  # type: ignore[no-untyped-call]

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Set the network's gradients to those of this batch."""
        self.x.copy_(x)
        self.y.copy_(y)
        self._run() if self.graph is None else self.graph.replay()


class SimulatedShards:
    """A sharded network: `masters` is one matrix per unit for the optimizer, whose rows are the shards of the ranks."""

    def __init__(
        self,
        network: torch.nn.Module,
        units: Sequence[Unit],
        codec: Codec | None,
        weight_codec: WeightCodec | None,
        seed: int,
    ) -> None:
        """Codec None is FSDP2 in float32; `units` are those of `units_of`."""
        self.network, self.units, self.codec, self.seed, self.step_number = network, units, codec, seed, 0
        self.weights, self.size = Weights.asked_for(weight_codec), units[0].groups[0].n_ranks
        self.parameters = dict(network.named_parameters())
        self.masters = [torch.nn.Parameter(self._rows(unit, self.parameters)) for unit in units]
        self.gathered = [master.detach().clone() for master in self.masters]
        mail: dict[tuple[int, int], torch.Tensor] = {}
        self.ranks = [OneProcess(rank, self.size, mail=mail) for rank in range(self.size)]
        self.backward: Backward | None = None

    def _rows(self, unit: Unit, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        chunks = [values[name].detach() for name in unit.parameters]
        width = sum(p.padded_sharded_param_size.numel() for p in unit.parameters.values())
        rows = chunks[0].new_empty(self.size, width)
        torch._chunk_cat(chunks, dim=0, num_chunks=self.size, out=rows)
        return rows

    @torch.no_grad()
    def gather(self) -> None:
        """Gather the weights for forward and backward into the network."""
        for unit, master, last in zip(self.units, self.masters, self.gathered, strict=True):
            for group, at in unit.weights:
                exact = at.take(master.detach()).view(self.size, -1)
                if self.weights.codec is None or not group.compressed or (self.weights.kept and not self.step_number):
                    found = exact.reshape(-1)
                else:
                    found = self._coded(group.index, exact, at.take(last).view(self.size, -1))
                at.put(found, last)
                for name, value in group.parts(found).items():
                    self.parameters[name].copy_(value)

    def _coded(self, index: int, exact: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """The weights as gathered with a codec; every rank decodes the same, so only the first one decodes."""
        weights, turn = self.weights, self.step_number if self.weights.kept else 0
        stream = Stream(self.seed, step=self.step_number, tensor=f"weights {index}, {turn}")
        values = exact - last if weights.kept else exact
        out = last.reshape(-1).clone() if weights.kept else None
        running = [
            GatherChunks(add=weights.kept).phases(
                Task(values[comm.rank], weights.codec or PLAIN, stream, out=out), comm
            )
            for comm in self.ranks
        ]
        for phases in running:
            next(phases)
        return run_in_turn(running[:1])[0].value

    def step(self, batches: Sequence[tuple[torch.Tensor, torch.Tensor]], optimizer: torch.optim.Optimizer) -> None:
        """One iteration with one batch per rank; in float32 all batches at once."""
        self.gather()
        if self.codec is None:
            batches = [(torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]))]
        gradients = [self._gradients(x, y) for x, y in batches]
        for i, (unit, master) in enumerate(zip(self.units, self.masters, strict=True)):
            rows = [gradient[i] for gradient in gradients]
            master.grad = rows[0] if self.codec is None else self._reduced(unit, rows)
        optimizer.step()
        self.step_number += 1

    def _gradients(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """Gradients of one rank's batch, one matrix per unit."""
        if self.backward is None:
            self.backward = Backward(self.network, x, y)
        self.backward(x, y)
        found = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        return [self._rows(unit, found) for unit in self.units]

    def _reduced(self, unit: Unit, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """The averaged gradient of a unit, one row per rank."""
        average = torch.empty_like(rows[0])
        for group, at, _ in unit.columns(average.shape[1]):
            stream = Stream(self.seed, step=self.step_number, tensor=f"{group.index}, copy 0, call 1")
            codec = self.codec if group.compressed and self.codec is not None else PLAIN
            tasks = [ColumnsTask(own, codec, stream, columns=at) for own in rows]
            running = [ReduceScatter().phases(task, comm) for task, comm in zip(tasks, self.ranks, strict=True)]
            for rank, done in enumerate(run_in_turn(running)):
                at.put(done.value, average[rank : rank + 1])
        return average
