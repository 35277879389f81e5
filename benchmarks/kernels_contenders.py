"""Contenders of the suite `kernels`: copies, and the kernels of every quantizer and coder, each with a check."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from laconic.bench.protocol import WrongResult
from laconic.codec import Codec, Payload
from laconic.coders import RANS, Shape
from laconic.kernels import Stream, select
from laconic.kernels.layout import n_buckets, packed_bytes
from laconic.options import check_names
from laconic.quantizers import NUQSGD, QSGD, Bucketed, Dithered, QSGDInf, Rotated, Sign

NAMES = ("nuqsgd", "qsgd", "qsgdinf", "sign", "rotated", "dithered", "rans")
Call = Callable[[], object]
PAYLOADS = (1, 4, 8)
COPY, PACK, SUM = "copy", "quantize + pack", "unpack + dequantize + sum"
CODE, DECODE_SUM = "quantize + code", "decode + dequantize + sum"
ENCODE, DECODE = "encode symbols", "decode symbols"
CHECKED_BUCKETS = 16
KEY = Stream(seed=1).key
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Contender:
    """A call to time: its label and operation, the bytes it must move, and a check of its result.

    waits  whether the call synchronises with the host, so that it cannot be captured in a graph
    """

    label: str
    config: str
    operation: str
    n_payloads: int
    dtype: str
    n_bytes: int
    call: Call
    check: Call
    waits: bool = False


def members(bucket_size: int, only: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Label and quantizer of each contender whose name or label is in `only`: all widths, narrow before wide."""
    found: list[Any] = [kind(bits=bits, bucket_size=bucket_size) for bits in range(2, 9) for kind in (NUQSGD, QSGD)]
    found += [QSGDInf(bits=bits, bucket_size=bucket_size) for bits in (2, 4, 8)]
    found += [Rotated(bits=bits) for bits in (2, 3, 4)]
    named = {f"{q.name}-{q.bits}": q for q in found}
    for bits, p in ((3, 0.7), (4, 0.7), (6, 0.8), (8, 0.9)):
        named[f"nuqsgd-{bits} p={p}"] = NUQSGD(bits=bits, bucket_size=bucket_size, p=p)
    named["sign"] = Sign(bucket_size=bucket_size)
    named |= {f"dithered-{error:g}": Dithered(error=error) for error in (1.0, 0.25, 0.1)}
    named["rans on nuqsgd-4"] = None
    check_names(only, (*NAMES, *named), "scheme")
    for label, q in named.items():
        if label in only or ("rans" if q is None else q.name) in only:
            yield label, q


def n_contenders(bucket_size: int, only: Sequence[str]) -> int:
    """Number of rows, including copies."""
    return 4 + sum(2 if q is None else 1 + len(PAYLOADS) for _, q in members(bucket_size, only))


