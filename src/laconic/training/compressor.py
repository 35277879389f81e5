"""The averaging of one model's gradients: groups, error memory, step count, statistics."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import product
from zlib import crc32

import torch

from laconic.codec import Codec
from laconic.errors import Disagreement, ExchangeFailed
from laconic.exchange import (
    Accounting,
    AllGather,
    AllReduce,
    BySize,
    Communicator,
    Exchange,
    Exchanged,
    KeptBuffers,
    Nothing,
    Task,
    by_name,
)
from laconic.exchange.agreement import gather_from_all, require_same
from laconic.kernels import ONES, Stream
from laconic.options import MAX_SEED, check_int, check_timeout
from laconic.planner import Plan
from laconic.training.choices import metric_for, unwrapped
from laconic.training.fsdp_weights import Weights
from laconic.training.groups import PLAIN, Group, Policy, describe, require_policy
from laconic.training.metric import Metric, SquaredError, require_same_scales


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `laconic.compress` besides codecs, checked; its docstring explains each."""

    optimizer: torch.optim.Optimizer | None = None
    metric: str = "auto"
    exchange: str | Exchange = "auto"
    policy: Policy = field(default_factory=Policy)
    seed: int = 0
    error_every: int = 100
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        checked = {
            "seed": check_int("seed", self.seed, 0, MAX_SEED),
            "error_every": check_int("error_every", self.error_every, 0),
            "optimizer": unwrapped(self.optimizer),
            "policy": require_policy(self.policy or Policy()),
            "timeout": check_timeout(self.timeout),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(slots=True, repr=False)
class Compressor:
    """All state of one compressed model. What must survive a restart is `step`, `seed`, `memory` and kept `weights`.

    settings    the options of `compress`
    groups      parameters that are exchanged as one tensor
    parameters  of the model, by name; of a sharded one, this rank's parts
    device      where the gradients are
    comm        the ranks that average; under FSDP, those that share one copy of the model
    replicas    under HSDP, the ranks that have the same part of the other copies
    weights     of a sharded model: how they are gathered, and the last ones gathered
    codec       of compressed groups; `reason` is why, in words for `laconic.stats`
    exchange    how they are averaged
    exchanges   of groups with codecs of their own, by index
    metric      what gradients are divided by before they are quantised
    plan        why this codec and this exchange, where they were chosen by codec="auto"
    seed        of the random streams; rank, step and group are added to it
    step        how many times gradients were averaged
    agreed      whether the ranks have compared their configurations; reset when a state is loaded
    memory      error memory of each compressed group, on this rank
    bits        bits per value of each compressed group's codes at the last step, by index
    under_way   accounting of the step under way; `last` is that of the last step
    totals      accounting summed over the steps since `compress`, `n_counted` of them
    off         whether everything goes in float32, since `set_codec` was given None
    closed      whether its threads have ended and its channels are closed; it then averages nothing
    """

    settings: Settings
    groups: Sequence[Group]
    parameters: Mapping[str, torch.Tensor]
    device: torch.device
    comm: Communicator
    replicas: Communicator = field(default_factory=Communicator)
    weights: Weights = field(default_factory=Weights)
    codec: Codec = PLAIN
    reason: str = ""
    exchange: Exchange = field(default_factory=Nothing)
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    metric: Metric = field(default_factory=lambda: SquaredError(""))
    plan: Plan | None = None
    seed: int = field(init=False)
    step: int = 0
    agreed: bool = False
    memory: dict[int, torch.Tensor] = field(default_factory=dict)
    bits: dict[int, float] = field(default_factory=dict)
    under_way: Accounting = field(default_factory=Accounting)
    last: Accounting = field(default_factory=Accounting)
    totals: Accounting = field(default_factory=Accounting)
    n_counted: int = 0
    off: bool = False
    closed: bool = False
    _compared: int = -1
    _first_coded: float = math.inf
    _buffers: dict[int, KeptBuffers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seed = self.settings.seed

    def __repr__(self) -> str:
        how = "closed" if self.closed else "off" if self.off else f"{self.codec.quantizer!r} by {self.exchange!r}"
        return f"<{type(self).__name__}: {how}, after {self.step} steps of rank {self.rank} of {self.world_size}>"

    def use(self, codec: Codec, reason: str, exchange: Exchange | None = None) -> None:
        """Use this codec from the next step on; ranks compare it then. Error memory that it does not need is dropped.

        exchange  instead of the one in `settings`
        """
        compressed = [group for group in self.groups if group.compressed]
        largest = max((group.cuts[-1] for group in compressed), default=1)
        chosen = partial(self._exchange_for, exchange or self.settings.exchange, n=largest)
        own = {group.index: self.policy.codec_of(group, codec) for group in compressed}
        exchanges = {index: chosen(one) for index, one in own.items() if one is not codec}
        self.exchange, metric = chosen(codec), self._metric_for(codec)
        self.codec, self.reason, self.exchanges = codec, reason, exchanges
        if type(metric) is type(self.metric):
            self.metric.reason = metric.reason
        else:
            self.metric = metric
        self.agreed, self.off = False, False
        self._buffers.clear()
        kept = {group.index for group in self.groups if self.codec_of(group).new_memory(torch.empty(1)).numel()}
        self.memory = {index: memory for index, memory in self.memory.items() if index in kept and memory.numel()}

    def _exchange_for(self, asked: str | Exchange, codec: Codec, n: int) -> Exchange:
        return by_name(asked, codec, self.comm.size, n)

    def _metric_for(self, codec: Codec) -> Metric:
        return metric_for(self.settings.metric, self.settings.optimizer, self.parameters, codec)

    @property
    def policy(self) -> Policy:
        """What stays in float32, and when compression begins."""
        return self.settings.policy

    def memory_of(self, group: Group) -> torch.Tensor:
        """The error memory of a compressed group, made when first needed; empty if its codec keeps none."""
        if group.index not in self.memory:
            like = torch.empty(1, device=self.device).expand(group.n_values)
            self.memory[group.index] = self.codec_of(group).new_memory(like)
        return self.memory[group.index]

    @property
    def rank(self) -> int:
        """This rank's number among all that average."""
        return self.replicas.rank * self.comm.size + self.comm.rank

    @property
    def world_size(self) -> int:
        """Number of ranks that average."""
        return self.replicas.size * self.comm.size

    @property
    def plain_bytes(self) -> float:
        """Bytes that PyTorch's all-reduce would have this rank send for one step."""
        n_bytes = sum(p.numel() * p.element_size() for p in self.parameters.values())
        return 2 * (self.comm.size - 1) / self.comm.size * n_bytes

    @property
    def passes_through(self) -> bool:
        """Whether gradients are left as they are, since this rank trains alone."""
        return self.world_size == 1 and not self.policy.alone

    def agree(self) -> None:
        """At the first step, and at the first after a state was loaded, compare configurations across ranks.

        With a metric, which comes from each rank's own optimizer, compare both then and at steps 1, 2, 4, 8, …. Every
        `policy.verify_every` steps, compare the parameters.
        """
        self.require_open()
        if self.agreed and self._compared == self.step:
            return
        scaled = not isinstance(self.metric, SquaredError)
        due = not self.agreed or (scaled and self.step & (self.step - 1) == 0)
        if due:
            try:
                require_same(self.comm, self.facts(), device=self.device, replicas=self.replicas)
            except ExchangeFailed as error:
                raise ExchangeFailed(
                    *error.parts, "; did every rank make the same calls of compress, set_codec and load_state_dict?"
                ) from error
            self.agreed = True
        self._compared = self.step
        if due and scaled:
            compressed = [group for group in self.groups if group.compressed]
            require_same_scales(self.comm, self.metric.facts(compressed), self.device)
        if self.policy.verify_every and self.step % self.policy.verify_every == 0:
            require_same_parameters(self)

    def facts(self) -> dict[str, object]:
        """What all ranks must agree on."""
        return {
            **describe(self.codec, self.policy, self.groups),
            "exchange": repr(self.exchange),
            "metric": self.metric.name,
            "codec switched off": self.off,
            "seed": self.seed,
            "step": self.step,
        }

    def task(self, group: Group, v: torch.Tensor) -> tuple[Exchange, Task]:
        """The exchange and the task that average this group's values at this step, in place."""
        stream = Stream(seed=self.seed, step=self.step, tensor=group.index)
        buffers = self._buffers.setdefault(group.index, KeptBuffers())
        plain = self.off or self.passes_through or self.step < self.policy.warmup_steps
        scale = self.metric.scale(group) if group.compressed and not plain else None
        if scale is None:
            return self._plain_exchange, Task(v, PLAIN, stream, out=v, buffers=buffers)
        self._first_coded = min(self._first_coded, self.step)
        every, first = self.settings.error_every, self.step == self._first_coded
        measure = every > 0 and (first or self.step % every == 0)
        exchange, codec = self._exchange_and_codec(group)
        codec = self.metric.codec(codec, group)
        return exchange, Task(v, codec, stream, self.memory_of(group), measure, v, buffers, scale)

    def _exchange_and_codec(self, group: Group) -> tuple[Exchange, Codec]:
        """The exchange and the codec of a group after the warm-up."""
        if group.compressed:
            return self.exchanges.get(group.index, self.exchange), self.codec_of(group)
        return self._plain_exchange, PLAIN

    def _sends(self, group: Group) -> Iterable[tuple[Exchange, Codec]]:
        """What a step after the warm-up sends for a group: each exchange and its codec."""
        return [self._exchange_and_codec(group)]

    def codec_of(self, group: Group) -> Codec:
        """The codec of a compressed group."""
        return self.policy.codec_of(group, self.codec)

    @property
    def _plain_exchange(self) -> Exchange:
        """The exchange of float32 groups: one round of messages for small ones on the CPU, otherwise all-reduce."""
        if isinstance(self.exchange, Nothing) or self.world_size == 1:
            return Nothing()
        return BySize(AllGather(), AllReduce()) if self.device.type == "cpu" else AllReduce()

    def prepare(self) -> float:
        """Compile the kernels that this model needs, so that no step waits for them; returns the seconds it took.

        Each codec and exchange averages as many values as the smallest of its groups has, on this rank alone.
        """
        start = time.perf_counter()
        needed: dict[tuple[Exchange, Codec], int] = {}
        for group in sorted(self.groups, key=lambda group: -group.n_values):
            for exchange, codec in self._sends(group):
                members = (exchange.small, exchange.large) if isinstance(exchange, BySize) else (exchange,)
                needed |= {(member, codec): group.n_values for member in members}
        for (exchange, codec), n in ({} if self.passes_through else needed).items():
            scale = ONES if codec is PLAIN else self.metric.example(n, self.device)
            for coder in codec.coder.variants:
                v = torch.linspace(-1.0, 1.0, n, dtype=torch.float32, device=self.device)
                one = replace(codec, coder=coder)
                memory = one.new_memory(v)
                exchange.average(v, one, memory=memory, comm=Communicator(), measure_error=True, scale=scale)
        return time.perf_counter() - start

    def count(self, group: Group, done: Exchanged) -> None:
        """Account for a group that has been averaged in this step."""
        self.under_way += done.accounting
        if group.compressed:
            self.metric.observe(group, done.value)
            self.bits[group.index] = done.accounting.bits

    def finish_step(self) -> None:
        """Account for a step all of whose groups have been averaged."""
        self.last, self.under_way = self.under_way, Accounting()
        self.totals += self.last
        self.n_counted += 1
        self.step += 1

    def require_open(self) -> None:
        """Raise `RuntimeError` after `close`."""
        if self.closed:
            raise RuntimeError("this compressor is closed; call laconic.compress on its model again")

    def check_model(self, model: torch.nn.Module) -> None:
        """Raise `RuntimeError` after `close`, or `ValueError` if the model is no longer the one that was compressed."""
        self.require_open()

    def close(self) -> None:
        """End the threads and close the channels; to train the model further, call `laconic.compress` again."""
        if self.closed:
            return
        self.closed = True
        self.comm.close()
        self.comm = replace(self.comm, channels=())  # their process groups live as long as they are referenced


def require_same_parameters(compressor: Compressor) -> None:
    """Raise `Disagreement` on every rank, naming rank and parameter, unless all copies of the model are the same.

    Compares a checksum of each parameter's bits, made from 64 sums of words, so that a GPU reads them once.
    """
    parameters, comm, replicas = compressor.parameters, compressor.comm, compressor.replicas
    sums = torch.stack([_sums(p.detach()) for p in parameters.values()]).cpu().numpy()
    everyone = gather_from_all(comm, [crc32(row.tobytes()) for row in sums], compressor.device, replicas)
    n_parts = comm.size if replicas.size > 1 else 1
    for part, (i, name) in product(range(n_parts), enumerate(parameters)):
        found = [checksums[i] for checksums in everyone[part::n_parts]]
        usual = max(found, key=found.count)
        odd = next((copy for copy, checksum in enumerate(found) if checksum != usual), None)
        if odd is not None:
            ranks = [n_parts * copy + part for copy in (odd, found.index(usual))]
            raise Disagreement(
                f"parameter {name} of rank {ranks[0]} differs from that of rank {ranks[1]} at step {compressor.step}: "
                "the ranks no longer train one model. Go on from a checkpoint, the same on every rank"
            )


def _sums(p: torch.Tensor) -> torch.Tensor:
    """64 sums (64,) int64 over the words of a tensor, each over every 64th word."""
    p = p.to_local() if hasattr(p, "to_local") else p
    words = p.contiguous().view(-1).view(torch.uint8 if p.element_size() < 4 else torch.int32)
    whole = words.numel() // 64 * 64
    sums = words[:whole].view(-1, 64).sum(0, dtype=torch.int64)
    sums[: words.numel() - whole] += words[whole:]
    return sums
