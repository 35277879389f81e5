"""What to compress, and from when on."""

from dataclasses import dataclass

import torch

from laconic.checks import check_int


@dataclass(frozen=True, slots=True)
class Policy:
    """Which parameters are compressed; the others go in float32.

    min_dims      fewest dimensions: biases and normalisation weights (1-D) are few and sensitive
    min_values    fewest values: a small tensor saves nothing
    warmup_steps  steps in float32 before compression begins
    group_values  values that are exchanged together; smaller groups overlap better, larger ones have fewer messages
    """

    min_dims: int = 2
    min_values: int = 1024
    warmup_steps: int = 0
    group_values: int = 2**20

    def __post_init__(self) -> None:
        for name, least in (("min_dims", 0), ("min_values", 0), ("warmup_steps", 0), ("group_values", 1)):
            object.__setattr__(self, name, check_int(name, getattr(self, name), least, owner="policy"))

    def compresses(self, parameter: torch.Tensor) -> bool:
        """Whether this parameter's gradient is compressed.

        >>> Policy().compresses(torch.zeros(64, 64)), Policy().compresses(torch.zeros(4096))
        (True, False)
        """
        return parameter.dim() >= self.min_dims and parameter.numel() >= self.min_values
