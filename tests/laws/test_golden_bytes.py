"""Law 10: the wire format of each codec is pinned by stored examples.

`python tests/laws/test_golden_bytes.py` writes the examples anew; do that only together with a new wire version.
"""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from laconic import Codec, Payload, Stream
from laconic.codec import HEADER_BYTES, VERSION, codec
from laconic.coders.names import CODERS

GOLDEN = Path(__file__).parent / "golden_bytes.json"
VERSION_1 = GOLDEN.with_name("version_1_bodies.json")
STREAM = Stream(seed=1, rank=2, step=3, tensor="weight")

SCHEMES = {
    "nuqsgd-4": ("nuqsgd", {"bits": 4}),
    "nuqsgd-3": ("nuqsgd", {"bits": 3}),
    "nuqsgd-4 p=0.7": ("nuqsgd", {"bits": 4, "p": 0.7}),
    "qsgd-2": ("qsgd", {"bits": 2}),
    "qsgdinf-8": ("qsgdinf", {"bits": 8}),
    "sign": ("sign", {}),
}
CODECS = {
    f"{scheme} {coder}": codec(name, coder, bucket_size=40, **options)
    for scheme, (name, options) in SCHEMES.items()
    for coder in CODERS
} | {"fp32 fixed": codec("fp32"), "bf16 fixed": codec("bf16")}


def example() -> torch.Tensor:
    """100 values that need no random generator: a damped wave, some zeros, both signs, exact in float32."""
    i = torch.arange(100)
    v = ((i * 37) % 101 - 50).float() * torch.tensor(0.5) ** (i % 7).float()
    v[::9] = 0.0
    return v


def encoded(codec: Codec) -> str:
    return codec.encode(example(), STREAM).to_bytes().hex()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", CODECS)
def test_bytes_are_the_stored_ones(name, backend):
    stored = json.loads(GOLDEN.read_text())
    assert stored["version"] == VERSION
    member = CODECS[name]
    member = Codec(member.quantizer, member.coder, backend)
    assert encoded(member) == stored["payloads"][name]
    payload = Payload.from_bytes(bytes.fromhex(stored["payloads"][name]))
    assert torch.isfinite(member.decode(payload)).all()


@pytest.mark.parametrize("name", CODECS)
def test_bodies_are_those_of_version_1(name):
    """Version 2 changed the header alone: digests of what followed the header in the stored examples of version 1."""
    body = CODECS[name].encode(example(), STREAM).to_bytes()[HEADER_BYTES:]
    assert hashlib.blake2b(body, digest_size=8).hexdigest() == json.loads(VERSION_1.read_text())[name]


def test_every_codec_is_stored():
    assert set(json.loads(GOLDEN.read_text())["payloads"]) == set(CODECS)


if __name__ == "__main__":
    payloads = {name: encoded(member) for name, member in CODECS.items()}
    GOLDEN.write_text(json.dumps({"version": VERSION, "payloads": payloads}, indent=1) + "\n")
