"""Residual networks: of 6 n + 2 layers for small images, of 18, 34 and 50 layers for large ones.

He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition".
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

SMALL_WIDTHS = (16, 32, 64)
DEPTHS = (8, 14, 20, 32, 44, 56, 110)
LARGE_WIDTHS = (64, 128, 256, 512)
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each of the four stages, by depth."""
WIDENING = 4
"""A bottleneck's outputs over its inner channels."""
LARGE = tuple(f"resnet-{depth}" for depth in BLOCKS)
"""For images of 224 by 224."""
NETWORKS = (*(f"resnet-{depth}" for depth in DEPTHS), *LARGE)


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
        self.first = nn.Conv2d(n_channels, SMALL_WIDTHS[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(SMALL_WIDTHS[0])
        widths = [SMALL_WIDTHS[0]] + [width for width in SMALL_WIDTHS for _ in range((depth - 2) // 6)]
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in pairwise(widths)))
        self.last = nn.Linear(SMALL_WIDTHS[-1], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (b, n_channels, h, w) to scores (b, n_classes)."""
        x = self.blocks(functional.relu(self.bn(self.first(x))))
        scores: torch.Tensor = self.last(x.mean(dim=(2, 3)))
        return scores


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
        self.first = convolution(n_channels, LARGE_WIDTHS[0], 7, stride=2)
        stages: list[nn.Module] = []
        n_in = LARGE_WIDTHS[0]
        for stage, (width, n_blocks) in enumerate(zip(LARGE_WIDTHS, BLOCKS[depth], strict=True)):
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


def network(name: str, n_classes: int, shape: Sequence[int]) -> nn.Module:
    """A network for images of `shape` (channels, height, width).

    >>> type(network("resnet-20", 10, (3, 32, 32))).__name__, type(network("resnet-18", 10, (3, 32, 32))).__name__
    ('CifarResNet', 'ImageNetResNet')
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(NETWORKS)}")
    depth = int(name.removeprefix("resnet-"))
    kind = ImageNetResNet if name in LARGE else CifarResNet
    return kind(depth, n_classes, shape[0])
