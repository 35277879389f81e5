"""Residual networks for large images, of 18, 34 and 50 layers."""

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each of the four stages, by depth."""
WIDENING = 4
"""A bottleneck's outputs over its inner channels."""


def convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, and the normalisation after it."""
    return nn.Sequential(nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(n_out))


class Residual(nn.Module):
    """y = relu(shortcut(x) + branch(x)); the shortcut is a 1 × 1 convolution where the shape changes (option B)."""

    def __init__(self, branch: nn.Module, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if same else convolution(n_in, n_out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        return functional.relu(self.shortcut(x) + self.branch(x))


def basic(n_in: int, width: int, stride: int) -> Residual:
    """Two 3 × 3 convolutions."""
    branch = nn.Sequential(convolution(n_in, width, 3, stride), nn.ReLU(), convolution(width, width, 3))
    return Residual(branch, n_in, width, stride)


def bottleneck(n_in: int, width: int, stride: int) -> Residual:
    """1 × 1 down, 3 × 3, 1 × 1 up; the stride is that of the 3 × 3, which keeps more than the paper's 1 × 1."""
    branch = nn.Sequential(
        convolution(n_in, width, 1),
        nn.ReLU(),
        convolution(width, width, 3, stride),
        nn.ReLU(),
        convolution(width, WIDENING * width, 1),
    )
    return Residual(branch, n_in, WIDENING * width, stride)


class ImageNetResNet(nn.Module):
    """A 7 × 7 convolution, a pooling, four stages with 64 to 512 channels, the mean over pixels, one linear layer.

    depth      18 or 34 (basic blocks), 50 (bottlenecks)
    n_classes  outputs

    >>> sum(p.numel() for p in ImageNetResNet(18).parameters())
    11689512

    He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition", section 4.1, table 1.
    """

    def __init__(self, depth: int, n_classes: int = 1000, n_channels: int = 3) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise ValueError(f"depth must be one of {', '.join(map(str, BLOCKS))}, got {depth}")
        block, widening = (basic, 1) if depth < 50 else (bottleneck, WIDENING)
        self.first = convolution(n_channels, WIDTHS[0], 7, stride=2)
        stages: list[nn.Module] = []
        n_in = WIDTHS[0]
        for stage, (width, n_blocks) in enumerate(zip(WIDTHS, BLOCKS[depth], strict=True)):
            for i in range(n_blocks):
                stages.append(block(n_in, width, 2 if stage and not i else 1))
                n_in = widening * width
        self.blocks = nn.Sequential(*stages)
        self.last = nn.Linear(n_in, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (b, n_channels, h, w) to scores (b, n_classes)."""
        x = functional.max_pool2d(functional.relu(self.first(x)), 3, stride=2, padding=1)
        scores: torch.Tensor = self.last(self.blocks(x).mean(dim=(2, 3)))
        return scores
