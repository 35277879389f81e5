"""Error feedback: what was not sent this time is added next time."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from laconic.kernels import Stream
from laconic.quantizers.base import Quantized, Quantizer, flat


@dataclass(frozen=True, slots=True)
class ErrorFeedback(Quantizer):
    """Any quantizer with a memory of its error: send Q(v + e), keep e' = v + e − Q(v + e).

    The memory is a float32 tensor that the caller owns (`new_memory`) and passes to each call, which updates it in
    place. A bucket with a non-finite value is sent as non-finite and leaves its memory as it was, so that a step that a
    loss scaler throws away does no lasting harm.

    Feedback helps where the inner quantizer contracts, E‖Q(v) − v‖² < ‖v‖²; around one that does not (2-bit NUQSGD in
    large buckets, say) the memory grows without end.

    inner  the quantizer that makes the symbols

    >>> import torch
    >>> from laconic import Sign
    >>> scheme = ErrorFeedback(Sign())
    >>> v = torch.tensor([3.0, -1.0])
    >>> memory = scheme.new_memory(v)
    >>> sent = scheme.dequantize(scheme.quantize(v, memory=memory))
    >>> sent + memory
    tensor([ 3., -1.])

    Karimireddy, Rebjock, Stich and Jaggi 2019, Algorithm 2 (EF-SGD), without the learning rate inside the memory: the
    memory here is in units of the gradient.
    """

    inner: Quantizer

    name: ClassVar[str] = "error-feedback"
    wire_id: ClassVar[int] = -1
    unbiased: ClassVar[bool] = False
    """A single message is biased, since it depends on the memory; over time the errors cancel."""

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Quantizer):
            raise TypeError(f"ErrorFeedback wraps a quantizer such as Sign(), got {self.inner!r}")
        if isinstance(self.inner, ErrorFeedback):
            raise ValueError("ErrorFeedback(ErrorFeedback(...)) would count the error twice; wrap once")

    @property
    def bits(self) -> int:  # type: ignore[override]
        """Width of the inner quantizer's symbols."""
        return self.inner.bits

    @property
    def bucket_size(self) -> int:  # type: ignore[override]
        """Bucket size of the inner quantizer."""
        return self.inner.bucket_size

    @property
    def cut_size(self) -> int:
        return self.inner.cut_size

    @property
    def core(self) -> Quantizer:
        return self.inner.core

    def variance_bound(self, n: int) -> float:
        """The inner quantizer's bound, relative to its input v + e."""
        return self.inner.variance_bound(n)

    def n_norms(self, n: int) -> int:
        return self.inner.n_norms(n)

    def new_memory(self, v: Tensor) -> Tensor:
        """Zeros, one per value."""
        return torch.zeros(v.numel(), dtype=torch.float32, device=v.device)

    def require_memory(self, v: Tensor, memory: Tensor | None) -> Tensor:
        if memory is None:
            raise ValueError("ErrorFeedback needs its memory: pass memory=quantizer.new_memory(v), the same each step")
        if not isinstance(memory, Tensor):
            raise TypeError(f"memory must be a tensor such as quantizer.new_memory(v), got {type(memory).__name__}")
        if memory.shape != (v.numel(),) or memory.dtype != torch.float32 or memory.device != v.device:
            raise ValueError(
                f"memory must be float32 of shape ({v.numel()},) on {v.device}, "
                f"got {memory.dtype} of shape {tuple(memory.shape)} on {memory.device}"
            )
        if not memory.is_contiguous():
            raise ValueError(f"memory must be contiguous, got strides {memory.stride()}; pass memory.contiguous()")
        if memory.requires_grad:
            raise ValueError("memory must not require grad, for it is written in place; pass memory.detach()")
        return memory

    def remember(self, memory: Tensor, unsent: Tensor, norms: Tensor) -> None:
        """e ← unsent, except in buckets with a non-finite norm."""
        finite = torch.isfinite(norms) if norms.numel() else torch.isfinite(unsent)
        if finite.is_cpu and bool(finite.all()):  # on a GPU, asking would make the host wait
            memory.copy_(unsent)
        else:
            width = min(self.bucket_size, memory.numel()) if norms.numel() else 1
            keep = finite.repeat_interleave(width, output_size=finite.numel() * width)[: memory.numel()]
            memory.copy_(torch.where(keep, unsent, memory))

    def quantize(
        self,
        v: Tensor,
        stream: Stream = Stream(),  # noqa: B008
        *,
        memory: Tensor | None = None,
        backend: str = "auto",
    ) -> Quantized:
        """Q(v + e), and e updated in place."""
        kept = self.require_memory(v, memory)
        corrected = flat(v).float() + kept
        quantized = self.inner.quantize(corrected, stream, backend=backend)
        self.remember(kept, corrected - self.inner.dequantize(quantized, backend=backend), quantized.norms)
        return quantized

    def dequantize(self, quantized: Quantized, *, weight: float = 1.0, backend: str = "auto") -> Tensor:
        """The values that were sent, Q(v + e)."""
        return self.inner.dequantize(quantized, weight=weight, backend=backend)
