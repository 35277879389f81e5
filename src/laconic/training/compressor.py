"""The averaging of one model's gradients: groups, error memory, step count, statistics."""

from dataclasses import dataclass, field

import torch

from laconic.codec import Codec
from laconic.exchange import (
    Accounting,
    AllGather,
    AllReduce,
    BySize,
    Communicator,
    Exchange,
    Handle,
    KeptBuffers,
    Nothing,
    Scheduler,
    Task,
    pipeline_for,
)
from laconic.exchange.agreement import require_same
from laconic.kernels import Stream
from laconic.planner import Plan
from laconic.training.groups import PLAIN, Group, Policy
from laconic.training.metric import InMetric, Metric, SquaredError, require_same_scales


@dataclass(slots=True)
class Compressor:
    """All state of one compressed model. What must survive a restart is `step`, `seed` and `memory`.

    groups      parameters that are exchanged as one tensor
    codec       how compressed groups go over the wire
    exchange    how they are averaged
    policy      when compression begins
    comm        the ranks that average; under FSDP, those that share one copy of the model
    device      where the gradients are
    config      what all ranks must agree on, besides seed and step
    seed        of the random streams; rank, step and group are added to it
    step        how many times gradients were averaged
    agreed      whether the ranks have compared what they were given; no longer so after a state was loaded
    memory      error memory of each compressed group, on this rank
    totals      accounting summed over the steps since `compress`, `n_counted` of them; `last` is that of the last step
    error_every measure the quantisation error every so many steps; 0 never
    plan        why this codec and this exchange, where they were chosen by codec="auto"
    metric      what gradients are divided by before they are quantised
    reason      why this codec, in words for `laconic.stats`
    replicas    under HSDP, the ranks that have the same part of the other copies
    """

    groups: list[Group]
    codec: Codec
    exchange: Exchange
    policy: Policy
    comm: Communicator
    device: torch.device
    config: dict[str, object]
    seed: int = 0
    error_every: int = 100
    step: int = 0
    agreed: bool = False
    memory: dict[int, torch.Tensor] = field(default_factory=dict)
    totals: Accounting = field(default_factory=Accounting)
    last: Accounting = field(default_factory=Accounting)
    n_counted: int = 0
    plan: Plan | None = None
    metric: Metric = field(default_factory=lambda: SquaredError("no optimizer was given"))
    reason: str = "asked for"
    replicas: Communicator = field(default_factory=Communicator)
    _compared: int = -1
    _scheduler: Scheduler | None = None
    _flat: dict[int, torch.Tensor] = field(default_factory=dict)
    _views: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    _buffers: dict[int, KeptBuffers] = field(default_factory=dict)

    def flat(self, group: Group) -> torch.Tensor:
        """The buffer that a group's gradients are gathered in; the same at every step."""
        if group.index not in self._flat:
            self._flat[group.index] = torch.zeros(group.n_values, dtype=torch.float32, device=self.device)
        return self._flat[group.index]

    def views(self, group: Group) -> dict[str, torch.Tensor]:
        """The parts of that buffer by parameter, in the parameters' shapes."""
        if group.index not in self._views:
            self._views[group.index] = group.views(self.flat(group))
        return self._views[group.index]

    def memory_of(self, group: Group) -> torch.Tensor | None:
        """The error memory of a group, made at first need."""
        if not group.compressed:
            return None
        if group.index not in self.memory:
            like = torch.empty(1, device=self.device).expand(group.n_values)
            self.memory[group.index] = self.codec.new_memory(like)
        return self.memory[group.index]

    @property
    def rank(self) -> int:
        """This rank's number among all that average."""
        return self.replicas.rank * self.comm.size + self.comm.rank

    @property
    def world_size(self) -> int:
        """How many ranks average."""
        return self.replicas.size * self.comm.size

    def agree(self) -> None:
        """At the first step, and at the first after a state was loaded, compare configurations across ranks.

        Then, and at steps 1, 2, 4, 8, …, compare the metric as well: it comes from each rank's own optimizer.
        """
        due = not self.agreed or self.step & (self.step - 1) == 0
        if not self.agreed:
            facts = {**self.config, "metric": self.metric.name, "seed": self.seed, "step": self.step}
            require_same(self.comm, facts, device=self.device, replicas=self.replicas)
            self.agreed = True
        if due and self._compared != self.step and not isinstance(self.metric, SquaredError):
            compressed = [group for group in self.groups if group.compressed]
            require_same_scales(self.comm, self.metric.facts(compressed), self.device)
            self._compared = self.step

    def task(self, group: Group, v: torch.Tensor) -> tuple[Exchange, Task]:
        """How this group's values are averaged at this step, in place."""
        stream = Stream(seed=self.seed, step=self.step, tensor=group.index)
        buffers = self._buffers.setdefault(group.index, KeptBuffers())
        scale = self.metric.scale(group) if group.compressed and self.step >= self.policy.warmup_steps else None
        if scale is None:
            return self._plain_exchange, Task(v, PLAIN, stream, out=v, buffers=buffers)
        measure = self.error_every > 0 and self.step % self.error_every == 0
        codec = self.metric.codec(self.codec, group)
        exchange = InMetric(self.exchange, scale) if scale.parts else self.exchange
        return exchange, Task(v, codec, stream, self.memory_of(group), measure, v, buffers)

    @property
    def _plain_exchange(self) -> Exchange:
        """The exchange of float32 groups: one round of messages for small ones on the CPU, otherwise all-reduce."""
        if isinstance(self.exchange, Nothing):
            return self.exchange
        return BySize(AllGather(), AllReduce()) if self.device.type == "cpu" else AllReduce()

    def start(self, group: Group, v: torch.Tensor) -> Handle:
        """Begin to average a group's values; groups must be started in the same order on every rank."""
        if self._scheduler is None:
            self._scheduler = pipeline_for(self.comm, self.device)
        return self._scheduler.start(*self.task(group, v))

    def finish_step(self, accounting: Accounting) -> None:
        """All groups of a step have been averaged."""
        self.last = accounting
        self.totals += accounting
        self.n_counted += 1
        self.step += 1

    def close(self) -> None:
        """End the threads and give back the channels."""
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None
        self.comm.close()
