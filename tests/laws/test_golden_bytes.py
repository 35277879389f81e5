"""Law 10: the wire format of each codec is pinned by stored examples.

`python tests/laws/test_golden_bytes.py` writes the examples anew, and the numbers of quantizers and coders on the page
about the format: to add those of a new member, or together with a new wire version.
"""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from members import ENDS, FIXED_WIDTH, STATELESS, SUBTRACTING, with_bucket

from laconic import Codec, FixedWidth, Payload, Stream, TableRANS
from laconic.codec import HEADER_BYTES, VERSION, codec
from laconic.coders import CODERS
from laconic.quantizers import SCHEMES

GOLDEN = Path(__file__).parent / "golden_bytes.json"
VERSION_1 = json.loads(GOLDEN.with_name("version_1_bodies.json").read_text())
PAGE = Path(__file__).parents[2] / "docs" / "wire-format.md"
STREAM = Stream(seed=1, rank=2, step=3, tensor="weight")


def codecs() -> dict[str, Codec]:
    """Every quantizer at fixed width, and the first and last configuration of each scheme with every coder."""
    made = [Codec(quantizer) for quantizer in [*STATELESS, *SUBTRACTING]]
    coded = [quantizer for quantizer in ENDS if quantizer in FIXED_WIDTH]
    made += [Codec(quantizer, coder()) for quantizer in coded for coder in CODERS.values() if coder is not FixedWidth]
    made = [replace(member, quantizer=with_bucket(member.quantizer, 40)) for member in made]
    return {f"{member.quantizer} {member.coder.name}": member for member in made}


CODECS = codecs()
WITH_ZEROS = {f"{name}, zeros": member for name, member in CODECS.items() if name.endswith(" tables")}
"""With 1024 zeros in the middle of the example: a cell of 512 zeros has a code of its own."""


def example() -> torch.Tensor:
    """100 values that need no random generator: a damped wave, some zeros, both signs, exact in float32."""
    i = torch.arange(100)
    v = ((i * 37) % 101 - 50).float() * torch.tensor(0.5) ** (i % 7).float()
    v[::9] = 0.0
    return v


def encoded(name: str, member: Codec) -> bytes:
    v = example()
    return member.encode(torch.cat([v, torch.zeros(1024), v]) if name in WITH_ZEROS else v, STREAM).to_bytes()


def with_numbers(page: str) -> str:
    """The page with the numbers of all quantizers and coders in its table of the header."""
    for field, members in (("quantizer", SCHEMES), ("coder", (*CODERS.values(), TableRANS))):
        numbers = ", ".join(f"{member.wire_id} {member.name}" for member in members)
        page = re.sub(rf"\| {field}: .* \|", f"| {field}: {numbers} |", page)
    return page


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", CODECS | WITH_ZEROS)
def test_bytes_are_the_stored_ones(name, backend):
    stored = json.loads(GOLDEN.read_text())
    assert stored["version"] == VERSION
    member, data = replace((CODECS | WITH_ZEROS)[name], backend=backend), bytes.fromhex(stored["payloads"][name])
    assert encoded(name, member) == data
    assert torch.isfinite(member.decode(Payload.from_bytes(data))).all()


@pytest.mark.parametrize(("scheme", "coder", "options", "digest"), VERSION_1)
def test_bodies_are_those_of_version_1(scheme, coder, options, digest):
    """Version 2 changed the header, and RANS up to 4 bits; the rest as its digests in version 1's examples say."""
    body = encoded("", codec(scheme, coder, **options))[HEADER_BYTES:]
    assert hashlib.blake2b(body, digest_size=8).hexdigest() == digest


def test_every_codec_is_stored():
    assert set(json.loads(GOLDEN.read_text())["payloads"]) == set(CODECS | WITH_ZEROS)


def test_numbers_are_nobody_elses_and_on_the_page():
    for members in (SCHEMES, CODERS.values()):
        assert len({member.wire_id for member in members}) == len(members)
    assert with_numbers(PAGE.read_text()) == PAGE.read_text()


if __name__ == "__main__":
    payloads = {name: encoded(name, member).hex() for name, member in (CODECS | WITH_ZEROS).items()}
    GOLDEN.write_text(json.dumps({"version": VERSION, "payloads": payloads}, indent=1) + "\n")
    PAGE.write_text(with_numbers(PAGE.read_text()))
