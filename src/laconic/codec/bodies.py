"""Four implementations that write and read a payload's body (norms and coded symbols); a codec picks one when made.

Fused               one norm per bucket, symbols of fixed width: one kernel rounds and packs, one unpacks and adds
Raw                 values in float32 or bfloat16, as they are
EntropyCodedDither  dithered values, rounded and entropy-coded by one kernel
Stepwise            anything else: quantize, then code; decode, then dequantize
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from laconic.codec.header import HEADER_BYTES, KEY_AT, SIZE_AT
from laconic.codec.layout import Layout
from laconic.codec.payload import Payload
from laconic.coders import FixedWidth, SymbolCoder, TableRANS
from laconic.coders.base import WORD_BYTES, aligned, copy_bytes
from laconic.errors import CorruptPayload
from laconic.kernels import Backend, DeviceBackend, Rounding, Scale, Stream
from laconic.kernels import select as _select
from laconic.quantizers import Bucketed, Dithered, ErrorFeedback, Identity, Quantized, Quantizer, Rotated

select = lru_cache(maxsize=64)(_select)
"""The backend by name and device. Cached, since it is looked up for every payload."""


def body_for(quantizer: Quantizer, layout: Layout, backend: str) -> "Body":
    """The fastest body for this quantizer and coder."""
    core = quantizer.core
    if isinstance(core, Bucketed) and core.draws_again and not isinstance(layout.coder, FixedWidth):
        raise ValueError(f"{core} is coded by FixedWidth(), and by no other coder; got {layout.coder}")
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Bucketed | Rotated):
        return Fused(quantizer, layout, backend, core)
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Identity):
        return Raw(quantizer, layout, backend, core)
    if isinstance(layout.coder, TableRANS) and isinstance(core, Dithered):
        return EntropyCodedDither(quantizer, layout, backend, core, layout.coder)
    if isinstance(layout.coder, SymbolCoder) and not isinstance(core, Dithered):
        return Stepwise(quantizer, layout, backend, core, layout.coder)
    if isinstance(layout.coder, TableRANS):
        raise ValueError(f"{layout.coder} codes Dithered only; got {core}, which FixedWidth() or RANS() codes")
    raise ValueError(f"{core} is coded by TableRANS(), and by no other coder; got {layout.coder}")


@dataclass(frozen=True, slots=True)
class Body(ABC):
    """Writes and reads the payloads of one codec.

    quantizer    as the user gave it
    core         the quantizer that makes the symbols
    takes_scale  whether `write` and `read` hand a scale to their kernels

    The `*scale` arguments are what `fused` returned: one scale, or none.
    """

    takes_scale: ClassVar[bool] = False
    quantizer: Quantizer
    layout: Layout
    backend: str
    core: Quantizer

    @abstractmethod
    def write(self, v: Tensor, stream: Stream, out: Tensor | None, *scale: Scale) -> Tensor:
        """The bytes of a payload of the values v (n,), divided by `scale` first, in `out` if given."""

    @abstractmethod
    def read(self, data: Tensor, out: Tensor, weight: float, accumulate: bool, *scale: Scale) -> None:
        """out = weight * values, or out += weight * values; then out *= scale. `out` is (n,) float32."""

    def read_sum(self, rows: Sequence[Tensor], out: Tensor, weight: float, *scale: Scale) -> None:
        """out = weight * sum of the values in rows, each the bytes of a payload; then out *= scale."""
        if not rows:
            out.zero_()
        for i, data in enumerate(rows, start=1):
            self.read(data, out, weight, i > 1, *(scale if i == len(rows) else ()))

    def fused(self, scale: Scale, device: torch.device) -> tuple[Scale, ...]:
        """(scale,) if it has parts and the kernels for tensors on `device` apply it themselves; otherwise ()."""
        able = self.takes_scale and scale.parts and hasattr(self._kernels(device), "TAKES_SCALE")
        return (scale,) if able else ()

    def encode(self, v: Tensor, stream: Stream, memory: Tensor | None, out: Tensor | None, scale: Scale) -> Tensor:
        """`write` v or, with error feedback, v + memory; the memory is updated in place."""
        if isinstance(self.quantizer, ErrorFeedback):
            memory = self.quantizer.require_memory(v, memory)
            scale.divide(v)
            scale.divide(memory)
            data = self._write_feedback(self.quantizer, v, stream, memory, out)
            scale.multiply(memory)
            return data
        if memory is not None:
            self.quantizer.require_memory(v, memory)
        fused = self.fused(scale, v.device)
        if not fused:
            scale.divide(v)
        return self.write(v, stream, out, *fused)

    def _write_feedback(
        self, feedback: ErrorFeedback, v: Tensor, stream: Stream, memory: Tensor, out: Tensor | None
    ) -> Tensor:
        total = v.float() + memory
        data = self.write(total, stream, out)
        self.read(data, total, -1.0, True)
        feedback.remember(memory, total, self.layout.split(data, v.numel())[0])
        return data

    def _join(self, n: int, out: Tensor | None, norms: Tensor, coded: Tensor, key: int) -> Tensor:
        """The payload of n values with these norms and coded symbols."""
        data = self.layout.new(n, coded.device, out, coded.numel(), key)
        own_norms, own_coded = self.layout.split(data, n)
        own_norms.copy_(norms)
        copy_bytes(own_coded, coded)
        return data

    def require_written(self, data: Tensor, n: int) -> None:
        """Raise `CorruptPayload` if the payload decodes, but no encoder writes it. Reads every symbol once more."""
        norms, coded = self.layout.split(data, n)
        coder, shape, kernels = self.layout.coder, self.layout.shape(n), self._kernels(data.device)
        if (norms.cpu().numpy() < 0).any():
            raise CorruptPayload("a norm of the payload is negative")
        if not isinstance(coder, SymbolCoder) or shape.bits > 8:
            return
        symbols = coder.decode(coded, shape, kernels)
        unsigned = (Rounding.SIGN, Rounding.SUBTRACT)
        signed = isinstance(self.core, Bucketed) and self.core.grid.rounding not in unsigned
        if signed and (symbols.cpu().numpy() == 2 ** (shape.bits - 1)).any():
            raise CorruptPayload("a symbol of the payload has a sign and no level")
        if coder.fixed_size and (coder.encode(symbols, shape, kernels).cpu().numpy() != coded.cpu().numpy()).any():
            raise CorruptPayload("bits of the payload beyond the last symbol of a bucket are not zero")

    def has_slots(self, device: torch.device) -> bool:
        """Whether payloads on `device` go through slots (see `EntropyCodedDither`), so that the host need not wait."""
        return False

    def _kernels(self, device: torch.device) -> Backend:
        return select(self.core.backend_for(self.backend, device), device)


@dataclass(frozen=True, slots=True)
class Fused(Body):
    """One kernel rounds and packs, one unpacks and adds."""

    takes_scale: ClassVar[bool] = True
    core: Bucketed | Rotated

    def write(self, v: Tensor, stream: Stream, out: Tensor | None, *scale: Scale, **memory: Any) -> Tensor:
        data = self.layout.new(v.numel(), v.device, out, key=stream.key)
        norms, coded = self.layout.split(data, v.numel())
        self.core.pack(self._kernels(v.device), v, stream.key, norms, coded, *scale, **memory)
        return data

    def _write_feedback(
        self, feedback: ErrorFeedback, v: Tensor, stream: Stream, memory: Tensor, out: Tensor | None
    ) -> Tensor:
        """On a `DeviceBackend`, in the one pass that also updates the memory."""
        if isinstance(self.core, Bucketed) and isinstance(self._kernels(v.device), DeviceBackend):
            return self.write(v, stream, out, memory=memory)
        return super(Fused, self)._write_feedback(feedback, v, stream, memory, out)

    def read(self, data: Tensor, out: Tensor, weight: float, accumulate: bool, *scale: Scale) -> None:
        self._unpack([data], out, weight, accumulate, *scale)

    def read_sum(self, rows: Sequence[Tensor], out: Tensor, weight: float, *scale: Scale) -> None:
        """In one pass over `out`."""
        self._unpack(rows, out, weight, False, *scale)

    def _unpack(self, rows: Sequence[Tensor], out: Tensor, *rest: Any) -> None:
        if not rows or not out.numel():
            out.zero_()
            return
        norms, coded = self.layout.split_rows(rows, out.numel())
        keys = self.layout.keys(rows) if self.core.draws_again else None
        self.core.unpack(self._kernels(out.device), coded, norms, keys, out, *rest)


@dataclass(frozen=True, slots=True)
class Raw(Body):
    """A copy, or a cast to bfloat16 and back."""

    core: Identity

    def write(self, v: Tensor, stream: Stream, out: Tensor | None, *scale: Scale) -> Tensor:
        data = self.layout.new(v.numel(), v.device, out)
        data[self.layout.first_coded(0) :].view(self.core.wire_dtype).copy_(v)
        return data

    def read(self, data: Tensor, out: Tensor, weight: float, accumulate: bool, *scale: Scale) -> None:
        _, values = self.layout.split(data, out.numel())
        self._kernels(out.device).scale(values.view(self.core.wire_dtype), out, weight, accumulate)


@dataclass(frozen=True, slots=True)
class EntropyCodedDither(Body):
    """One kernel rounds and entropy-codes; one decodes, subtracts the dither and adds.

    A *slot* is a row of fixed size that a GPU writes a payload into, without the host learning the payload's length.
    """

    takes_scale: ClassVar[bool] = True
    core: Dithered
    coder: TableRANS

    def write(self, v: Tensor, stream: Stream, out: Tensor | None, *scale: Scale) -> Tensor:
        n, kernels = v.numel(), self._kernels(v.device)
        shape: Any
        if n and self.has_slots(v.device):
            steps, shape = self.core.steps_on_device(v, kernels.cell_moments(v))
        else:
            steps, shape = self.core.steps(v, self.backend, *scale)
        coded = torch.empty(0, dtype=torch.uint8, device=v.device)
        if n:
            coded = self.coder.join(shape, kernels.dither_encode(v, steps, self.core.bucket_size, stream.key, shape))
        return self._join(n, None, steps, coded, stream.key)

    def read(self, data: Tensor, out: Tensor, weight: float, accumulate: bool, *scale: Scale) -> None:
        kernels, n = self._kernels(out.device), out.numel()
        if isinstance(kernels, DeviceBackend):
            self._read_rows([data], out, weight, accumulate)
        elif n:
            steps, coded = self.layout.split(data, n)
            shape, blocks = self.coder.split(coded, n)
            rule = (steps, self.core.bucket_size, Payload(data).header.stream_key, shape)
            self._require_good(kernels.dither_decode(blocks, *rule, out, weight, accumulate, *scale), len(blocks[0]))

    def read_sum(self, rows: Sequence[Tensor], out: Tensor, weight: float, *scale: Scale) -> None:
        """On a `DeviceBackend`, in one pass over `out`."""
        if rows and isinstance(self._kernels(out.device), DeviceBackend):
            self._read_rows(rows, out, weight, False)
        else:
            super(EntropyCodedDither, self).read_sum(rows, out, weight, *scale)

    def _read_rows(self, rows: Sequence[Tensor], out: Tensor, weight: float, accumulate: bool) -> None:
        """`read_slots`; raises `CorruptPayload` if a block is corrupt."""
        if any(row.numel() % WORD_BYTES for row in rows):
            raise CorruptPayload(f"{self.coder.name}: a payload is a whole number of words")
        slots = aligned(rows[0])[None]
        if len(rows) > 1:
            slots = slots.new_empty(len(rows), max(row.numel() for row in rows))
            for slot, row in zip(slots, rows, strict=True):
                slot[: row.numel()] = row
        good = self.read_slots(slots.view(torch.int32), out, weight, accumulate)
        if not bool(good.all()):
            self._require_good(int((good == 0).any(0).int().argmax()), good.shape[1])

    def _require_good(self, bad: int, n_blocks: int) -> None:
        if bad >= 0:
            raise CorruptPayload(f"{self.coder.name}: block {bad} of {n_blocks} is corrupt")

    def has_slots(self, device: torch.device) -> bool:
        """Whether the backend is a `DeviceBackend` and Δ follows from `error`; from `bits`, the host computes it."""
        return self.core.bits is None and isinstance(self._kernels(device), DeviceBackend)

    def encode_slot(self, v: Tensor, stream: Stream, memory: Tensor | None, slot: Tensor, scale: Scale) -> None:
        """`write_slot` v or, with error feedback, v + memory; the memory is updated in place."""
        scale.divide(v)
        if isinstance(self.quantizer, ErrorFeedback):
            kept = self.quantizer.require_memory(v, memory)
            scale.divide(kept)
            total = v.float() + kept
            self.write_slot(total, stream, slot)
            self.read_slots(slot[None], total, -1.0, True)
            self.quantizer.remember(kept, total, self._steps_in(slot, v.numel()))
            scale.multiply(kept)
        else:
            self.write_slot(v, stream, slot)

    def write_slot(self, v: Tensor, stream: Stream, slot: Tensor) -> None:
        """Write a payload into a slot (int32 words); its header gives its length, even if it does not fit."""
        n, kernels = v.numel(), self._kernels(v.device)
        there, size = cast(DeviceBackend, kernels), torch.zeros(1, dtype=torch.int64, device=v.device)
        if n:
            steps, shape = self.core.steps_on_device(v, kernels.cell_moments(v))
            self._steps_in(slot, n).copy_(steps)
            coded = slot[self.layout.first_coded(n) // 4 :]
            size = there.dither_encode_into(v, steps, self.core.bucket_size, stream.key, shape, coded)
        self.layout.stamp(slot, n, stream.key, size, there)

    def read_slots(self, slots: Tensor, out: Tensor, weight: float, accumulate: bool) -> Tensor:
        """out = weight * sum of the values in slots (P, n_words) int32; returns which blocks of each were valid."""
        n, kernels = out.numel(), cast(DeviceBackend, self._kernels(out.device))
        if not n:
            return slots[:, :0]
        lengths, keys = slots[:, SIZE_AT // 4 :][:, :2], slots[:, KEY_AT // 4 :][:, :2]
        rule = (self._steps_in(slots, n), self.core.bucket_size, keys, out, weight, accumulate)
        return kernels.dither_decode_rows(slots[:, self.layout.first_coded(n) // 4 :], lengths, *rule)

    def _steps_in(self, slots: Tensor, n: int) -> Tensor:
        """The steps of n values in the words (..., n_words) of slots."""
        return slots[..., HEADER_BYTES // 4 : self.layout.first_coded(n) // 4].view(torch.float32)


@dataclass(frozen=True, slots=True)
class Stepwise(Body):
    """The quantizer's own methods, then the coder's."""

    coder: SymbolCoder

    def write(self, v: Tensor, stream: Stream, out: Tensor | None, *scale: Scale) -> Tensor:
        quantized = self.core.quantize(v, stream, backend=self.backend)
        coded = self.coder.encode(quantized.symbols, self.layout.shape(v.numel()), self._kernels(v.device))
        return self._join(v.numel(), out, quantized.norms, coded, quantized.key)

    def read(self, data: Tensor, out: Tensor, weight: float, accumulate: bool, *scale: Scale) -> None:
        norms, coded = self.layout.split(data, out.numel())
        symbols = self.coder.decode(coded, self.layout.shape(out.numel()), self._kernels(data.device))
        key = Payload(data).header.stream_key if self.core.draws_again else 0
        values = self.core.dequantize(Quantized(symbols, norms, key), weight=weight, backend=self.backend)
        if accumulate:
            out.add_(values)
        else:
            out.copy_(values)
