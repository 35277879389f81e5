"""A codec: one quantizer and one coder, values to payload and back."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from laconic import coders, quantizers
from laconic.codec.bodies import Body, EntropyCodedDither, body_for
from laconic.codec.layout import MAX_VALUES, Layout
from laconic.codec.payload import Payload
from laconic.coders import Coder, FixedWidth, SymbolCoder, TableRANS
from laconic.kernels import BACKENDS, ONES, Scale, Stream
from laconic.options import check_int
from laconic.quantizers import Bucketed, Dithered, Quantizer
from laconic.quantizers.base import flat
from laconic.quantizers.registry import SCHEMES


@dataclass(frozen=True, slots=True)
class Codec:
    """One quantizer and one coder.

    quantizer  the lossy part: `NUQSGD`, `QSGD`, `QSGDInf`, `ErrorFeedback(Sign())`, `Rotated`, `Dithered`,
               `Identity`
    coder      how the symbols become bytes: `FixedWidth` (default), `Elias`, `Huffman`, `RANS`;
               for `Dithered`, `TableRANS`
    backend    "auto", or a kernel backend by name, which then never falls back
    checksum   whether payloads carry a CRC-32 of their body, and those without one are refused: for files, and for
               links that do not check data. The host computes it, so it waits for payloads on a GPU and copies them.

    `layout` holds the positions of header, norms and symbols in its payloads.

    >>> import torch, laconic
    >>> codec = Codec(laconic.NUQSGD(bits=4), laconic.RANS())
    >>> v = torch.randn(10000)
    >>> payload = codec.encode(v, laconic.Stream(seed=1, step=7))
    >>> codec.decode(payload).shape
    torch.Size([10000])
    """

    quantizer: Quantizer
    coder: Coder = field(default=None)  # type: ignore[assignment]
    backend: str = "auto"
    checksum: bool = False
    layout: Layout = field(init=False, compare=False, repr=False)
    _body: Body = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.quantizer, Quantizer):
            raise TypeError(f"quantizer must be one such as NUQSGD(bits=4), got {self.quantizer!r}")
        core = self.quantizer.core
        given: object = self.coder
        if given is None:
            object.__setattr__(self, "coder", TableRANS() if isinstance(core, Dithered) else FixedWidth())
        if not isinstance(self.coder, Coder):
            raise TypeError(f"coder must be one such as FixedWidth() or RANS(), got {self.coder!r}")
        if isinstance(self.coder, SymbolCoder) and core.symbol_bits > self.coder.max_bits:
            raise ValueError(
                f"{self.quantizer} makes symbols of {core.symbol_bits} bits, "
                f"{self.coder.name} codes at most {self.coder.max_bits}; use FixedWidth()"
            )
        for part in (core, self.coder):
            check_int("wire_id", part.wire_id, 0, 255, owner=part.name)
        if self.backend not in BACKENDS:
            raise ValueError(f"unknown backend {self.backend!r}; choose one of {', '.join(BACKENDS)}")
        if not isinstance(self.checksum, bool):
            raise TypeError(f"checksum must be True or False, got {self.checksum!r}")
        layout = Layout(core, self.coder, self.checksum)
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "_body", body_for(self.quantizer, layout, self.backend))

    @property
    def fixed_size(self) -> bool:
        """Whether `n` values always take `max_bytes(n)` bytes, so that one collective can carry them."""
        return self.coder.fixed_size

    def max_bytes(self, n: int) -> int:
        """Most bytes a payload of n values can take; exact where `fixed_size`."""
        return self.layout.max_bytes(n)

    def new_memory(self, v: Tensor) -> Tensor:
        """The error memory to pass to each `encode` of values like `v`; empty where the quantizer keeps none."""
        return self.quantizer.new_memory(v)

    def encode(
        self,
        v: Tensor,
        stream: Stream = Stream(),  # noqa: B008
        memory: Tensor | None = None,
        *,
        out: Tensor | None = None,
        scale: Scale = ONES,
    ) -> Payload:
        """Values of any shape to a payload on the same device.

        memory  error memory, updated in place
        out     if given, a row of `max_bytes(n)` uint8 that becomes the payload; only where `fixed_size`
        scale   v (then float32, changed in place) and memory are divided by it first; the memory is multiplied back
        """
        if out is not None and not self.fixed_size:
            raise ValueError(f"out needs a coder of fixed size; the size of {self.coder.name} payloads is not known")
        if not isinstance(stream, Stream):
            raise TypeError(f"stream must be one such as Stream(seed=0, step=7), got {type(stream).__name__}")
        payload = Payload(self._body.encode(flat(v), stream, memory, out, scale))
        if self.checksum:
            payload.write_checksum()
        return payload

    def decode(
        self, payload: Payload, n: int | None = None, *, out: Tensor | None = None, scale: Scale = ONES
    ) -> Tensor:
        """The values (n,) in float32; raises `CorruptPayload` if the payload is invalid.

        n      if given, must be the number of values sent
        out    if given, a contiguous row of float32 that the values are written to; returned
        scale  what the values are multiplied by

        Without n and out, payloads that would decode but that no encoder writes are refused too: a negative norm, a
        sign without a level, bits beyond the last symbol.
        """
        known = n is not None
        n = None if n is None else check_int("n", n, 0, MAX_VALUES)
        if out is None:
            n = self.layout.check(payload, n)
            if not known:
                self._body.require_written(payload.data, n)
            out = torch.empty(n, dtype=torch.float32, device=payload.data.device)
        else:
            if n is not None and isinstance(out, Tensor) and n != out.numel():
                raise ValueError(f"out has room for {out.numel()} values, n says {n}; give one of them, or both alike")
            self._require_for([payload], out)
        fused = self._body.fused(scale, out.device)
        self._body.read(payload.data, out, 1.0, False, *fused)
        if not fused:
            scale.multiply(out)
        return out

    def decode_add(self, payload: Payload, out: Tensor, weight: float = 1.0) -> Tensor:
        """out += weight * values, without a copy of the values. `out` is (n,) float32 and contiguous; returned."""
        self._require_for([payload], out)
        self._body.read(payload.data, out, weight, True)
        return out

    def decode_sum(
        self, payloads: Iterable[Payload], out: Tensor, weight: float = 1.0, *, scale: Scale = ONES
    ) -> Tensor:
        """out = weight * sum of the payloads' values, in one pass over `out`; returned.

        Bit for bit the result of adding them one by one to −0. `out` is (n,) float32 and contiguous, and is
        overwritten. The sum is multiplied by `scale`.
        """
        rows, fused = self._require_for(payloads, out), self._body.fused(scale, out.device)
        self._body.read_sum(rows, out, weight, *fused)
        if not fused:
            scale.multiply(out)
        return out

    def has_slots(self, device: torch.device) -> bool:
        """Whether `encode_slot` and `decode_slots` work on `device`: variable sizes without the host waiting."""
        return not self.checksum and self._body.has_slots(device)

    def encode_slot(
        self, v: Tensor, stream: Stream, memory: Tensor | None, slot: Tensor, *, scale: Scale = ONES
    ) -> None:
        """`encode` into a slot, a row of uint8 on the same device, without waiting for the size.

        The header gives the size, even if the payload is longer than the slot; nothing is written past the slot's end.
        """
        self._dither().encode_slot(flat(v), stream, memory, slot.view(torch.int32), scale)

    def decode_slots(self, slots: Tensor, out: Tensor, weight: float, verdict: Tensor, *, scale: Scale = ONES) -> None:
        """out = weight * sum of the values in slots (P, n_bytes) uint8, whose rows may be strided, without waiting.

        verdict  (1,) int32, incremented for each row that is corrupt or did not fit; `out` is then undefined
        """
        good = self._dither().read_slots(slots.view(torch.int32), out, weight, False)
        verdict += (good == 0).any(1).sum()
        scale.multiply(out)

    def _dither(self) -> EntropyCodedDither:
        if not isinstance(self._body, EntropyCodedDither):
            raise TypeError(f"{self} has no slots; ask has_slots(device) first")
        return self._body

    def _require_for(self, payloads: Iterable[Payload], out: Tensor) -> list[Tensor]:
        """The payloads' bytes, if `out` is a row of float32 and each holds as many values, on the same device."""
        if not isinstance(out, Tensor):
            raise TypeError(f"out must be a torch.Tensor, got {type(out).__name__}")
        if out.dtype != torch.float32 or out.dim() != 1 or not out.is_contiguous():
            raise ValueError(f"out must be a contiguous row of float32, got {out.dtype} of shape {tuple(out.shape)}")
        if out.requires_grad:
            raise ValueError("out must not require grad, for decoding has no gradient; pass out.detach()")
        rows = []
        for payload in payloads:
            self.layout.check(payload, out.numel())
            rows.append(payload.data)
            if rows[-1].device != out.device:
                where = f"the payload is on {rows[-1].device}, out on {out.device}"
                raise ValueError(f"{where}; pass Payload(payload.data.to(out.device))")
        return rows


