"""Five ways to write and read a payload's body (norms and coded symbols); a codec takes one when it is made.

Fused      one norm per bucket, symbols of fixed width: one kernel rounds and packs, one unpacks and adds
Rotating   the same for rotated buckets
Raw        values in float32 or bfloat16, as they are
Tabled     dithered values, rounded and entropy-coded by one kernel
Stepwise   anything else: quantize, then code; decode, then dequantize
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch

from laconic.codec.layout import Layout
from laconic.codec.payload import Payload
from laconic.coders import FixedWidth, SymbolCoder, TableRANS
from laconic.coders.blocks import copy_bytes
from laconic.kernels import ONES, Backend, DitherBackend, Scale, Stream
from laconic.kernels import select as _select
from laconic.quantizers import Bucketed, Dithered, ErrorFeedback, Identity, Quantized, Quantizer, Rotated

select = lru_cache(maxsize=64)(_select)
"""The backend by name and device; asked for with every payload, and finding a module takes a while."""


def body_for(quantizer: Quantizer, layout: Layout, backend: str) -> "Body":
    """The fastest body that does what quantizer and coder ask for."""
    core = quantizer.core
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Bucketed):
        return Fused(quantizer, layout, backend, core)
    if isinstance(layout.coder, FixedWidth) and isinstance(core, Rotated):
        return Rotating(quantizer, layout, backend, core)
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

    quantizer  as the user gave it
    core       the quantizer that makes the symbols
    """

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
        takes = isinstance(self, Fused | Rotating | Tabled) and hasattr(self._kernels(device), "TAKES_SCALE")
        return scale if takes else ONES

    def _write_feedback(
        self, feedback: ErrorFeedback, v: torch.Tensor, stream: Stream, memory: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        total = v.float() + memory
        data = self.write(total, stream, out)
        self.read(data, total, -1.0, True)
        feedback.remember(memory, total, self.layout.split(data, v.numel())[0])
        return data

    def _kernels(self, device: torch.device) -> Backend:
        return select(self.backend, device)


@dataclass(frozen=True, slots=True)
class Fused(Body):
    """One kernel does quantizer's and coder's work."""

    core: Bucketed

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        return self._pack(self._kernels(v.device).quantize_pack, (v,), stream, out, *given(scale))

    def _write_feedback(
        self, feedback: ErrorFeedback, v: torch.Tensor, stream: Stream, memory: torch.Tensor, out: torch.Tensor | None
    ) -> torch.Tensor:
        """In one pass over memory as well, with a backend that can."""
        kernels = self._kernels(v.device)
        if hasattr(kernels, "quantize_pack_feedback"):
            return self._pack(kernels.quantize_pack_feedback, (v, memory), stream, out)
        return super(Fused, self)._write_feedback(feedback, v, stream, memory, out)

    def _pack(
        self,
        kernel: Callable[..., None],
        rows: tuple[torch.Tensor, ...],
        stream: Stream,
        out: torch.Tensor | None,
        *scale: Scale,
    ) -> torch.Tensor:
        core, n, device = self.core, rows[0].numel(), rows[0].device
        data = self.layout.new(n, device, out)
        kernel(*rows, core.norm, core.grid, core.bucket_size, stream.key, *self.layout.split(data, n), *scale)
        return data

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        norms, coded = self.layout.split(data, out.numel())
        self._unpack(norms[None], coded[None], out, weight, accumulate, scale)

    def read_sum(self, payloads: Sequence[Payload], out: torch.Tensor, weight: float, scale: Scale = ONES) -> None:
        """In one pass over `out`."""
        if not payloads or not out.numel():
            out.zero_()
            return
        norms, coded = self.layout.split_rows(payloads, out.numel())
        self._unpack(norms, coded, out, weight, False, scale)

    def _unpack(
        self, norms: torch.Tensor, coded: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale
    ) -> None:
        core, kernels = self.core, self._kernels(out.device)
        kernels.unpack_dequantize(coded, norms, core.grid, core.bucket_size, out, weight, accumulate, *given(scale))


@dataclass(frozen=True, slots=True)
class Rotating(Body):
    """One kernel rotates, rounds and packs, one unpacks, rotates back and adds."""

    core: Rotated

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        core, n = self.core, v.numel()
        data = self.layout.new(n, v.device, out, key=stream.key)
        rows = (core.bits, core.bucket_size, stream.key, *self.layout.split(data, n))
        self._kernels(v.device).rotate_pack(v, *rows, *given(scale))
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
        core, (scales, coded) = self.core, self.layout.split_rows(payloads, out.numel())
        rows = (coded, scales, self.layout.keys(payloads), core.bits, core.bucket_size)
        self._kernels(out.device).unpack_rotate(*rows, out, weight, accumulate, *given(scale))


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
    """One kernel rounds and codes, one decodes, subtracts the dither and adds. On a GPU, both run on the host."""

    core: Dithered
    coder: TableRANS

    def write(self, v: torch.Tensor, stream: Stream, out: torch.Tensor | None, scale: Scale = ONES) -> torch.Tensor:
        layout, n = self.layout, v.numel()
        row = v if self._here(v.device) else v.cpu()
        kernels = cast(DitherBackend, self._kernels(row.device))
        steps, shape = self.core.steps(row, self.backend, *given(scale))
        made = self.coder.encode_values(row, steps, self.core.bucket_size, stream.key, shape, kernels)
        data = layout.new(n, row.device, None, made.numel(), stream.key)
        norms, coded = layout.split(data, n)
        norms.copy_(steps)
        copy_bytes(coded, made)
        return data.to(v.device)

    def read(self, data: torch.Tensor, out: torch.Tensor, weight: float, accumulate: bool, scale: Scale = ONES) -> None:
        here = self._here(out.device)
        row, target = (data, out) if here else (data.cpu(), out.cpu())
        steps, coded = self.layout.split(row, out.numel())
        key, kernels = Payload(row).header.stream_key, cast(DitherBackend, self._kernels(row.device))
        options = (self.core.bucket_size, key, target, weight, accumulate)
        self.coder.decode_values(coded, steps, *options, kernels, *given(scale))
        if not here:
            out.copy_(target)

    def _here(self, device: torch.device) -> bool:
        """Whether the backend has these kernels for tensors on `device`."""
        return hasattr(self._kernels(device), "dither_encode")


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