def contenders(bucket_size: int, only: Sequence[str], v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Copies, then the operations of each member."""
    yield from copies(v, out)
    for label, q in members(bucket_size, only):
        if q is None:
            yield from symbols_coded(label, v, bucket_size)
        elif isinstance(q, Dithered):
            yield from dithered(label, q, v, out)
        else:
            yield from packed(label, q, v, out)


def copies(v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """The driver's copy and our kernel's in float32, the driver's in bfloat16, and the cast between the two."""
    n = v.numel()
    half, other = v.bfloat16(), torch.empty(n, dtype=torch.bfloat16, device=v.device)
    runs = {
        ("copy_ fp32", "float32", 8 * n): (out, v),
        ("copy_ bf16", "bfloat16", 4 * n): (other, half),
        ("cast bf16", "float32", 6 * n): (other, v),
    }
    same = partial(check_equal, out, v, "kernel copy fp32")
    yield Contender("kernel copy fp32", "one Triton kernel", COPY, 0, "float32", 8 * n, kernel_copy(v, out), same)
    for (label, dtype, n_bytes), (target, source) in runs.items():
        call = partial(target.copy_, source)
        yield Contender(
            label, "preallocated", COPY, 0, dtype, n_bytes, call, partial(check_equal, target, source, label)
        )


def kernel_copy(v: torch.Tensor, out: torch.Tensor) -> Call:
    """Our own kernel's copy."""
    return partial(select("gpu", v.device).scale, v, out, 1.0, False)


def packed(label: str, q: Any, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Round and pack; then unpack and add up 1, 4 and 8 payloads of different ranks."""
    n, size = v.numel(), q.bucket_size
    data = torch.empty(max(PAYLOADS), -(-packed_bytes(n, q.bits, size) // 16) * 16, dtype=torch.uint8, device=v.device)
    data = data[:, : packed_bytes(n, q.bits, size)]
    norms = torch.empty(max(PAYLOADS), n_buckets(n, size), dtype=torch.float32, device=v.device)
    for p in range(max(PAYLOADS)):
        packing(q, v, KEY + p, norms[p], data[p])()
    n_bytes = data.shape[1] + 4 * norms.shape[1]
    shared: dict[str, Any] = {"label": label, "config": repr(q), "dtype": "float32"}
    call, check = packing(q, v, KEY, norms[0], data[0]), partial(check_pack, label, q, v, norms[0], data[0])
    yield Contender(operation=PACK, n_payloads=0, n_bytes=4 * n + n_bytes, call=call, check=check, **shared)
    for count in PAYLOADS:
        rows = (data[:count], norms[:count])
        yield Contender(
            operation=SUM,
            n_payloads=count,
            n_bytes=4 * n + count * n_bytes,
            call=adding(q, *rows, out),
            check=partial(check_sum, label, q, *rows, out),
            **shared,
        )


def packing(q: Any, v: torch.Tensor, key: int, norms: torch.Tensor, data: torch.Tensor) -> Call:
    """The call that rounds and packs."""
    kernels = select("auto", v.device)
    if isinstance(q, Rotated):
        return partial(kernels.rotate_pack, v, q.bits, q.bucket_size, key, norms, data)
    return partial(kernels.quantize_pack, v, q.norm, q.grid, q.bucket_size, key, norms, data)


def adding(q: Any, data: torch.Tensor, norms: torch.Tensor, out: torch.Tensor) -> Call:
    """The call that unpacks and averages payloads with the keys KEY, KEY + 1, …"""
    kernels, weight = select("auto", out.device), 1 / len(data)
    if isinstance(q, Rotated):
        keys = np.array([[KEY + p] for p in range(len(data))], np.uint64).view(np.int32)
        rows = (data, norms, torch.from_numpy(keys).to(out.device))
        return partial(kernels.unpack_rotate, *rows, q.bits, q.bucket_size, out, weight, False)
    return partial(kernels.unpack_dequantize, data, norms, q.grid, q.bucket_size, out, weight, False)


def check_pack(label: str, q: Any, v: torch.Tensor, norms: torch.Tensor, data: torch.Tensor) -> None:
    """Check that the first buckets' bytes equal the CPU's, and the norms or scales."""
    n = min(v.numel(), CHECKED_BUCKETS * q.bucket_size)
    some, theirs = v[:n].to(CPU), norms[: n_buckets(n, q.bucket_size)].to(CPU)
    ours, expected = torch.empty(packed_bytes(n, q.bits, q.bucket_size), dtype=torch.uint8), torch.empty_like(theirs)
    packing(q, some, KEY, expected, ours)()
    if not torch.allclose(theirs, expected, rtol=2.0**-22):
        raise WrongResult(f"{label}: norms differ from the CPU's")
    if isinstance(q, Bucketed):
        reference = select("reference", CPU)
        ours = reference.pack(reference.quantize(some, theirs, q.grid, q.bucket_size, KEY), q.bits, q.bucket_size)
    if not torch.equal(data[: ours.numel()].to(CPU), ours):
        raise WrongResult(f"{label}: packed symbols differ from the CPU's")


def check_sum(label: str, q: Any, data: torch.Tensor, norms: torch.Tensor, out: torch.Tensor) -> None:
    """Check that the first buckets' sums equal the CPU's."""
    n = min(out.numel(), CHECKED_BUCKETS * q.bucket_size)
    rows = data[:, : packed_bytes(n, q.bits, q.bucket_size)].to(CPU)
    ours = torch.empty(n)
    adding(q, rows, norms[:, : n_buckets(n, q.bucket_size)].to(CPU), ours)()
    check_equal(out[:n].to(CPU), ours, label)


def check_equal(ours: torch.Tensor, theirs: torch.Tensor, label: str) -> None:
    """Raise `WrongResult` unless both tensors are equal value by value."""
    if not torch.equal(ours, theirs.to(ours.dtype)):
        raise WrongResult(f"{label}: the values differ from the CPU's")


def dithered(label: str, q: Dithered, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Round and code into a slot; then decode, subtract the dither and add up 1, 4 and 8 payloads."""
    codec, n = Codec(q), v.numel()
    slot = torch.empty(-(-codec.max_bytes(n) // 64) * 64, dtype=torch.uint8, device=v.device)
    codec.encode_slot(v, Stream(), None, slot)
    n_bytes = int(codec.layout.slot_lengths(slot[None], n))
    slots = torch.empty(max(PAYLOADS), -(-(n_bytes + n_bytes // 50) // 64) * 64, dtype=torch.uint8, device=v.device)
    for rank, row in enumerate(slots):
        codec.encode_slot(v, Stream(rank=rank), None, row)
    verdict = torch.zeros(1, dtype=torch.int32, device=v.device)
    shared: dict[str, Any] = {"label": label, "config": repr(q), "dtype": "float32"}
    call, check = partial(codec.encode_slot, v, Stream(), None, slot), partial(check_bytes, label, codec, v, slot)
    yield Contender(operation=CODE, n_payloads=0, n_bytes=4 * n + n_bytes, call=call, check=check, **shared)
    for count in PAYLOADS:
        yield Contender(
            operation=DECODE_SUM,
            n_payloads=count,
            n_bytes=4 * n + count * n_bytes,
            call=partial(codec.decode_slots, slots[:count], out, 1 / count, verdict),
            check=partial(check_error, label, float(q.error or 0) / count, v, out, verdict),
            **shared,
        )


def check_bytes(label: str, codec: Codec, v: torch.Tensor, slot: torch.Tensor) -> None:
    """Check that the payload of the first values equals the CPU's."""
    some = v[: 2**17]
    there, here = codec.encode(some, Stream()), codec.encode(some.to(CPU), Stream())
    if there.to_bytes() != here.to_bytes():
        raise WrongResult(f"{label}: the payload differs from the CPU's")
    Payload(slot[: int(codec.layout.slot_lengths(slot[None], v.numel()))]).header  # noqa: B018 (its checksum is right)


def check_error(label: str, error: float, v: torch.Tensor, out: torch.Tensor, verdict: torch.Tensor) -> None:
    """Check that the error of the average is the requested one over the number of payloads."""
    found = float((out - v).square().sum() / v.square().sum())
    if int(verdict) or abs(found - error) > 0.05 * error:
        raise WrongResult(f"{label}: the error is {found:.3g} instead of {error:.3g}, {int(verdict)} payloads corrupt")


def symbols_coded(label: str, v: torch.Tensor, bucket_size: int) -> Iterator[Contender]:
    """RANS encode and decode of 4-bit symbols; waits for the host, which computes the table of frequencies."""
    coder, kernels, shape = RANS(), select("auto", v.device), Shape(v.numel(), 4, bucket_size)
    symbols = NUQSGD(bits=4, bucket_size=bucket_size).quantize(v, Stream()).symbols
    data, n = coder.encode(symbols, shape, kernels), v.numel()
    made: dict[str, Any] = {
        "label": label,
        "config": repr(coder),
        "dtype": "uint8",
        "n_payloads": 0,
        "n_bytes": n + data.numel(),
    }
    back = partial(coder.decode, data, shape, kernels)

    def check() -> None:
        check_equal(coder.decode(coder.encode(symbols, shape, kernels), shape, kernels), symbols, label)

    encode = partial(coder.encode, symbols, shape, kernels)
    yield Contender(operation=ENCODE, call=encode, check=check, waits=True, **made)
    yield Contender(operation=DECODE, call=back, check=check, waits=True, **made)
