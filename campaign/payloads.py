"""Mutated payloads: every quantizer with every coder, decoded by every backend.

A mutant must decode to a row of float32 of the length in its header, or raise `CorruptPayload`, with every decoding
function, and with the same bits from reference and kernels. If the body has a checksum that is not recomputed, the
mutant must be refused. CPU kernels are also compiled with bounds checks, so that a read out of bounds is an IndexError.
"""

import random
import struct
import tempfile
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from campaign.case import Broken, Case, Trial
from campaign.mutations import Pool, mutate
from laconic import RANS, Codec, CorruptPayload, Payload
from laconic.codec.header import (
    CHECK_AT,
    CHECKED_FROM,
    CHECKSUM,
    CHECKSUM_AT,
    HEADER_BYTES,
    KEY_AT,
    MAGIC,
    SIZE_AT,
    Header,
)
from tests.laws.members import CODERS, ENDS, SUBTRACTING, inputs, with_bucket

FLAGS_AT = 8
SIZES = (0, 1, 7, 64, 65, 300, 1100)
OTHERS_EVERY = 4
"""`decode_add` and `decode_sum` get one in this many mutants."""
REFERENCE_EVERY, REFERENCE_VALUES = 20, 4096
"""The reference, which is slow, decodes one in REFERENCE_EVERY mutants, of at most REFERENCE_VALUES values. Mutants for
a GPU are all decoded by CPU kernels, too."""


def members(backend: str) -> list[Codec]:
    """Every quantizer at its extreme settings with every coder that suits it, half of them with a checksum. On a GPU,
    where kernels are compiled for each number of bits, only one of each kind."""
    kinds = [*ENDS, *SUBTRACTING] if backend == "cpu" else [*{type(one): one for one in ENDS}.values()]
    quantizers = [with_bucket(one, 64) for one in kinds]
    made: list[Codec] = []
    for quantizer in quantizers:
        for coder in (None, *CODERS):
            try:
                made.append(Codec(quantizer, coder))
            except (TypeError, ValueError):  # not every coder takes every quantizer's symbols
                continue
    unique = list(dict.fromkeys(made))
    return [replace(member, checksum=checked) for member in unique for checked in (False, True)]


def seal(data: bytes) -> bytes:
    """The same bytes with recomputed checksums."""
    if len(data) < HEADER_BYTES:
        return data
    made = bytearray(data)
    made[HEADER_BYTES - 8 : HEADER_BYTES] = bytes(8)
    checksum = zlib.crc32(made[CHECKED_FROM:]) if made[FLAGS_AT] & CHECKSUM else 0
    struct.pack_into("<I", made, CHECKSUM_AT, checksum)
    struct.pack_into("<I", made, CHECK_AT, zlib.crc32(made[:CHECK_AT]))
    return bytes(made)


def outcome(member: Codec, data: bytes, device: str, how: str) -> tuple[str, torch.Tensor | None]:
    """The outcome of decoding in words, and the values on the CPU."""
    payload = Payload(Payload.from_bytes(data).data.to(device))
    try:
        if how == "decode":
            found = member.decode(payload)
        else:
            n = Header.from_bytes(data).n
            if n > 2**22:
                return "refused", None  # skipped: it would allocate too much
            room = torch.zeros(n, device=device)
            found = member.decode_add(payload, room) if how == "add" else member.decode_sum([payload], room)
    except CorruptPayload as error:
        return f"refused: {error}", None
    if found.dtype != torch.float32 or found.shape != (Header.from_bytes(data).n,):
        raise Broken(f"decoded to {found.dtype} of shape {tuple(found.shape)}")
    return "decoded", found.cpu()


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Whether both were refused, or have the same bits; all NaN are equal."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(((a.view(torch.int32) == b.view(torch.int32)) | (a.isnan() & b.isnan())).all())


