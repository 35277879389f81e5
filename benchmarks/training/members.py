"""The members that are compared, and how each sends the gradients of many replicas at once.

Quantizers with levels take all replicas in one call: a bucket's symbols depend on it alone, and its random numbers on
its index. `Dithered` and `Rotated`, which have no kernels for GPUs, are computed here from their formulas, with dither
and signs from torch's generator. Bits are counted on the codec's own payloads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from typing import Any

import torch

from laconic.codec import Codec
from laconic.coders import RANS
from laconic.kernels import Stream
from laconic.kernels.reference.rotation import LEVELS, hadamard, thresholds
from laconic.quantizers import NUQSGD, QSGD, Dithered, ErrorFeedback, Identity, QSGDInf, Quantizer, Rotated, Sign

TENSOR, OPTIMIZER = "tensor", "optimizer"
FLOOR = 0.1
"""Least value of the metric, as a share of the root mean square of √v over the tensor."""
SMALLEST = 1e-30
"""Replaces a scale or a step of zero."""
MOST_RANS_BITS = 8
PLAIN_STEPS = 2
"""First steps of PowerSGD, which send gradients in full; the minimum in PyTorch's hook."""
Shapes = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Member:
    """A quantizer, and the metric by which gradients are divided before it and multiplied after it.

    rank    of PowerSGD, used instead of the quantizer
    family  members of one family differ in one number, and form one curve
    metric  "" for none; "tensor" the root mean square of the tensor's last averaged gradient; "optimizer" the square
            root of Adam's second moment, or FLOOR times its own root mean square over the tensor where that is more.
            All ranks know these; at the first step, when there are none, gradients are sent in float32
    weights  quantizer of differences to the weights sent before: sharded training, with losses at the weights sent
            (`laconic.training.Differences`)
    """

    quantizer: Quantizer
    family: str
    metric: str = ""
    rank: int = 0
    weights: Quantizer | None = None

    def bits(self, row: torch.Tensor, stream: Stream, shapes: Shapes) -> list[float]:
        """Bits per value that one worker sends, for each of `codecs`; `row` has tensors of `shapes`, concatenated."""
        if self.rank:
            return [32 * sum(_n_sent(shape, self.rank) for shape in shapes) / len(row)]
        return [8 * codec.encode(row, stream).n_bytes / len(row) for codec in self.codecs()]

    def codecs(self) -> list[Codec]:
        """The default codec, and an entropy-coded one where symbols have a fixed width and there is no wrapper."""
        core = self.quantizer.core
        coded = core is self.quantizer and 0 < core.symbol_bits <= MOST_RANS_BITS
        return [Codec(core), *([Codec(core, RANS())] if coded else [])]


def _table() -> dict[str, Member]:
    found = {name: Member(Identity(name), name) for name in ("fp32", "bf16")}
    found |= {name: Member(Identity(), "PowerSGD", rank=n) for name, n in (("powersgd", 2), ("powersgd-32", 32))}
    for bits, bucket_size in product((2, 3, 4, 8), (64, 512, 8192)):
        found[f"nuqsgd-{bits}/{bucket_size}"] = Member(NUQSGD(bits, bucket_size), f"NUQSGD, buckets of {bucket_size}")
    sharded = Member(NUQSGD(4, 512), "NUQSGD, sharded", weights=QSGDInf(8, 512))
    found["nuqsgd-4/512+differences-8"] = sharded
    found["nuqsgd-4/512@metric"] = Member(NUQSGD(4, 512), "NUQSGD in the metric", OPTIMIZER)
    for bits, bucket_size in ((4, 512), (4, 8192), (8, 8192)):
        found[f"qsgdinf-{bits}/{bucket_size}"] = Member(QSGDInf(bits, bucket_size), "QSGDInf")
    found["qsgd-4/8192"] = Member(QSGD(4, 8192), "QSGD")
    for error in (0.05, 0.1, 0.2, 0.277, 0.3, 0.5, 1.0, 3.0, 10.0):
        found[f"dithered-{error:g}"] = Member(Dithered(error), "Dithered, one Δ")
        found[f"dithered-{error:g}/512"] = Member(Dithered(error, bucket_size=512), "Dithered, Δ per bucket")
        found[f"dithered-{error:g}/tensor"] = Member(Dithered(error), "Dithered, Δ per tensor", TENSOR)
        found[f"dithered-{error:g}@metric"] = Member(Dithered(error), "Dithered in the metric", OPTIMIZER)
    for bits in (2, 3, 4):
        found[f"rotated-{bits}"] = Member(Rotated(bits), "Rotated")
    for name, sign in (("ef-sign", Sign(bucket_size=8192)), ("ef-sign/64", Sign(bucket_size=64))):
        found[name] = Member(ErrorFeedback(sign), "Sign with error feedback")
    return found


