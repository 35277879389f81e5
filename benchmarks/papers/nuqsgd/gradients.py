"""Effect of quantising one worker's gradient: normalised variance, and size under each coder."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from laconic import coders
from laconic.bench.codec import empirical_entropy
from laconic.codec import Codec
from laconic.kernels import Stream
from laconic.quantizers import Quantizer
from laconic.training.groups import Group

CODERS = ("fixed", "elias", "huffman", "rans")
DRAWS = 4
"""Independent roundings of a gradient over which its variance is averaged."""
MOST_CODED = 2**18
"""Most values to encode with every coder; on a GPU those of variable length are slow."""
SEED = 2**40
"""Seed of the measured roundings, different from those of the training."""


def gradient(net: nn.Module, groups: Sequence[Group], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """The compressed groups (n_values,) of the gradient on one batch; the network is unchanged."""
    buffers = [buffer.clone() for buffer in net.buffers()]
    parameters = dict(net.named_parameters())
    loss = nn.functional.cross_entropy(net(x), y)
    found = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    for buffer, before in zip(net.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return [
        torch.cat([found[name].reshape(-1).float() for name in group.names]) for group in groups if group.compressed
    ]


def normalised_variance(parts: Sequence[torch.Tensor], quantizer: Quantizer, draws: int = DRAWS) -> float:
    """E‖Q(g) − g‖² / ‖g‖² over the parts of one gradient, averaged over roundings, without error memory.

    >>> from laconic.quantizers import Sign
    >>> normalised_variance([torch.tensor([3.0, -1.0])], Sign())
    0.2
    """
    q = quantizer.core
    error = sum(
        float((q.dequantize(q.quantize(v, Stream(SEED, step=draw, tensor=i))) - v).double().square().sum())
        for draw in range(draws)
        for i, v in enumerate(parts)
    )
    energy = draws * sum(float(v.double().square().sum()) for v in parts)
    return error / energy if energy else 0.0


def sampled(parts: Sequence[torch.Tensor], bucket_size: int, most: int = MOST_CODED) -> list[torch.Tensor]:
    """About `most` values at most, in evenly spaced whole buckets, since buckets are quantised independently.

    >>> [part.tolist() for part in sampled([torch.arange(8.0), torch.arange(2.0)], 2, most=5)]
    [[0.0, 1.0, 4.0, 5.0], [0.0, 1.0]]
    """
    step = -(-sum(v.numel() for v in parts) // most)
    whole = [v.numel() // bucket_size for v in parts]
    return [
        v[: n * bucket_size].view(n, bucket_size)[::step].reshape(-1) if n and step > 1 else v
        for v, n in zip(parts, whole, strict=True)
    ]


def bits_by_coder(parts: Sequence[torch.Tensor], quantizer: Quantizer) -> dict[str, float]:
    """Bits per coordinate of the payloads under each coder, norms and headers included; sampled if there are many.

    A quantizer whose symbols have no fixed width has a coder of its own, "tables".
    """
    q = quantizer.core
    codecs = {name: Codec(q, coders.by_name(name)) for name in CODERS} if q.symbol_bits else {"tables": Codec(q)}
    parts = sampled(parts, quantizer.bucket_size)
    n = sum(v.numel() for v in parts)
    return {
        name: sum(8 * codec.encode(v, Stream(SEED, tensor=i)).n_bytes for i, v in enumerate(parts)) / n
        for name, codec in codecs.items()
    }


def entropy(parts: Sequence[torch.Tensor], quantizer: Quantizer) -> float | None:
    """Entropy of the symbols in bits per coordinate, without norms; None if symbols have no fixed width."""
    q = quantizer.core
    if not q.symbol_bits:
        return None
    symbols = torch.cat([q.quantize(v, Stream(SEED, tensor=i)).symbols for i, v in enumerate(parts)])
    return empirical_entropy(symbols, q.bits)


def bound(parts: Sequence[torch.Tensor], quantizer: Quantizer) -> float:
    """The proved bound on the normalised variance: the largest over the parts."""
    return max(quantizer.core.variance_bound(v.numel()) for v in parts)


def statistics(parts: Sequence[torch.Tensor], quantizer: Quantizer) -> dict[str, Any]:
    """Variance, bound, entropy and bits by coder of a quantizer on this gradient."""
    return {
        "variance": normalised_variance(parts, quantizer),
        "bound": bound(parts, quantizer),
        "entropy": entropy(parts, quantizer),
        "bits": bits_by_coder(parts, quantizer),
    }
