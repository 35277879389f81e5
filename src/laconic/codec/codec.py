"""A codec: one quantizer and one coder, values to payload and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from laconic.checks import check_int
from laconic.codec.frame import Frame
from laconic.codec.header import HEADER_BYTES, Header, to_float32
from laconic.codec.payload import Payload, side_by_side
from laconic.coders import Coder, FixedWidth, Shape
from laconic.coders.blocks import aligned
from laconic.errors import CorruptPayload
from laconic.kernels import BACKENDS, Backend, FeedbackBackend, Stream
from laconic.kernels import select as _select
from laconic.quantizers import Bucketed, Identity, Quantized, Quantizer
from laconic.quantizers.base import flat

NORM_BYTES = 4
MAX_VALUES = 2**48
"""That a payload may be said to hold; the fields of its header have room for more."""
MAX_FRAMES = 1024
"""That a codec remembers; it meets as many sizes as a model has groups and chunks."""
select = lru_cache(maxsize=64)(_select)
"""The backend by name and device; asked for with every payload, and finding a module takes a while."""


@lru_cache(maxsize=64)
def feedback_kernels(name: str, device: torch.device) -> FeedbackBackend | None:
    """The same backend where it updates an error memory in the pass that rounds and packs, otherwise None."""
    backend = _select(name, device)
    return backend if isinstance(backend, FeedbackBackend) else None


@dataclass(frozen=True, slots=True)
class Codec:
    """One quantizer and one coder.

    quantizer  what is lost: `NUQSGD`, `QSGD`, `QSGDInf`, `ErrorFeedback(Sign())`, `Identity`
    coder      how the symbols become bytes: `FixedWidth` (default), `Elias`, `Huffman`, `RANS`
    backend    "auto", or a kernel backend by name, which then never falls back

    >>> import torch, laconic
    >>> codec = Codec(laconic.NUQSGD(bits=4), laconic.RANS())
    >>> v = torch.randn(10000)
    >>> payload = codec.encode(v, laconic.Stream(seed=1, step=7))
    >>> codec.decode(payload).shape
    torch.Size([10000])
    """

    quantizer: Quantizer
    coder: Coder = field(default_factory=FixedWidth)
    backend: str = "auto"
    _fused: bool = field(init=False, compare=False, repr=False, default=False)
    _remembers: bool = field(init=False, compare=False, repr=False, default=False)
    _frames: dict[int, Frame] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.quantizer, Quantizer):
            raise TypeError(f"quantizer must be one such as NUQSGD(bits=4), got {self.quantizer!r}")
        if not isinstance(self.coder, Coder):
            raise TypeError(f"coder must be one such as FixedWidth() or RANS(), got {self.coder!r}")
        if self.quantizer.bits > self.coder.max_bits:
            raise ValueError(
                f"{self.quantizer} makes symbols of {self.quantizer.bits} bits, "
                f"{self.coder.name} codes at most {self.coder.max_bits}; use FixedWidth()"
            )
        for part in (self.quantizer.core, self.coder):
            check_int("wire_id", part.wire_id, 0, 255, owner=part.name)
        if self.backend not in BACKENDS:
            raise ValueError(f"unknown backend {self.backend!r}; choose one of {', '.join(BACKENDS)}")
        fused = isinstance(self.quantizer.core, Bucketed) and isinstance(self.coder, FixedWidth)
        object.__setattr__(self, "_fused", fused)  # whether one kernel does both quantizer's and coder's work
        object.__setattr__(self, "_remembers", self.quantizer is not self.quantizer.core)

    @property
    def fixed_size(self) -> bool:
        """Whether `n` values always take `max_bytes(n)` bytes, so that one collective can carry them."""
        return self.coder.fixed_size

    def max_bytes(self, n: int) -> int:
        """Most bytes a payload of n values can take; exact where `fixed_size`."""
        if self.fixed_size:
            return self.frame(n).n_bytes
        n = check_int("n", n, 0, MAX_VALUES)
        return HEADER_BYTES + NORM_BYTES * self.quantizer.n_norms(n) + self.coder.max_bytes(self._shape(n))

    def frame(self, n: int) -> Frame:
        """Where things lie in a payload of n values; only where `fixed_size`."""
        found = self._frames.get(n)
        if found is None:
            n = check_int("n", n, 0, MAX_VALUES)
            if len(self._frames) >= MAX_FRAMES:
                self._frames.clear()
            found = self._frames[n] = self._framed(n, self.coder.max_bytes(self._shape(n)))
        return found

    def new_memory(self, v: torch.Tensor) -> torch.Tensor:
        """The error memory to pass to each `encode` of values like `v`; empty where the quantizer keeps none."""
        return self.quantizer.new_memory(v)

    def encode(
        self,
        v: torch.Tensor,
        stream: Stream = Stream(),  # noqa: B008
        memory: torch.Tensor | None = None,
        *,
        out: torch.Tensor | None = None,
    ) -> Payload:
        """Values of any shape to a payload on the same device.

        memory  error memory, updated in place
        out     if given, a row of `max_bytes(n)` uint8 that becomes the payload; only where `fixed_size`
        """
        if out is not None and not self.fixed_size:
            raise ValueError(f"out needs a coder of fixed size; the size of {self.coder.name} payloads is not known")
        if not isinstance(stream, Stream):
            raise TypeError(f"stream must be one such as Stream(seed=0, step=7), got {type(stream).__name__}")
        v = flat(v)
        if self._remembers and self._fused:
            kernels = feedback_kernels(self.backend, v.device)
            if kernels is not None:
                return self._encode_feedback(v, stream, kernels, memory, out)
        v = self.quantizer.recall(v, memory)
        backend = select(self.backend, v.device)
        if self._fused:
            payload = self._encode_fused(v, stream, backend, out)
        elif isinstance(self.quantizer.core, Identity):
            payload = self._encode_raw(v, self.quantizer.core, out)
        else:
            payload = self._encode_in_steps(v, stream, backend, out)
        if self._remembers:
            self._decode_into(payload.data, v, -1.0, accumulate=True)
            self.quantizer.remember(memory, v, self._norms(payload.data, v.numel()))
        return payload

    def decode(self, payload: Payload, n: int | None = None, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """The values (n,) in float32, or `CorruptPayload`.

        n    if given, must be the number of values sent
        out  if given, a contiguous row of float32 that the values are written to; returned
        """
        n = None if n is None else check_int("n", n, 0, MAX_VALUES)
        if out is None:
            n = self._checked(payload, n)
            out = torch.empty(n, dtype=torch.float32, device=payload.data.device)
        else:
            _require_row(out)
            if n is not None and n != out.numel():
                raise ValueError(f"out has room for {out.numel()} values, n says {n}; give one of them, or both alike")
            self._require_for(payload, out)
        self._decode_into(payload.data, out, 1.0, accumulate=False)
        return out

    def decode_add(self, payload: Payload, out: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        """out += weight * values, without a copy of the values. `out` is (n,) float32 and contiguous; returned."""
        _require_row(out)
        self._require_for(payload, out)
        self._decode_into(payload.data, out, weight, accumulate=True)
        return out

    def decode_sum(self, payloads: Iterable[Payload], out: torch.Tensor, weight: float = 1.0) -> torch.Tensor:
        """out = weight * sum of the payloads' values, in one pass over `out`; the same bits as `decode_add` one by one.

        `out` is (n,) float32 and contiguous; what it held is lost. Returned.
        """
        _require_row(out)
        payloads = list(payloads)
        for payload in payloads:
            self._require_for(payload, out)
        if self._fused and payloads and out.numel():
            self._decode_rows(payloads, out, weight)
            return out
        out.zero_()
        for payload in payloads:
            self._decode_into(payload.data, out, weight, accumulate=True)
        return out

    def _shape(self, n: int) -> Shape:
        return Shape(n, self.quantizer.bits, self.quantizer.bucket_size)

    def _norms(self, data: torch.Tensor, n: int) -> torch.Tensor:
        end = HEADER_BYTES + NORM_BYTES * self.quantizer.n_norms(n)
        return data[HEADER_BYTES:end].view(torch.float32)

    def _coded(self, data: torch.Tensor, n: int) -> torch.Tensor:
        return data[HEADER_BYTES + NORM_BYTES * self.quantizer.n_norms(n) :]

    def _header(self, n: int, coded_bytes: int) -> Header:
        core = self.quantizer.core
        p = to_float32(getattr(core, "p", 0.0))
        return Header(core.wire_id, core.bits, self.coder.wire_id, core.bucket_size, p, n, coded_bytes)

    def _framed(self, n: int, coded_bytes: int) -> Frame:
        first_coded = HEADER_BYTES + NORM_BYTES * self.quantizer.n_norms(n)
        return Frame(self._header(n, coded_bytes).to_bytes(), first_coded, first_coded + coded_bytes)

    def _encode_raw(self, v: torch.Tensor, identity: Identity, out: torch.Tensor | None) -> Payload:
        frame = self.frame(v.numel())
        data = frame.new(v.device, out)
        frame.coded(data).view(identity.wire_dtype).copy_(v)
        return Payload(data)

    def _encode_fused(self, v: torch.Tensor, stream: Stream, backend: Backend, out: torch.Tensor | None) -> Payload:
        core: Any = self.quantizer.core
        frame = self.frame(v.numel())
        data = frame.new(v.device, out)
        norms, coded = frame.norms(data), frame.coded(data)
        backend.quantize_pack(v, core.norm, core.grid, core.bucket_size, stream.key, norms, coded)
        return Payload(data)

    def _encode_feedback(
        self,
        v: torch.Tensor,
        stream: Stream,
        kernels: FeedbackBackend,
        memory: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> Payload:
        """`_encode_fused` of v + memory, and the memory updated, in one pass."""
        core: Any = self.quantizer.core
        kept = self.quantizer.require_memory(v, memory)
        frame = self.frame(v.numel())
        data = frame.new(v.device, out)
        norms, coded = frame.norms(data), frame.coded(data)
        kernels.quantize_pack_feedback(v, kept, core.norm, core.grid, core.bucket_size, stream.key, norms, coded)
        return Payload(data)

    def _encode_in_steps(self, v: torch.Tensor, stream: Stream, backend: Backend, out: torch.Tensor | None) -> Payload:
        n = v.numel()
        quantized = self.quantizer.core.quantize(v, stream, backend=self.backend)
        coded = self.coder.encode(quantized.symbols, self._shape(n), backend)
        frame = self._framed(n, coded.numel())
        data = frame.new(v.device, out)
        frame.norms(data).copy_(quantized.norms)
        frame.coded(data).copy_(coded)
        return Payload(data)

    def _decode_into(self, data: torch.Tensor, out: torch.Tensor, weight: float, *, accumulate: bool) -> None:
        """out = weight * values, or out += weight * values."""
        core: Any = self.quantizer.core
        n, backend = out.numel(), select(self.backend, data.device)
        data = aligned(data)
        norms, coded = self._norms(data, n), self._coded(data, n)
        if self._fused:
            backend.unpack_dequantize(coded[None], norms[None], core.grid, core.bucket_size, out, weight, accumulate)
            return
        if isinstance(core, Identity):
            backend.scale(coded.view(core.wire_dtype), out, weight, accumulate)
            return
        symbols = self.coder.decode(coded, self._shape(n), backend)
        values = core.dequantize(Quantized(symbols, norms), weight=weight, backend=self.backend)
        if accumulate:
            out.add_(values)
        else:
            out.copy_(values)

    def _decode_rows(self, payloads: Sequence[Payload], out: torch.Tensor, weight: float) -> None:
        """out = weight * sum of values, in one kernel: the payloads side by side, each at a whole number of words."""
        core: Any = self.quantizer.core
        frame = self.frame(out.numel())
        rows = side_by_side([payload.data for payload in payloads], NORM_BYTES)
        norms = rows.view(torch.float32)[:, HEADER_BYTES // NORM_BYTES : frame.first_coded // NORM_BYTES]
        coded = rows[:, frame.first_coded : frame.n_bytes]
        backend = select(self.backend, out.device)
        backend.unpack_dequantize(coded, norms, core.grid, core.bucket_size, out, weight, False)

    def _require_for(self, payload: Payload, out: torch.Tensor) -> None:
        """The payload holds as many values as `out`, on the same device."""
        self._checked(payload, out.numel())
        device = payload.data.device
        if device != out.device:
            raise ValueError(
                f"the payload is on {device}, out on {out.device}; pass Payload(payload.data.to(out.device))"
            )

    def _checked(self, payload: Payload, n: int | None) -> int:
        """The number of values, after the header was compared with this codec: at once where only one is right."""
        if not isinstance(payload, Payload):
            raise TypeError(f"expected a Payload, got {type(payload).__name__}; pass Payload.from_bytes(data)")
        if n is not None and self.fixed_size:
            frame = self.frame(n)
            if payload.n_bytes == frame.n_bytes and (payload.trusted or payload.header_bytes == frame.header):
                return n
        return self._checked_header(payload, n).n

    def _checked_header(self, payload: Payload, n: int | None) -> Header:
        """The header, after every field was compared with this codec and every length with the data."""
        header = payload.header
        expected = self._header(header.n if n is None else n, header.coded_bytes)
        for name in ("quantizer", "bits", "coder", "bucket_size", "p", "n"):
            got, want = getattr(header, name), getattr(expected, name)
            if got != want:
                raise CorruptPayload(f"payload has {name} {got}, this codec expects {want}")
        coded_bytes = payload.n_bytes - HEADER_BYTES - NORM_BYTES * self.quantizer.n_norms(header.n)
        if coded_bytes != header.coded_bytes:
            raise CorruptPayload(
                f"payload of {payload.n_bytes} bytes has {max(0, coded_bytes)} of symbols, "
                f"its header says {header.coded_bytes}"
            )
        if header.coded_bytes > self.coder.max_bytes(self._shape(header.n)):
            raise CorruptPayload(f"{header.coded_bytes} bytes of symbols are more than {header.n} values can take")
        if self.fixed_size and header.coded_bytes != self.coder.max_bytes(self._shape(header.n)):
            raise CorruptPayload(f"{header.coded_bytes} bytes of symbols do not fit {header.n} values")
        return header


def _require_row(out: torch.Tensor) -> None:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a torch.Tensor, got {type(out).__name__}")
    if out.dtype != torch.float32 or out.dim() != 1 or not out.is_contiguous():
        raise ValueError(f"out must be a contiguous row of float32, got {out.dtype} of shape {tuple(out.shape)}")
    if out.requires_grad:
        raise ValueError("out must not require grad, for decoding has no gradient; pass out.detach()")