def mutant(data: bytes, rng: random.Random, *, fixed_size: bool) -> bytes:
    """Mutate a payload's header, body or both; in most mutants the header has the right size."""
    head, body = data[:HEADER_BYTES], data[HEADER_BYTES:]
    part = rng.random()
    if part < 0.05:
        return mutate(data, rng)
    if part < 0.15:
        head = mutate(head, rng)
    if part > 0.1:
        body = mutate(body, rng)
    if fixed_size and rng.random() < 0.8:
        body = (body + bytes(len(data)))[: len(data) - HEADER_BYTES]
    if len(head) == HEADER_BYTES and rng.random() < 0.9:
        size = int.from_bytes(head[SIZE_AT:KEY_AT], "little") + len(head) + len(body) - len(data)
        head = head[:SIZE_AT] + (size % 2**64).to_bytes(8, "little") + head[KEY_AT:]
    return head + body


def prepare(backend: str) -> Trial:
    """Encode some values with every member; a trial mutates one of the payloads and decodes it."""
    torch.set_num_threads(1)
    device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
    RANS.gpu_from = 0  # so that the GPU's kernels meet short payloads, too
    table = [replace(member, backend=backend) for member in members(backend)]
    values = [v for n in SIZES for name, v in inputs(n).items() if n > 64 or name in ("normal", "zeros")]
    pools, good = [], []  # good: valid payloads, which a mutant of a mutant may restore
    for member in table:
        own = {replace(member, backend="cpu").encode(v).to_bytes(): None for v in values}
        pools.append(Pool(list(own)))
        good.append({*own})
        for how in ("decode", "add", "sum") if backend == "cpu" else ():  # compile what a trial may need
            outcome(member, next(reversed(own)), device, how)

    def trial(rng: random.Random) -> str:
        chosen = rng.randrange(len(table))
        member, pool = table[chosen], pools[chosen]
        data = mutant(pool.draw(rng), rng, fixed_size=member.fixed_size)
        sealed = rng.random() < 0.8
        data = seal(data) if sealed else data
        said, found = outcome(member, data, device, "decode")
        if member.checksum and not sealed and found is not None and data not in good[chosen]:
            raise Broken(f"{member}: wrong values behind a checksum: {data[:300].hex()}")
        if len(data) > HEADER_BYTES and data[: len(MAGIC)] == MAGIC and not said.startswith("refused: payload"):
            pool.learn(data, said)
            if found is not None:
                good[chosen].add(data)
        if rng.randrange(OTHERS_EVERY) == 0:
            (added, one), (summed, other) = (outcome(member, data, device, how) for how in ("add", "sum"))
            if not _equal(one, other) or (found is not None and not _equal(found, one)):
                raise Broken(f"{member}: {said}, added {added}, summed {summed}: {data[:300].hex()}")
        if backend != "cpu":
            _compare(replace(member, backend="cpu"), data, said, found)
        elif rng.randrange(REFERENCE_EVERY) == 0 and (found is None or found.numel() <= REFERENCE_VALUES):
            _compare(replace(member, backend="reference"), data, said, found)
        return said.partition(":")[0]

    return trial


def _equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Whether both are numerically equal: -0 added to 0 is 0."""
    return same(None if a is None else a + 0.0, None if b is None else b + 0.0)


def _compare(member: Codec, data: bytes, said: str, found: torch.Tensor | None) -> None:
    """Check that the same codec on another backend agrees."""
    try:
        if Header.from_bytes(data).n > REFERENCE_VALUES:
            return
    except CorruptPayload:
        return
    specified, expected = outcome(member, data, "cpu", "decode")
    if not same(found, expected):
        raise Broken(f"{said}, and by {member} {specified}: {data[:300].hex()}")


def needs_cuda() -> None:
    """Raise `Broken` without a GPU."""
    if not torch.cuda.is_available():
        raise Broken("needs a CUDA GPU")


CHECKED = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(Path(tempfile.gettempdir()) / "laconic-campaign-kernels")}
CPU = partial(prepare, "cpu")
CASES = [
    Case("payloads, CPU with bounds checks", 50_000, 2_500_000, CPU, 250_000, 60.0, memory=2**30, env=CHECKED),
    Case("payloads, CPU", 50_000, 2_500_000, CPU, 250_000, 60.0, memory=2**30),
    Case("payloads, GPU", 20_000, 500_000, partial(prepare, "gpu"), 50_000, device="cuda", needs=needs_cuda),
]
