"""The papers' networks by name."""

from collections.abc import Sequence

from torch import nn

from benchmarks.papers.nuqsgd.resnet_cifar import DEPTHS, CifarResNet
from benchmarks.papers.nuqsgd.resnet_imagenet import BLOCKS, ImageNetResNet

LARGE = tuple(f"resnet-{depth}" for depth in BLOCKS)
"""For images of 224 by 224."""
NETWORKS = (*(f"resnet-{depth}" for depth in DEPTHS), *LARGE)


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
