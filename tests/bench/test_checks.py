"""The checks of a benchmark let right answers through and stop wrong ones."""

import pytest
import torch

from laconic import Codec, Stream
from laconic.bench.codec import empirical_entropy, schemes
from laconic.bench.protocol import WrongResult, check_codec, check_symbols

SCHEMES = schemes(bucket_size=512)


V = torch.randn(5000, generator=torch.Generator().manual_seed(0))
HOLES = torch.where((torch.arange(5000) >= 700) & (torch.arange(5000) < 3100), 0, V)
VALUES = {"none": V[:0], "one": V[:1], "seven": V[:7], "a bucket": V[:512], "many": V, "zeros": 0 * V, "holes": HOLES}


@pytest.mark.parametrize("label", SCHEMES)
@pytest.mark.parametrize("values", VALUES)
def test_right_answers_pass(label, values):
    check_codec(label, SCHEMES[label], VALUES[values], Stream(seed=1))


@pytest.mark.parametrize("label", SCHEMES)
def test_a_wrong_answer_is_noticed(label, monkeypatch):
    decode = Codec.decode
    monkeypatch.setattr(
        Codec, "decode", lambda self, one: decode(self, one) * (1 if self.backend == "reference" else 2)
    )
    with pytest.raises(WrongResult, match=label):
        check_codec(label, SCHEMES[label], V, Stream())


def test_wrong_symbols_are_noticed():
    with pytest.raises(WrongResult, match="some coder"):
        check_symbols("some coder", torch.tensor([1]), torch.tensor([2]))


def test_entropy_of_one_symbol_and_of_none_is_zero():
    assert empirical_entropy(torch.zeros(10, dtype=torch.uint8), 4) == 0.0
    assert empirical_entropy(torch.zeros(0, dtype=torch.uint8), 4) == 0.0