def codec(
    scheme: str, coder: str | None = None, *, backend: str = "auto", checksum: bool = False, **options: Any
) -> Codec:
    """A codec by the names of its scheme and coder; options (`bits`, `bucket_size`, `p`) go to the scheme.

    A name for `make_codec` will do, too; options and a coder given beside it count instead of its own.

    >>> codec("nuqsgd", "rans", bits=4).quantizer
    NUQSGD(bits=4, bucket_size=512, p=0.5)
    >>> codec("nuqsgd-4-rans/8192") == codec("nuqsgd", "rans", bits=4, bucket_size=8192)
    True
    """
    named, own_coder, own = _parsed(scheme) if isinstance(scheme, str) else (scheme, None, {})
    coder = own_coder if coder is None else coder
    chosen: Any = None if coder is None else coders.by_name(coder)
    return Codec(quantizers.by_name(named, **own | options), chosen, backend, checksum)


def codec_for(what: Codec | Quantizer | str) -> Codec:
    """A codec from a codec, a quantizer (with its default coder), or a name for `make_codec`.

    >>> codec_for("bf16").quantizer, codec_for("nuqsgd-4").quantizer
    (Identity(dtype='bf16'), NUQSGD(bits=4, bucket_size=512, p=0.5))
    """
    if isinstance(what, Codec):
        return what
    if isinstance(what, Mapping):
        raise TypeError(f"codec must be one for all, got {what!r}; others by name go to policy=Policy(codecs={{...}})")
    return make_codec(what) if isinstance(what, str) else Codec(what)


