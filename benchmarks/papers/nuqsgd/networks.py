"""Residual networks: of 6 n + 2 layers for small images, of 18, 34 and 50 layers for large ones.

He, Zhang, Ren and Sun 2016, "Deep residual learning for image recognition".

Layers also take parameters with two leading dimensions, (S, k, …) for k workers of each of S seeds. Images are then
those of S k mini-batches one after another. Workers of a seed have the same weights, so a convolution is computed for
all of them at once; normalisation and parameter gradients are per worker. With ordinary parameters they are torch's
layers.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

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
"""Networks for images of 224 by 224."""
MOMENTUM = 0.1
"""Momentum of running statistics: the weight of the current step, torch's default."""
SHAPES = 64
"""Most input shapes for which a normalisation is compiled."""
NETWORKS = (*(f"resnet-{depth}" for depth in DEPTHS), *LARGE)


class _Convolve(torch.autograd.Function):
    """Convolve x (S k b, …) with w (S, k, …), equal for all k; gradients of w are per worker."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, stride: Any, padding: Any) -> torch.Tensor:
        ctx.how, ctx.like, ctx.kernels = (stride, padding), (w.shape, w.dtype), _kernels(x, w, stride)
        if ctx.kernels:
            ctx.save_for_backward(x, w[:, 0])
            y: torch.Tensor = ctx.kernels.convolved(x, w[:, 0])
            return y
        own = [one.to(x.dtype, memory_format=torch.channels_last) for one in w[:, 0].unbind(0)]
        ctx.save_for_backward(x, *own)
        return _joined([functional.conv2d(*one, None, *ctx.how) for one in zip(x.chunk(len(w)), own, strict=True)])

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, None, None]:
        x, *own = ctx.saved_tensors
        shape, dtype = ctx.like
        S, k = shape[:2]
        if ctx.kernels:
            dx = ctx.kernels.convolved(dy, own[0], back=True) if ctx.needs_input_grad[0] else None
            return dx, ctx.kernels.gradient(x, dy, S * k).reshape(shape), None, None

        def back(n: int, which: int) -> list[torch.Tensor]:
            mask = [i == which for i in range(3)]
            parts = zip(dy.chunk(n), x.chunk(n), [one for one in own for _ in range(n // S)], strict=True)
            more = (None, *ctx.how, (1, 1), False, (0, 0), 1, mask)
            return [torch.ops.aten.convolution_backward(*part, *more)[which] for part in parts]

        dw = torch.stack(back(S * k, 1)).to(dtype).view(shape)
        return _joined(back(S, 0)) if ctx.needs_input_grad[0] else None, dw, None, None


def _kernels(x: torch.Tensor, w: torch.Tensor, stride: Sequence[int]) -> Any:
    """The module of Triton kernels if it supports this convolution, else None; imported only where there is a GPU."""
    if not x.is_cuda:
        return None
    from benchmarks.papers.nuqsgd import convolve

    return convolve if convolve.suits(x, w, stride) else None


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class Convolution(nn.Conv2d):
    """A convolution without bias, also with parameters (S, k, …)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, I, …) to (b, O, …)."""
        if self.weight.dim() == 4:
            return super().forward(x)
        y: torch.Tensor = _Convolve.apply(x, self.weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return y


class Normalisation(nn.BatchNorm2d):
    """relu(bn(x) + shortcut), with the statistics of each worker's images; on a GPU in two compiled passes.

    active  whether there is a relu
    """

    def __init__(self, n: int, active: bool = True) -> None:
        super().__init__(n)
        self.active = active

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor | None = None) -> torch.Tensor:
        """(b, n, h, w) to the same shape."""
        if self.weight.dim() == 1:
            z = super().forward(x) if shortcut is None else super().forward(x) + shortcut
            return functional.relu(z) if self.active else z
        w, b, mean, var = (
            one.view(-1, self.num_features)  # type: ignore[union-attr]
            for one in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        if not self.training:
            return _normalised(x, w, b, mean, var + self.eps, shortcut, self.active)
        trained = _compiled() if x.is_cuda else _trained
        return trained(x, w, b, mean, var, shortcut, self.active, self.eps)


def _trained(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, running_mean: torch.Tensor, running_var: torch.Tensor,
    shortcut: torch.Tensor | None, active: bool, eps: float,
) -> torch.Tensor:  # fmt: skip
    """Normalise with mean and variance of each of len(w) parts of x, and update the running ones."""
    var, mean = torch.var_mean(x.view(len(w), -1, *x.shape[1:]).to(w.dtype), (1, 3, 4), correction=0)
    n = x.numel() // mean.numel()
    with torch.no_grad():
        running_mean.lerp_(mean, MOMENTUM)
        running_var.lerp_(var * (n / (n - 1)), MOMENTUM)
    return _normalised(x, w, b, mean, var + eps, shortcut, active)


def _normalised(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor,
    shortcut: torch.Tensor | None, active: bool,
) -> torch.Tensor:  # fmt: skip
    mean, var, w, b = (one[:, None, :, None, None] for one in (mean, var, w, b))
    z = ((x.view(len(w), -1, *x.shape[1:]).to(w.dtype) - mean) * (var.rsqrt() * w) + b).flatten(0, 1)
    z = z if shortcut is None else z + shortcut
    return (functional.relu(z) if active else z).to(x.dtype)


@cache
def _compiled() -> Any:
    torch._dynamo.config.recompile_limit = SHAPES
    return torch.compile(_trained, dynamic=False)


class Scores(nn.Linear):
    """The last layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, inputs) to (b, outputs)."""
        w, b = self.weight.view(-1, *self.weight.shape[-2:]), self.bias.view(-1, 1, self.bias.shape[-1])
        return torch.baddbmm(b, x.view(len(w), -1, x.shape[1]), w.transpose(1, 2)).flatten(0, 1)


class Block(nn.Module):
    """y = relu(x' + bn(conv(relu(bn(conv(x)))))), where x' is x, every other pixel of it, or padded with zero channels.

    The shortcut has no parameters (He et al., option A): where channels double, the new ones are zero.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.stride, self.n_new = n_out // n_in, n_out - n_in
        self.conv1 = Convolution(n_in, n_out, 3, self.stride, padding=1, bias=False)
        self.bn1 = Normalisation(n_out)
        self.conv2 = Convolution(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = Normalisation(n_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        y = self.conv2(self.bn1(self.conv1(x)))
        if self.n_new:
            x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.n_new))
        out: torch.Tensor = self.bn2(y, x)
        return out


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
        self.first = Convolution(n_channels, SMALL_WIDTHS[0], 3, padding=1, bias=False)
        self.bn = Normalisation(SMALL_WIDTHS[0])
        widths = [SMALL_WIDTHS[0]] + [width for width in SMALL_WIDTHS for _ in range((depth - 2) // 6)]
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in pairwise(widths)))
        self.last = Scores(SMALL_WIDTHS[-1], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (b, n_channels, h, w) to scores (b, n_classes)."""
        x = self.blocks(self.bn(self.first(x)))
        scores: torch.Tensor = self.last(x.mean(dim=(2, 3)))
        return scores


def convolution(n_in: int, n_out: int, size: int, stride: int = 1, active: bool = True) -> nn.Sequential:
    """A convolution without bias, and the normalisation after it."""
    conv = Convolution(n_in, n_out, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, Normalisation(n_out, active))


class Residual(nn.Module):
    """y = relu(shortcut(x) + branch(x)); the shortcut is a 1 × 1 convolution where the shape changes (option B)."""

    def __init__(self, branch: nn.Module, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        same = n_in == n_out and stride == 1
        self.shortcut = nn.Identity() if same else convolution(n_in, n_out, 1, stride, active=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
        return functional.relu(self.shortcut(x) + self.branch(x))


def basic(n_in: int, width: int, stride: int) -> Residual:
    """Two 3 × 3 convolutions."""
    branch = nn.Sequential(convolution(n_in, width, 3, stride), convolution(width, width, 3, active=False))
    return Residual(branch, n_in, width, stride)


def bottleneck(n_in: int, width: int, stride: int) -> Residual:
    """1 × 1 down, 3 × 3, 1 × 1 up; the 3 × 3 has the stride, which loses less than the paper's 1 × 1."""
    branch = nn.Sequential(
        convolution(n_in, width, 1),
        convolution(width, width, 3, stride),
        convolution(width, WIDENING * width, 1, active=False),
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
        self.last = Scores(n_in, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (b, n_channels, h, w) to scores (b, n_classes)."""
        x = functional.max_pool2d(self.first(x), 3, stride=2, padding=1)
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
