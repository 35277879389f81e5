"""PyTorch's own hooks of DDP: the rivals."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

ONE_BUCKET_MB = 2**14
"""For PyTorch's PowerSGD hook, which over Gloo crashes or hangs where DDP has several buckets (torch 2.13); it seems to
start their all-reduces from callbacks, whose order differs from rank to rank."""


def with_hook(network: torch.nn.Module, hook: str) -> DistributedDataParallel:
    """The network under DDP, which is left as it is ("fp32"), or has a hook of PyTorch ("bf16" or "powersgd")."""
    if hook == "powersgd":
        model = DistributedDataParallel(network, bucket_cap_mb=ONE_BUCKET_MB)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model
    model = DistributedDataParallel(network)
    if hook == "bf16":
        model.register_comm_hook(None, _bf16)
    elif hook != "fp32":
        raise ValueError(f"unknown hook {hook!r}; choose one of fp32, bf16, powersgd, laconic")
    return model


def _bf16(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """PyTorch's hook; under its own name DDP refuses it without NCCL, though Gloo sums bfloat16 as well."""
    future: torch.futures.Future[torch.Tensor] = default_hooks.bf16_compress_hook(group, bucket)
    return future
