"""Statistics to TensorBoard, or to anything with `add_scalar`."""

from typing import Protocol

import torch

from laconic.training.ddp import compressor_of, stats


class ScalarWriter(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` offers."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""


def log_stats(model: torch.nn.Module, writer: ScalarWriter, prefix: str = "laconic") -> None:
    """Write every entry of `laconic.stats(model)` at the current step; NaN entries (not measured) are left out."""
    step = compressor_of(model).step
    for name, value in stats(model).items():
        if value == value:
            writer.add_scalar(f"{prefix}/{name}", value, step)
