"""The gradient the demo shows is real and always the same."""

import torch

from laconic.bench.training import digits_gradient
from laconic.data import load_digits


def test_digits():
    images, labels = load_digits()
    assert images.shape == (1797, 64)
    assert images.dtype == torch.float32
    assert images.min() == 0
    assert images.max() == 1
    assert labels.shape == (1797,)
    assert labels.unique().tolist() == list(range(10))


def test_training_repeats_bit_for_bit():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = digits_gradient(), digits_gradient()
    assert torch.equal(first, second)
    assert 200_000 < first.numel() < 1_000_000
    assert torch.isfinite(first).all()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_another_seed_is_another_gradient():
    assert not torch.equal(digits_gradient(n_steps=1), digits_gradient(n_steps=1, seed=1))
