"""Payloads written into memory that is there already are those written into new memory."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from laconic import NUQSGD, RANS, Codec, Payload, Quantized, Quantizer, Stream, codec
from laconic.codec.payload import side_by_side


@dataclass(frozen=True)
class Ternary(Quantizer):
    """A quantizer of one's own that is no `Bucketed`: codecs quantize with it, then code what it made."""

    name: ClassVar[str] = "ternary"
    wire_id: ClassVar[int] = 9
    bits: int = 2
    bucket_size: int = 64
    unbiased: ClassVar[bool] = False

    def variance_bound(self, n):
        return 1.0

    def quantize(self, v, stream=Stream(), *, backend="auto"):  # noqa: B008
        return Quantized(torch.where(v > 1, 1, torch.where(v < -1, 3, 0)).byte(), torch.ones(self.n_norms(v.numel())))

    def dequantize(self, quantized, *, weight=1.0, backend="auto"):
        return weight * torch.tensor([0.0, 1.0, 0.0, -1.0])[quantized.symbols.long()]


MEMBERS = {"nuqsgd": codec("nuqsgd", bucket_size=64), "sign": codec("sign", bucket_size=64), "bf16": codec("bf16")}
MEMBERS["own"] = Codec(Ternary())
MEMBERS["nuqsgd-3"] = codec("nuqsgd", bits=3, bucket_size=50)


@pytest.mark.parametrize("n", [0, 1, 64, 1001])
@pytest.mark.parametrize("name", MEMBERS)
def test_the_same_bytes(name, n):
    member, v = MEMBERS[name], torch.randn(n, generator=torch.Generator().manual_seed(n))
    room = torch.full((member.max_bytes(n),), 255, dtype=torch.uint8)
    payload = member.encode(v, Stream(seed=2), out=room)
    assert payload.data.data_ptr() == room.data_ptr()
    assert torch.equal(room, member.encode(v, Stream(seed=2)).data)


@pytest.mark.parametrize("apart", [0, 4, 24])
@pytest.mark.parametrize("name", MEMBERS)
def test_sums_of_payloads_as_they_lie(name, apart):
    """Rows of one matrix are read in place, others are copied: the sum is the same."""
    member, n = MEMBERS[name], 1001
    values = torch.randn(3, n, generator=torch.Generator().manual_seed(1))
    apiece = [member.encode(v, Stream(rank=r)).data for r, v in enumerate(values)]
    width = -(-len(apiece[0]) // 4) * 4 + apart
    matrix = torch.zeros(3, width, dtype=torch.uint8)
    rows = [row[: len(code)].copy_(code) for row, code in zip(matrix, apiece, strict=True)]
    assert side_by_side(rows, 4).data_ptr() == matrix.data_ptr()
    expected = torch.zeros(n)
    for code in apiece:
        member.decode_add(Payload(code), expected, 0.5)
    for codes in (apiece, rows, [rows[0], rows[1], apiece[2]]):
        assert torch.equal(member.decode_sum([Payload(code) for code in codes], torch.empty(n), 0.5), expected)


def test_rows_in_another_order_are_copied():
    matrix = torch.arange(32, dtype=torch.uint8).view(4, 8)
    for order in ([2, 1, 0], [0, 1, 3], [1, 1, 1]):
        rows = [matrix[i] for i in order]
        found = side_by_side(rows, 4)
        assert torch.equal(found, torch.stack(rows))
        assert found.data_ptr() not in [row.data_ptr() for row in matrix]


def test_wrong_out_is_refused():
    member, v = Codec(NUQSGD(bits=4, bucket_size=64)), torch.randn(100)
    n_bytes = member.max_bytes(100)
    for room in (torch.empty(n_bytes + 1).byte(), torch.empty(n_bytes), torch.empty(2 * n_bytes).byte()[::2]):
        with pytest.raises(ValueError, match=f"out must be a contiguous row of {n_bytes} uint8 on cpu, got"):
            member.encode(v, out=room)
    with pytest.raises(ValueError, match="out must begin at a multiple of 4 bytes"):
        member.encode(v, out=torch.empty(n_bytes + 1, dtype=torch.uint8)[1:])
    with pytest.raises(ValueError, match="out needs a coder of fixed size; the size of rans payloads is not known"):
        Codec(NUQSGD(bits=4), RANS()).encode(v, out=torch.empty(n_bytes).byte())
