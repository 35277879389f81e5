"""The base of decentralised optimizers: a model, an optimizer for the local step, estimates of the neighbours."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import Codec, Payload, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import Accounting
from laconic.exchange.agreement import require_same
from laconic.exchange.neighbours import Neighbours
from laconic.exchange.topology import Topology, topology_for
from laconic.kernels import Stream
from laconic.options import MAX_SEED, check_int, check_timeout
from laconic.quantizers import Quantizer
from laconic.training.choices import check_stepped
from laconic.training.groups import PLAIN, Policy, describe, make_groups, trainable
from laconic.training.state import check_format, check_shapes

Order = Literal["combine_then_adapt", "adapt_then_combine"]
Row = torch.Tensor
"""The values (n,) of one group, float32."""
FORMAT = 1
"""Version of saved states."""
Codes = Sequence[torch.Tensor]
"""What a node sends in one step: one code (uint8) per group."""


class Decentralised(ABC):
    """A torch optimizer whose model is mixed with those of the neighbours in a graph, without any global exchange.

    With W the mixing matrix, x̃_j the estimate of node j, the same to the last bit on all nodes that track j, and d_i
    what the optimizer adds to the parameters (−γ ∇F_i for plain SGD), a step of node i is

    1. x_i' = Σ_j W_ij x̃_j + d_i, with d_i taken at x_i;
    2. quantise the result of `outgoing`, send the code to the neighbours;
    3. update every x̃_j, own included, from the code of j alone (`track`);
    4. set the parameters to the result of `settle`, by default x_i'.

    model       any module; parameters may begin differently, buffers stay each node's own
    optimizer   any torch optimizer over the model's parameters
    topology    `Ring()`, `Torus()`, `Exponential()`, `Star()`, `Complete()`, `Custom(matrix)`, or a name such as "ring"
    codec       how models go over the wire: a `Codec`, a quantizer or a name such as "nuqsgd-4"; must be unbiased. By
                default that of the class
    order       "combine_then_adapt": as above, the papers' order. "adapt_then_combine": d_i is taken at Σ_j W_ij x̃_j;
                on a complete graph without compression this is AllReduce training itself
    policy      what stays in float32, warm-up steps in float32, group size; see `Policy`
    seed        of the random streams; node, step and group are added to it
    group       process group; by default all ranks. Without one, this is a graph of a single node
    timeout     how long to wait for a neighbour, in seconds or as a timedelta; then `ExchangeFailed` names the edge
    neighbours  a node's place in an existing graph, instead of `group` and `timeout`

    At the first step neighbours swap their models in float32, so that all estimates begin exact. After `ExchangeFailed`
    the optimizer has stepped without an exchange: go on from a checkpoint.
    """

    name: ClassVar[str]
    default_codec: ClassVar[str] = "nuqsgd"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        topology: Topology | str,
        codec: Codec | Quantizer | str | None = None,
        *,
        order: Order = "combine_then_adapt",
        policy: Policy | None = None,
        seed: int = 0,
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | float | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        if order not in get_args(Order):
            raise ValueError(f"unknown order {order!r}; choose one of {', '.join(get_args(Order))}")
        self.model, self.optimizer = model, optimizer
        self.topology, self.codec = topology_for(topology), codec_for(self.default_codec if codec is None else codec)
        self.order, self.policy, self.seed = order, policy or Policy(), check_int("seed", seed, 0, MAX_SEED)
        if isinstance(model, DistributedDataParallel):
            raise TypeError(f"{self.name} mixes models itself: give it the module inside, model.module")
        self.parameters = trainable(model)
        self.groups = make_groups(self.parameters.items(), self.policy, self.codec)
        self.device = next(iter(self.parameters.values())).device
        for name in ("codecs", "verify_every"):
            if getattr(self.policy, name):
                raise InvalidOption(Option("policy"), f": {name} is not for decentralised training; leave it out")
        timeout = check_timeout(timeout)
        if isinstance(optimizer, type) or not callable(getattr(optimizer, "step", None)):
            raise TypeError(f"optimizer must be one such as torch.optim.SGD(model.parameters()), got {optimizer!r}")
        check_stepped(optimizer, self.parameters)
        self.neighbours = neighbours or Neighbours.open(self.topology, group, self.device, timeout=timeout)
        self.mixing, self.node = self.neighbours.mixing, self.neighbours.rank
        self.n_steps = 0
        self.estimates: dict[int, list[Row]] = {}
        self.totals, self.last, self.under_way = Accounting(), Accounting(), Accounting()
        self.edges: dict[int, Accounting] = {j: Accounting() for j in self.neighbours.ranks}
        self._own: list[Row] = []
        self._x_next: list[Row] = []
        self._agreed = False
        self.check()

    @abstractmethod
    def outgoing(self, x: Row, x_next: Row, estimate: Row) -> Row:
        """What is quantised and sent, given x_i, x_i' and x̃_i."""

    @abstractmethod
    def track(self, estimate: Row, payload: Payload, codec: Codec) -> None:
        """Update x̃_j in place from what node j has sent, on every node that tracks j alike."""

    def settle(self, x_next: Row, estimate: Row) -> Row:
        """What x_i becomes, given x_i' and the new x̃_i."""
        return x_next

    def check(self) -> None:
        """Raise `ValueError` if this algorithm cannot work with codec and graph; the message names both."""
        if not self.codec.quantizer.unbiased:
            raise ValueError(
                f"{self.name} needs an unbiased quantizer, got {self.codec.quantizer!r}; use NUQSGD(bits=4)"
            )

    @property
    def omega(self) -> float:
        """The proved bound ω of E‖Q(v) − v‖² / ‖v‖² for the largest group that is compressed."""
        largest = max((group.n_values for group in self.groups if group.compressed), default=0)
        return self.codec.quantizer.variance_bound(largest) if largest else 0.0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the optimizer and one exchange with the neighbours; what the optimizer's own step returned."""
        if not self._agreed:
            require_same(self.neighbours.comm, self.config(), device=self.device)
            self._agreed = True
        if not self.estimates:
            self.start_from(self._swap(self.models(), [PLAIN] * len(self.groups)))
        codes, result = self.begin(closure)
        self.finish(self._swap(codes, self.codecs))
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's own `zero_grad`."""
        self.optimizer.zero_grad(set_to_none)

    def models(self) -> Codes:
        """The codes of this node's parameters in float32, which all estimates of it begin with."""
        return [PLAIN.encode(row).data for row in self.gather()]

    def start_from(self, codes: Mapping[int, Codes]) -> None:
        """Set the estimates to the models of all tracked nodes, own included."""
        self.estimates = {j: [PLAIN.decode(Payload(code)) for code in codes[j]] for j in self.mixing.tracked(self.node)}
        self._own = [row.clone() for row in self.estimates[self.node]] if self.order == "adapt_then_combine" else []

    def begin(self, closure: Callable[[], Any] | None = None) -> tuple[Codes, Any]:
        """Steps 1 and 2: the local step, and the codes for the neighbours; with what the optimizer returned."""
        self._check_thawed()
        self.under_way = Accounting(n_exchanges=1)
        x = self._own or self.gather()
        result = self.optimizer.step(closure)
        self._x_next = self.gather()
        if self.order == "combine_then_adapt":
            for x_next, mixed, before in zip(self._x_next, self._mixed(), x, strict=True):
                x_next += mixed - before
            self._round(self._x_next)
        with self.under_way.timed("encode"):
            codes = [self._encode(index, row) for index, row in enumerate(x)]
        self.under_way.n_values += sum(row.numel() for row in x)
        return codes, result

    def _check_thawed(self) -> None:
        """Raise `ValueError` for a parameter that was frozen when the groups were made: nobody would mix it."""
        for name, p in self.model.named_parameters():
            if p.requires_grad and name not in self.parameters:
                raise ValueError(
                    f"parameter {name} was frozen, or not there, when this {type(self).__name__} was made: it is not "
                    "exchanged; make a new one, on every node, once parameters are thawed"
                )

    def finish(self, codes: Mapping[int, Codes]) -> None:
        """Steps 3 and 4, given the codes of all nodes that this one tracks, itself included."""
        with self.under_way.timed("decode"):
            for j in self.mixing.tracked(self.node):
                for estimate, code, codec in zip(self.estimates[j], codes[j], self.codecs, strict=True):
                    self.track(estimate, Payload(code), codec)
            settled = [self.settle(*both) for both in zip(self._x_next, self.estimates[self.node], strict=True)]
            mixes = self.order == "adapt_then_combine"
            self._scatter(self._mixed() if mixes else settled)
        self._own = [row.clone() for row in settled] if mixes else self.gather()
        self._x_next = []
        self.n_steps += 1
        self.last = self.under_way
        self.totals += self.last

    def gather(self) -> list[Row]:
        """Copies of the parameters, a row per group."""
        return self._rows({name: p.detach() for name, p in self.parameters.items()})

    def _round(self, rows: Sequence[Row]) -> None:
        """Round rows to what the parameters can hold: what is lost in bfloat16 would otherwise add up in estimates."""
        for group, row in zip(self.groups, rows, strict=True):
            for name, view in group.views(row).items():
                if self.parameters[name].dtype.itemsize < row.dtype.itemsize:
                    view.copy_(view.to(self.parameters[name].dtype))

    @torch.no_grad()
    def _scatter(self, rows: Sequence[Row]) -> None:
        """Write rows into the parameters."""
        for group, row in zip(self.groups, rows, strict=True):
            for name, view in group.views(row).items():
                self.parameters[name].copy_(view)

    def _rows(self, values: Mapping[str, torch.Tensor]) -> list[Row]:
        return [group.flatten(values).to(self.device) for group in self.groups]

    def _parts(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        """The inverse of `_rows`: by parameter and in its shape."""
        pairs = zip(self.groups, rows, strict=True)
        return {name: part for group, row in pairs for name, part in group.parts(row).items()}

    @property
    def codecs(self) -> list[Codec]:
        """The codec of each group at this step."""
        warm = self.n_steps >= self.policy.warmup_steps
        return [self.codec if group.compressed and warm else PLAIN for group in self.groups]

    def _encode(self, index: int, x: Row) -> torch.Tensor:
        stream = Stream(self.seed, self.node, self.n_steps, index)
        value = self.outgoing(x, self._x_next[index], self.estimates[self.node][index])
        return self.codecs[index].encode(value, stream).data

    def _mixed(self) -> list[Row]:
        """Σ_j W_ij x̃_j, in ascending order of j."""
        mixed = [torch.zeros_like(row) for row in self.estimates[self.node]]
        for j in self.mixing.tracked(self.node):
            for total, row in zip(mixed, self.estimates[j], strict=True):
                total.add_(row, alpha=self.mixing.weight(self.node, j))
        return mixed

    def _swap(self, codes: Codes, codecs: Sequence[Codec]) -> dict[int, Codes]:
        bounds = [codec.max_bytes(group.n_values) for codec, group in zip(codecs, self.groups, strict=True)]
        with self.under_way.timed("wire"):
            fixed_size = all(codec.fixed_size for codec in codecs)
            received, edges = self.neighbours.swap(codes, bounds, fixed_size=fixed_size)
        self.count(edges)
        return {**received, self.node: codes}

    def count(self, edges: Mapping[int, Accounting]) -> None:
        """Add the accounting of the edge to each neighbour."""
        for j, edge in edges.items():
            self.edges[j] += edge
            self.under_way.bytes_sent += edge.bytes_sent
            self.under_way.bytes_received += edge.bytes_received

    def consensus(self) -> dict[str, torch.Tensor]:
        """The average of all nodes' models as a state dict. All ranks must call it.

        Floating-point buffers are averaged, too; other buffers are this node's own.
        """
        own = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        real = [name for name, value in own.items() if value.is_floating_point()]
        flat = self._sum_over_ranks(torch.cat([own[name].reshape(-1).float() for name in real])) / self.mixing.size
        for name, piece in zip(real, flat.split_with_sizes([own[name].numel() for name in real]), strict=True):
            own[name] = piece.view(own[name].shape).to(own[name].dtype)
        return own

    def consensus_distance(self) -> float:
        """√(1/n Σ_i ‖x_i − x̄‖²): how far the nodes are from their average. All ranks must call it."""
        x = torch.cat([p.detach().reshape(-1).float() for p in self.parameters.values()])
        mean = self._sum_over_ranks(x.clone()) / self.mixing.size
        squares = self._sum_over_ranks((x - mean).square().sum())
        return math.sqrt(float(squares) / self.mixing.size)

    def _sum_over_ranks(self, v: torch.Tensor) -> torch.Tensor:
        """The sum of v over all nodes, in place."""
        self.neighbours.comm.all_reduce(v)()
        return v

    def config(self) -> dict[str, Any]:
        """What all nodes must agree on, as plain values."""
        return {
            **describe(self.codec, self.policy, self.groups),
            "member": self.name,
            "topology": repr(self.topology),
            "order": self.order,
            "seed": self.seed,
            "step": self.n_steps,
        }

    def state_dict(self) -> dict[str, Any]:
        """What this node must keep to go on bit for bit, besides the model's and the optimizer's own states.

        Step count and seed, and the estimates of itself and its neighbours, by node and parameter.
        """
        numbers = {"step": self.n_steps, "seed": self.seed, "node": self.node, "nodes": self.mixing.size}
        return {
            **{name: torch.tensor(value) for name, value in {"format": FORMAT, **numbers}.items()},
            "estimates": {str(j): self._parts(rows) for j, rows in self.estimates.items()},
            "own": self._parts(self._own) if self._own and self.order == "adapt_then_combine" else {},
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from what this node has saved; load the model's and the optimizer's states, too."""
        self._check_state(saved)
        self.n_steps, self.seed, self._agreed = int(saved["step"]), int(saved["seed"]), False
        self.estimates = {int(j): self._rows(values) for j, values in saved["estimates"].items()}
        self._own = self._rows(saved["own"]) if saved["own"] else []

    def _check_state(self, state: Mapping[str, Any]) -> None:
        """Raise `ValueError`, with what differs, unless a state is this node's."""
        check_format(state, FORMAT, ("step", "seed", "node", "nodes"), ("estimates", "own"))
        former, here = (int(state["node"]), int(state["nodes"])), (self.node, self.mixing.size)
        if former != here:
            raise ValueError(
                f"this state is from node {former[0]} of {former[1]}, this is node {here[0]} of {here[1]}; "
                "to change the graph, load the consensus() model and begin anew"
            )
        estimated, tracked = sorted(map(int, state["estimates"])), list(self.mixing.tracked(self.node))
        if estimated and estimated != tracked:
            raise ValueError(
                f"this state has estimates of nodes {estimated}, "
                f"here node {self.node} tracks {tracked}; give the topology that it was saved with"
            )
        shapes = {name: p.shape for name, p in self.parameters.items()}
        for values in state["estimates"].values():
            check_shapes("estimates", shapes, values)
        if state["own"]:
            check_shapes("own model", shapes, state["own"])
        if estimated and bool(state["own"]) != (self.order == "adapt_then_combine"):
            raise ValueError(
                f"this state was saved with another order than {self.order!r}; give the order that it was saved with"
            )

    def close(self) -> None:
        """Close the channel to the neighbours."""
        self.neighbours.close()
