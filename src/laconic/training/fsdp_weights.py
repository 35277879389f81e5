"""The weights of a sharded model on the wire: FSDP2's all-gather, with a codec if one is asked for.

Each unit has a `UnitGather`, which FSDP2 calls in place of its all-gather. The shards that the optimizer works on are
never touched. Only the copies that forward and backward compute with have the codec's error, and these are the same
bits on every rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import Accounting, Communicator, GatherChunks, Task, run_in_turn
from laconic.exchange.base import Phases
from laconic.kernels import Stream
from laconic.quantizers import Identity, QSGDInf, Quantizer
from laconic.training.fsdp_units import Columns, ShardedGroup, Unit
from laconic.training.groups import PLAIN

if TYPE_CHECKING:
    from laconic.training.fsdp import ShardedCompressor

PLAIN_BF16 = Codec(Identity("bf16"))
"""The codec of uncompressed values that are bfloat16 already: lossless."""
EIGHT_BITS = QSGDInf(bits=8, bucket_size=512)


@dataclass(frozen=True, slots=True)
class Differences:
    """Weights w as differences to those gathered last, ŵ, which every rank keeps: ŵ ← ŵ + Q(w − ŵ).

    The owner subtracts what all ranks hold, so that errors do not add up: ŵ has the error of one quantisation, of about
    one update of the optimizer, which is zero on average. Forward sends; backward computes with the same ŵ and needs no
    message. The price is memory for ŵ: on each rank the whole model, in the type that weights are gathered in.

    codec  of the differences, unbiased; 8-bit QSGDInf by default

    Jia et al. 2024, "SDP4Bit: Toward 4-bit communication quantization in sharded data parallelism for LLM training",
    NeurIPS 37. Differences from the paper: any unbiased codec, and by default 8 bits.
    """

    codec: Codec | Quantizer | str = EIGHT_BITS


WeightCodec = Codec | Quantizer | str | Differences
"""What `laconic.compress` takes as weight_codec."""


def require_unbiased(option: str, codec: Codec, why: str) -> None:
    """Raise `InvalidOption` unless the codec is unbiased, or a cast."""
    quantizer = codec.quantizer
    if quantizer is not quantizer.core or not (quantizer.unbiased or isinstance(quantizer, Identity)):
        raise InvalidOption(Option(option), f" must be unbiased or Identity, for {why}; got {quantizer!r}")


@dataclass(slots=True)
class Weights:
    """How a model's weights are gathered, and the last ones gathered.

    codec   None if FSDP2 gathers them as it does by itself
    kept    whether ranks keep what was gathered last (`Differences`)
    units   of a sharded model
    totals  accounting of all gathers since `compress`
    """

    codec: Codec | None = None
    kept: bool = False
    units: "list[UnitGather]" = field(default_factory=list)
    totals: Accounting = field(default_factory=Accounting)
    _stream: torch.cuda.Stream | None = None

    @classmethod
    def asked_for(cls, asked: WeightCodec | None) -> "Weights":
        """From the `weight_codec` of `compress`; raises `InvalidOption` unless it is unbiased, or a cast."""
        if asked is None:
            return cls()
        if asked == "differences":
            raise InvalidOption(Option("weight_codec"), f" must be Differences() or a codec; got {asked!r}")
        codec = codec_for(asked.codec if isinstance(asked, Differences) else asked)
        require_unbiased("weight_codec", codec, "weights have no error memory")
        return cls(codec, isinstance(asked, Differences))

    def describe(self) -> str:
        """A description in words, for ranks to compare."""
        how = "differences in " if self.kept else ""
        return "none" if self.codec is None else f"{how}{self.codec.quantizer!r}, {self.codec.coder!r}"

    def state(self) -> dict[str, Any]:
        """How often each unit was gathered, and what was gathered last, by parameter; empty if that is not kept."""
        if not self.kept:
            return {}
        kept = (part for unit in self.units for part in unit.kept)
        values = {name: value for group, _, last in kept for name, value in group.parts(last).items()}
        return {"gathers": torch.tensor([unit.n_gathers for unit in self.units]), "values": values}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. If it is empty, the next gather is FSDP2's own, as the first was.

        If the model was cut into other units, every unit gets the smallest of the saved counts.
        """
        counts = state["gathers"].tolist() if state else [0]
        same = len(counts) == len(self.units)
        for i, unit in enumerate(self.units if self.kept else ()):
            unit.n_gathers = counts[i] if same else min(counts)
            for group, _, last in unit.kept if state else ():
                group.fill(last, state["values"])

    def follow(self, device: torch.device) -> None:
        """On a GPU, make the current stream wait for earlier gathers, which may be on another stream."""
        now = torch.cuda.current_stream(device) if device.type == "cuda" else None
        if now is not None and self._stream is not None and self._stream != now:
            now.wait_stream(self._stream)
        self._stream = now