MEMBERS = _table()
"""Names: bits or error, after "/" the values that share a norm or a step, and @metric for the optimizer's metric."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The messages of M replicas, of C values each.

    v        (M, C) the values that are quantised: gradients over the metric
    decoded  (M, C) gradients as decoded
    scale    (M, C) the metric, by which decoded values were multiplied; None for 1
    """

    v: torch.Tensor
    decoded: torch.Tensor
    scale: torch.Tensor | None = None

    def errors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """‖decoded − sent‖² / ‖sent‖², mean over replicas, in the metric and of the gradients themselves."""
        if self.scale is None:
            return (_error(self.decoded, self.v),) * 2
        return _error(self.decoded / self.scale, self.v), _error(self.decoded, self.v * self.scale)


def _error(decoded: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    lengths = [torch.linalg.vector_norm(x, dim=1) for x in (decoded - v, v)]
    return torch.mean((lengths[0] / lengths[1].clamp(min=SMALLEST)).square())


class Sender:
    """Sends the gradients of all replicas with one member, and keeps their error memory.

    cuts     offsets of the tensors among the C values, and C
    seed     of the roundings
    shapes   of the tensors, for PowerSGD
    workers  replicas of a seed, one after another
    """

    def __init__(
        self, member: Member, cuts: Sequence[int], device: torch.device, seed: int = 0, shapes: Shapes = (),
        workers: int = 1,
    ) -> None:  # fmt: skip
        self.member, self.cuts, self.seed, self.shapes, self.workers = member, list(cuts), seed, shapes, workers
        self.sizes = torch.tensor([b - a for a, b in pairwise(cuts)], device=device)
        self.memory: torch.Tensor | None = None
        self.factors: torch.Tensor | None = None

    def send(self, g: torch.Tensor, known: torch.Tensor | None, step: int) -> Message:
        """Send gradients g (M, C) of S seeds, whose replicas are consecutive.

        known  (S, C), to compute the metric from: Adam's second moment or the last averaged gradient; at first None
        """
        if not self.member.metric:
            return Message(g, self._quantised(g, step))
        if known is None:
            return Message(g, g)
        scale = self.scale(known).repeat_interleave(len(g) // len(known), 0)
        v = g / scale
        return Message(v, self._quantised(v, step) * scale, scale)

    def scale(self, known: torch.Tensor) -> torch.Tensor:
        """The metric (S, C) of each seed."""
        if self.member.metric == TENSOR:
            return self._rms(known).clamp(min=SMALLEST)
        root = known.sqrt()
        return torch.maximum(root, (FLOOR * self._rms(root)).clamp(min=SMALLEST))

    def _rms(self, x: torch.Tensor) -> torch.Tensor:
        """For each value of each row, the root mean square over its tensor."""
        parts = [torch.linalg.vector_norm(x[:, a:b], dim=1) / (b - a) ** 0.5 for a, b in pairwise(self.cuts)]
        return torch.stack(parts, 1).repeat_interleave(self.sizes, 1, output_size=self.cuts[-1])

    def _quantised(self, v: torch.Tensor, step: int) -> torch.Tensor:
        quantizer = self.member.quantizer
        if self.member.rank and step >= PLAIN_STEPS:
            return self._low_rank(v)
        if quantizer == Identity():
            return v
        if isinstance(quantizer, Dithered):
            return dithered(v, quantizer)
        if isinstance(quantizer, Rotated):
            return rotated(v, quantizer)
        if isinstance(quantizer, ErrorFeedback) and self.memory is None:
            self.memory = quantizer.new_memory(padded(v, quantizer.bucket_size).view(-1))
        return quantised(v, quantizer, Stream(self.seed, step=step), self.memory)

    def _low_rank(self, v: torch.Tensor) -> torch.Tensor:
        """P Qᵀ of each matrix, the same for all workers of a seed: P = mean(M Q) made orthonormal, then Q = mean(Mᵀ P).

        M is a worker's gradient plus its error memory; Q starts from the last step's. Matrices of one shape are
        processed together. Vogels, Karimireddy and Jaggi 2019, "PowerSGD", algorithms 1 and 2.
        """
        S, rank, matrices = len(v) // self.workers, self.member.rank, [_matrix(shape) for shape in self.shapes]
        if self.memory is None or self.factors is None:
            self.memory = torch.zeros_like(v)
            self.factors = torch.randn(S, sum(m for _, m in matrices), rank, device=v.device)
        sent = v + self.memory
        decoded, firsts, alike = sent.clone(), [0, *accumulate(m for _, m in matrices)], dict[Any, list[int]]()
        for i, shape in enumerate(matrices):
            if _n_sent(shape, rank) < math.prod(shape):
                alike.setdefault(shape, []).append(i)
        for (n, m), some in alike.items():
            M = torch.stack([sent[:, self.cuts[i] : self.cuts[i + 1]].view(S, -1, n, m) for i in some])
            Q = torch.stack([self.factors[:, firsts[i] : firsts[i] + m] for i in some])
            P = orthonormal((M @ Q[:, :, None]).mean(2).flatten(0, 1)).view(len(some), S, n, rank)
            Q = (M.mT @ P[:, :, None]).mean(2)
            for i, p, q in zip(some, P, Q, strict=True):
                self.factors[:, firsts[i] : firsts[i] + m] = q
                decoded[:, self.cuts[i] : self.cuts[i + 1]] = (p @ q.mT).flatten(1).repeat_interleave(self.workers, 0)
        self.memory = sent - decoded
        return decoded


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a tensor with all but its first dimension flattened."""
    return shape[0], math.prod(shape[1:])


def _n_sent(shape: Sequence[int], rank: int) -> int:
    """Number of values of both factors; of the tensor itself if they are more than half of it, as in PyTorch's hook."""
    n, m = _matrix(shape)
    return rank * (n + m) if 2 * rank * (n + m) < n * m else n * m


def orthonormal(P: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns of each of P (S, n, r), by Gram–Schmidt: for few columns, far fewer launches than a QR.

    >>> Q = orthonormal(torch.randn(3, 10, 2))
    >>> torch.allclose(Q.mT @ Q, torch.eye(2).expand(3, 2, 2), atol=1e-5)
    True
    """
    Q = P.clone()
    for j in range(Q.shape[2]):
        Q[..., j] /= torch.linalg.vector_norm(Q[..., j], dim=1, keepdim=True).clamp(min=SMALLEST)
        one, rest = Q[..., j : j + 1], Q[..., j + 1 :]
        rest -= one @ (one.mT @ rest)
    return Q


def padded(v: torch.Tensor, size: int) -> torch.Tensor:
    """Rows (M, n) padded with zeros to a multiple of `size`, contiguous."""
    missing = -v.shape[1] % size
    return torch.nn.functional.pad(v, (0, missing)) if missing else v.contiguous()


def quantised(v: torch.Tensor, quantizer: Quantizer, at: Stream, memory: torch.Tensor | None = None) -> torch.Tensor:
    """Rows (M, n) quantised and dequantised, each in buckets of its own; the error memory is updated in place."""
    rows = padded(v, quantizer.bucket_size)
    flat = rows.view(-1)
    if isinstance(quantizer, ErrorFeedback):
        found = quantizer.quantize(flat, at, memory=memory)
    else:
        found = quantizer.quantize(flat, at)
    return quantizer.dequantize(found).view_as(rows)[:, : v.shape[1]]


def dithered(v: torch.Tensor, quantizer: Dithered) -> torch.Tensor:
    """Δ (round(v/Δ + u) − u) of each row of v (M, C), u uniform, with the quantizer's Δ.

    >>> v = torch.randn(3, 1000)
    >>> error = (dithered(v, Dithered(0.1)) - v).square().sum() / v.square().sum()
    >>> bool(0.08 < error < 0.12)
    True
    """
    M, n = v.shape
    size = min(quantizer.bucket_size, n)
    buckets = padded(v, size).view(M, -1, size)
    counts = torch.full((buckets.shape[1], 1), float(size), device=v.device)
    counts[-1] = n - (buckets.shape[1] - 1) * size
    error = float(quantizer.error or 0.0)
    step = torch.linalg.vector_norm(buckets, dim=2, keepdim=True) * (12 * error / counts).sqrt()
    step.clamp_(min=SMALLEST)
    u = torch.rand_like(buckets).sub_(0.5)
    decoded: torch.Tensor = (buckets / step).add_(u).round_().sub_(u).mul_(step)
    return decoded.view(M, -1)[:, :n]


def rotated(v: torch.Tensor, quantizer: Rotated) -> torch.Tensor:
    """R⁻¹(± level · σ) of each bucket of each row of v (M, C), with random R and the quantizer's levels and σ.

    >>> v = torch.randn(3, 3000)
    >>> error = (rotated(v, Rotated(2)) - v).square().sum() / v.square().sum()
    >>> bool(0.12 < error < 0.15)
    True
    """
    M, n = v.shape
    size = quantizer.bucket_size
    x = padded(v, size).view(-1, size)
    turn = hadamard(torch.eye(size, device=v.device)) / math.sqrt(size)
    signs = [torch.empty_like(x).random_(2).mul_(2).sub_(1) for _ in range(2)]
    y = (x * signs[0] @ turn * signs[1]) @ turn
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    z = y.abs() * (math.sqrt(size) / norm.clamp(min=SMALLEST))
    levels, between = LEVELS[quantizer.bits], thresholds(quantizer.bits)
    level = torch.tensor(levels, device=v.device)[torch.bucketize(z, torch.tensor(between, device=v.device))]
    sent = level.copysign(y) * (norm * math.sqrt(size) / (z * level).sum(1, keepdim=True).clamp(min=SMALLEST))
    decoded: torch.Tensor = (sent @ turn * signs[1]) @ turn * signs[0]
    return decoded.view(M, -1)[:, :n]
