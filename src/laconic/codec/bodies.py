"""Four ways to write and read a payload's body (norms and coded symbols); a codec takes one when it is made.

Fused      one norm per bucket, symbols of fixed width: one kernel rounds and packs, one unpacks and adds
Raw        values in float32 or bfloat16, as they are
Tabled     dithered values, rounded and entropy-coded by one kernel
Stepwise   anything else: quantize, then code; decode, then dequantize
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, cast

import torch

from laconic.codec.header import HEADER_BYTES, KEY_AT, SIZE_AT
from laconic.codec.layout import Layout
from laconic.codec.payload import Payload
from laconic.coders import FixedWidth, SymbolCoder, TableRANS
from laconic.coders.base import WORD_BYTES, aligned
from laconic.coders.blocks import copy_bytes
from laconic.errors import CorruptPayload
from laconic.kernels import ONES, Backend, DeviceBackend, Rounding, Scale, Stream
from laconic.kernels import select as _select
from laconic.quantizers import Bucketed, Dithered, ErrorFeedback, Identity, Quantized, Quantizer, Rotated

select = lru_cache(maxsize=64)(_select)
"""The backend by name and device; asked for with every payload, and finding a module takes a while."""


def body_for(quantizer: Quantizer, layout: Layout, backend: str) -> "Body":
    """The fastest body that does what quantizer and coder ask for."""
    core = quantizer.core
    if isinstance(core, Bucketed) and core.draws_again and not isinstance(layout.coder, FixedWidth):
        raise ValueError(f"{core} is coded by FixedWidth(), and by no other coder; got {layout.coder}")
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Bucketed | Rotated):
        return Fused(quantizer, layout, backend, core)
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Identity):
        return Raw(quantizer, layout, backend, core)
    if isinstance(layout.coder, TableRANS) and isinstance(core, Dithered):
        return Tabled(quantizer, layout, backend, core, layout.coder)
    if isinstance(layout.coder, SymbolCoder) and not isinstance(core, Dithered):
        return Stepwise(quantizer, layout, backend, core, layout.coder)
    raise ValueError(f"{core} is coded by TableRANS(), and by no other coder; got {layout.coder}")


def given(scale: Scale) -> tuple[Scale, ...]:
    """As the last argument of a kernel, which kernels that take no scale need not have."""
    return (scale,) if scale.parts else ()


@dataclass(frozen=True, slots=True)
class Body(ABC):
    """Writes and reads the payloads of one codec.

    quantizer    as the user gave it
    core         the quantizer that makes the symbols
    takes_scale  whether `write` and `read` hand a scale to their kernels
    """

    takes_scale: ClassVar[bool] = False
    quantizer: Quantizer
    layout: Layout
    backend: str
    core: Quantizer

    @abstractmethod
    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        """The bytes of a payload of the values v (n,), divided by `scale` first, in `out` if given."""

    @abstractmethod
    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        """out = weight * values, or out += weight * values; then out *= scale. `out` is (n,) float32."""

    def read_sum(self, payloads: Sequence[Payload], out: torch.Tensor, weight: float, scale: Scale = ONES) -> None:
        """out = weight * sum of the payloads' values * scale."""
        out.zero_()
        for i, payload in enumerate(payloads, start=1):
            self.read(payload.data, out, weight, True, scale if i == len(payloads) else ONES)

    def require_written(self, data: torch.Tensor, n: int) -> None:
        """Raise `CorruptPayload` for what decodes, and yet no encoder writes: it reads every symbol once more."""
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

    def encode(
        self, v: torch.Tensor, stream: Stream, memory: torch.Tensor | None, out: torch.Tensor | None, scale: Scale
    ) -> torch.Tensor:
        """`write`; with error feedback, of v + memory, and the memory is updated in place."""
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
        if fused is not scale:
            scale.divide(v)
        return self.write(v, stream, out, fused)

    def fused(self, scale: Scale, device: torch.device) -> Scale:
        """The scale, if kernels for tensors on `device` apply it on the way; otherwise none."""
        return scale if self.takes_scale and hasattr(self._kernels(device), "TAKES_SCALE") else ONES

    def _write_feedback(
        self, feedback: ErrorFeedback, v: torch.Tensor, stream: Stream, memory: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        total = v.float() + memory
        data = self.write(total, stream, out)
        self.read(data, total, -1.0, True)
        feedback.remember(memory, total, self.layout.split(data, v.numel())[0])
        return data

    def has_slots(self, device: torch.device) -> bool:
        """Whether payloads are written into slots and read from them without the host on a device; see `Tabled`."""
        return False

    def _kernels(self, device: torch.device) -> Backend:
        return select(self.backend, device)


@dataclass(frozen=True, slots=True)
class Fused(Body):
    """One kernel does quantizer's and coder's work."""

    takes_scale: ClassVar[bool] = True
    core: Bucketed | Rotated

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        return self._pack(self._kernels(v.device), v, stream, out, *given(scale))

    def _write_feedback(
        self, feedback: ErrorFeedback, v: torch.Tensor, stream: Stream, memory: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        """In one pass over memory as well, with a backend that can."""
        kernels = self._kernels(v.device)
        if isinstance(self.core, Bucketed) and isinstance(kernels, DeviceBackend):
            return self._pack(kernels, v, stream, out, memory=memory)
        return super(Fused, self)._write_feedback(feedback, v, stream, memory, out)

    def _pack(
        self, kernels: Any, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, *scale: Scale, **memory: Any
    ) -> torch.Tensor:
        data = self.layout.new(v.numel(), v.device, out, key=stream.key)
        self.core.pack(kernels, v, stream.key, *self.layout.split(data, v.numel()), *scale, **memory)
        return data

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        self._unpack([Payload(data)], out, weight, accumulate, scale)

    def read_sum(self, payloads: Sequence[Payload], out: torch.Tensor, weight: float, scale: Scale = ONES) -> None:
        """In one pass over `out`."""
        self._unpack(payloads, out, weight, False, scale)

    def _unpack(
        self, payloads: Sequence[Payload], out: torch.Tensor, weight: float, accumulate: bool, scale: Scale
    ) -> None:
        if not payloads or not out.numel():
            out.zero_()
            return
        norms, coded = self.layout.split_rows(payloads, out.numel())
        keys = self.layout.keys(payloads) if self.core.draws_again else None
        kernels = self._kernels(out.device)
        self.core.unpack(kernels, coded, norms, keys, out, weight, accumulate, *given(scale))

    def _kernels(self, device: torch.device) -> Backend:
        return select(self.core.backend_for(self.backend, device), device)


@dataclass(frozen=True, slots=True)
class Raw(Body):
    """A copy, or a cast to bfloat16 and back."""

    core: Identity

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        data = self.layout.new(v.numel(), v.device, out)
        data[self.layout.first_coded(0) :].view(self.core.wire_dtype).copy_(v)
        return data

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        _, values = self.layout.split(data, out.numel())
        self._kernels(out.device).scale(values.view(self.core.wire_dtype), out, weight, accumulate)


@dataclass(frozen=True, slots=True)
class Tabled(Body):
    """Kernels round and code, decode, subtract the dither and add."""

    takes_scale: ClassVar[bool] = True
    core: Dithered
    coder: TableRANS

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        layout, n, kernels = self.layout, v.numel(), self._kernels(v.device)
        found: tuple[torch.Tensor, Any] = (
            self.core.steps_there(v, kernels.cell_moments(v))
            if n and self.has_slots(v.device)
            else self.core.steps(v, self.backend, *given(scale))
        )
        steps, shape = found
        made = self.coder.encode_values(v, steps, self.core.bucket_size, stream.key, shape, kernels)
        data = layout.new(n, v.device, None, made.numel(), stream.key)
        norms, coded = layout.split(data, n)
        norms.copy_(steps)
        copy_bytes(coded, made)
        return data

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        kernels = self._kernels(out.device)
        if isinstance(kernels, DeviceBackend):
            self._read_rows([data], out, weight, accumulate or None)
            return
        steps, coded = self.layout.split(data, out.numel())
        options = (self.core.bucket_size, Payload(data).header.stream_key, out, weight, accumulate)
        self.coder.decode_values(coded, steps, *options, kernels, *given(scale))

    def read_sum(self, payloads: Sequence[Payload], out: torch.Tensor, weight: float, scale: Scale = ONES) -> None:
        """With a backend that can, in one pass over `out`."""
        if payloads and isinstance(self._kernels(out.device), DeviceBackend):
            self._read_rows([payload.data for payload in payloads], out, weight, False)
        else:
            super(Tabled, self).read_sum(payloads, out, weight, scale)

    def _read_rows(
        self, rows: Sequence[torch.Tensor], out: torch.Tensor, weight: float, accumulate: bool | None
    ) -> None:
        """`read_slots`, and its verdict."""
        if any(row.numel() % WORD_BYTES for row in rows):
            raise CorruptPayload(f"{self.coder.name}: a payload is a whole number of words")
        slots = aligned(rows[0])[None]
        if len(rows) > 1:
            slots = slots.new_empty(len(rows), max(row.numel() for row in rows))
            for slot, row in zip(slots, rows, strict=True):
                slot[: row.numel()] = row
        good = self.read_slots(slots.view(torch.int32), out, weight, accumulate)
        if not bool(good.all()):
            bad = int((good == 0).any(0).int().argmax())
            raise CorruptPayload(f"{self.coder.name}: block {bad} of {good.shape[1]} is corrupt")

    def has_slots(self, device: torch.device) -> bool:
        """With a backend that can, if Δ follows from an error; from bits, the host computes it."""
        return self.core.bits is None and isinstance(self._kernels(device), DeviceBackend)

    def encode_slot(
        self, v: torch.Tensor, stream: Stream, memory: torch.Tensor | None, slot: torch.Tensor, scale: Scale
    ) -> None:
        """`write_slot`; with error feedback, of v + memory, and the memory is updated in place."""
        scale.divide(v)
        if isinstance(self.quantizer, ErrorFeedback):
            kept = self.quantizer.require_memory(v, memory)
            scale.divide(kept)
            total = v.float() + kept
            self.write_slot(total, stream, slot)
            self.read_slots(slot[None], total, -1.0, True)
            first, last = HEADER_BYTES // 4, self.layout.first_coded(v.numel()) // 4
            self.quantizer.remember(kept, total, slot[first:last].view(torch.float32))
            scale.multiply(kept)
        else:
            self.write_slot(v, stream, slot)

    def write_slot(self, v: torch.Tensor, stream: Stream, slot: torch.Tensor) -> None:
        """A payload into the words (int32) of a slot; its header says how long it is, even if it does not fit."""
        n, kernels = v.numel(), self._kernels(v.device)
        there = cast(DeviceBackend, kernels)
        if n == 0:
            size = torch.zeros(1, dtype=torch.int64, device=v.device)
        else:
            steps, shape = self.core.steps_there(v, kernels.cell_moments(v))
            first = self.layout.first_coded(n) // 4
            slot[HEADER_BYTES // 4 : first].view(torch.float32).copy_(steps)
            size = there.dither_encode_into(v, steps, self.core.bucket_size, stream.key, shape, slot[first:])
        self.layout.stamp(slot, n, stream.key, size, there)

    def read_slots(
        self, slots: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool | None
    ) -> torch.Tensor:
        """out = weight * sum of the values in slots (P, n_words) int32; returns which of their blocks were good."""
        first, kernels = self.layout.first_coded(out.numel()) // 4, cast(DeviceBackend, self._kernels(out.device))
        if not out.numel():
            return slots[:, :0]
        lengths, keys = slots[:, SIZE_AT // 4 :][:, :2], slots[:, KEY_AT // 4 :][:, :2]
        steps = slots[:, HEADER_BYTES // 4 : first].view(torch.float32)
        rule = (steps, self.core.bucket_size, keys, out, weight, accumulate)
        return kernels.dither_decode_rows(slots[:, first:], lengths, *rule)


@dataclass(frozen=True, slots=True)
class Stepwise(Body):
    """The quantizer's own methods, then the coder's."""

    coder: SymbolCoder

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        layout, n = self.layout, v.numel()
        quantized = self.core.quantize(v, stream, backend=self.backend)
        made = self.coder.encode(quantized.symbols, layout.shape(n), self._kernels(v.device))
        data = layout.new(n, v.device, out, made.numel(), quantized.key)
        norms, coded = layout.split(data, n)
        norms.copy_(quantized.norms)
        copy_bytes(coded, made)
        return data

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        layout, n = self.layout, out.numel()
        norms, coded = layout.split(data, n)
        symbols = self.coder.decode(coded, layout.shape(n), self._kernels(data.device))
        key = Payload(data).header.stream_key if self.core.draws_again else 0
        values = self.core.dequantize(Quantized(symbols, norms, key), weight=weight, backend=self.backend)
        if accumulate:
            out.add_(values)
        else:
            out.copy_(values)