@dataclass(slots=True)
class UnitGather:
    """The all-gather of one unit; `allocate` and `__call__` are FSDP2's interface of an all-gather.

    comm       the ranks that the unit is sharded over
    plain      the all-gather that the unit had before
    parts      each group of the unit, its columns in the matrix that FSDP2 gathers, and what was gathered last, a row
               for each rank; None if that is not kept
    n_gathers  number of gathers that sent something; if 0, what was gathered last is unknown
    """

    unit: Unit
    compressor: "ShardedCompressor"
    comm: Communicator
    plain: Any
    parts: list[tuple[ShardedGroup, Columns, torch.Tensor | None]] = field(init=False)
    n_gathers: int = 0

    def __post_init__(self) -> None:
        like = torch.empty(0, dtype=next(iter(self.unit.weight_dtypes)), device=self.compressor.device)
        kept = self.compressor.weights.kept
        self.parts = [(g, at, like.new_zeros(g.n_values) if kept else None) for g, at in self.unit.weights]

    @property
    def kept(self) -> list[tuple[ShardedGroup, Columns, torch.Tensor]]:
        """The parts whose last weights are kept: all or none."""
        return [(group, at, last) for group, at, last in self.parts if last is not None]

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the unit's weights; FSDP2 copies this rank's to their place in it."""
        with torch.inference_mode(False):
            memory: torch.Tensor = self.plain.allocate(size, dtype=dtype, device=device)
        return memory

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """Gather every rank's weights in `output_tensor`, a row per rank; `input_tensor` is this rank's row:

        1. at the first gather, and at the first after a state was loaded, compare configurations across ranks;
        2. gather as FSDP2 does without a codec, after `close`, and where fewer ranks gather what forward left them
           (`reshard_after_forward=2`); also in warm-up steps, and before there are weights to take differences to;
        3. in backward, if the last weights are kept, use those, since forward computed with them;
        4. otherwise encode this rank's weights, or their differences to the last, and send them to all.
        """
        compressor, weights = self.compressor, self.compressor.weights
        if not compressor.closed:
            compressor.agree()
        if weights.codec is None or compressor.closed or dist.get_world_size(group) != self.comm.size:
            return self._gather_plainly(output_tensor, input_tensor, group, async_op)
        rows = output_tensor.view(self.comm.size, -1)
        in_backward = torch._C._current_graph_task_id() != -1
        unknown = weights.kept and not self.n_gathers
        weights.follow(rows.device)
        with torch.inference_mode(False):
            if compressor.step < compressor.policy.warmup_steps or unknown:
                self._gather_plainly(output_tensor, input_tensor, group, False)
                self._keep(rows)
            elif not (weights.kept and in_backward):
                self._gather_coded(rows)
            for _, at, last in self.kept:
                at.put(last, rows)
        return None

    def _gather_plainly(self, output: torch.Tensor, own: torch.Tensor, group: dist.ProcessGroup, async_op: bool) -> Any:
        """Step 2."""
        n_bytes = (dist.get_world_size(group) - 1) * own.nbytes
        self.compressor.weights.totals += Accounting(1, own.numel(), n_bytes, n_bytes)
        return self.plain(output_tensor=output, input_tensor=own, group=group, async_op=async_op)

    def _keep(self, rows: torch.Tensor) -> None:
        """Keep the weights as gathered, to take differences to."""
        for _, at, last in self.kept:
            last.copy_(at.take(rows))
        self.n_gathers += 1

    def _gather_coded(self, rows: torch.Tensor) -> None:
        """Step 4."""
        for done in run_in_turn([self._phases(rows, *part) for part in self.parts]):
            self.compressor.weights.totals += done.accounting
        self.n_gathers += 1

    def _phases(self, rows: torch.Tensor, group: ShardedGroup, at: Columns, last: torch.Tensor | None) -> Phases:
        """Step 4 for one group, whose columns in `rows` are `at`; written to `last` if that is kept, else to `rows`."""
        compressor, rank = self.compressor, self.comm.rank
        weights, turn = compressor.weights, self.n_gathers if compressor.weights.kept else 0
        stream = Stream(compressor.seed, step=compressor.step, tensor=f"weights {group.index}, {turn}")
        buffers = compressor.buffers(("weights", group.index - self.unit.weights[0][0].index), rows)
        plain = PLAIN_BF16 if rows.dtype == torch.bfloat16 else PLAIN
        codec = weights.codec if group.compressed and weights.codec is not None else plain
        v, differs = at.take(rows[rank : rank + 1]), last is not None and group.compressed
        if last is not None and differs:
            last.nan_to_num_(0.0, 0.0, 0.0)  # otherwise weights once non-finite would remain so
            v = v.float() - last.view(len(rows), -1)[rank]
        out = rows.view(-1) if last is None and at.is_all_of(rows) else last
        out = out if out is not None and out.dtype == torch.float32 else None
        exchange = GatherChunks(add=differs and out is not None)
        done = yield from exchange.phases(Task(v, codec, stream, out=out, buffers=buffers), self.comm)
        if last is None:
            at.put(done.value, rows)
        elif out is None:
            last.add_(done.value) if differs else last.copy_(done.value)
        return done
