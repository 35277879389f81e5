"""Residual networks for small images, of 6 n + 2 layers: 8, 20, 32, 44, 56, 110."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (16, 32, 64)
DEPTHS = (8, 14, 20, 32, 44, 56, 110)


class Block(nn.Module):
    """y = relu(x' + bn(conv(relu(bn(conv(x)))))), where x' is x, every other pixel of it, or padded with zero channels.

    The shortcut has no parameters (He et al., option A): where channels double, the new ones are zero.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.stride, self.n_new = n_out // n_in, n_out - n_in
        self.conv1 = nn.Conv2d(n_in, n_out, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.n_new:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.n_new))
        return functional.relu(y + x)


class CifarResNet(nn.Module):
    """A 3 × 3 convolution, three stages of n blocks with 16, 32 and 64 channels, the mean over pixels, a linear layer.

    depth       6 n + 2
    n_classes   outputs
    n_channels  of the images

    >>> sum(p.numel() for p in CifarResNet(110).parameters())
    1727962

    He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition", section 4.2.
    """

    def __init__(self, depth: int, n_classes: int = 10, n_channels: int = 3) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise ValueError(f"depth must be 6 n + 2, such as 20, 56 or 110; got {depth}")
        self.first = nn.Conv2d(n_channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTHS[0])
        widths = [WIDTHS[0]] + [width for width in WIDTHS for _ in range((depth - 2) // 6)]
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in pairwise(widths)))
        self.last = nn.Linear(WIDTHS[-1], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (b, n_channels, h, w) to scores (b, n_classes)."""
        x = self.blocks(functional.relu(self.bn(self.first(x))))
        scores: torch.Tensor = self.last(x.mean(dim=(2, 3)))
        return scores