_NAME = re.compile(r"((?:ef-)?[a-z]+\d*)(?:-(\d+(?:\.\d+)?)(?:-([a-z]+))?)?(?:/(\d+))?")
EXAMPLES = ("nuqsgd", "nuqsgd-4", "nuqsgd-4/8192", "nuqsgd-4-rans", "dithered-0.3", "rotated-4", "ef-sign", "bf16")
"""Names for `make_codec`."""
BUCKETED = [scheme.name for scheme in SCHEMES if issubclass(scheme, Bucketed)]
"""Schemes that `make_codec` gives its bucket size; others keep their own default."""


def make_codec(name: str, bucket_size: int | None = None) -> Codec:
    """A codec from its name, `SCHEME[-BITS[-CODER]][/BUCKET_SIZE]`; dithered has its error in the place of BITS.

    bucket_size  of a name that has none; by default the scheme's own

    >>> make_codec("nuqsgd-4-rans").quantizer, make_codec("nuqsgd-4/8192").quantizer.bucket_size
    (NUQSGD(bits=4, bucket_size=512, p=0.5), 8192)
    >>> make_codec("dithered-0.3").quantizer, make_codec("dithered-1/512").quantizer
    (Dithered(error=0.3), Dithered(error=1.0, bucket_size=512))
    """
    scheme, coder, options = _parsed(name)
    if bucket_size and scheme.removeprefix("ef-") in BUCKETED:
        options = {"bucket_size": bucket_size} | options
    return codec(scheme, coder, **options)


def _parsed(name: str) -> tuple[str, str | None, dict[str, Any]]:
    """Scheme, coder if named, and options of a name for `make_codec`."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"unknown codec {name!r}; names are such as {', '.join(EXAMPLES)}")
    scheme, size, coder, bucket_size = found.groups()
    options: dict[str, Any] = {"bucket_size": int(bucket_size)} if bucket_size else {}
    if size:
        dithered = scheme.removeprefix("ef-") == Dithered.name
        options |= {"error": float(size)} if dithered else {"bits": float(size) if "." in size else int(size)}
    return scheme, coder, options
