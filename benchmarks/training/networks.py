"""A byte-level transformer and a convolutional network, many replicas of each side by side.

A replica is one worker of one seed. Every parameter has a leading dimension M of replicas and every product is batched,
so a single backward pass gives the separate gradients of all workers of all seeds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

N_BYTES, CONTEXT = 256, 128
Shapes = dict[str, tuple[int, ...]]
Parameters = Mapping[str, torch.Tensor]


class Network(ABC):
    """Base of networks: shapes of the parameters of one replica, and the loss of M replicas.

    A parameter whose name ends in `weight` and has two dimensions is (outputs, inputs), as in torch.
    """

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Shapes of the parameters by name."""

    @abstractmethod
    def scores(self, p: Parameters, x: torch.Tensor, buffers: Parameters) -> torch.Tensor:
        """Scores (M, n, classes) of each replica; p and buffers (M, …), x (M, batch, …)."""

    def loss(self, p: Parameters, x: torch.Tensor, y: torch.Tensor, buffers: Parameters = {}) -> torch.Tensor:  # noqa: B006
        """Mean cross-entropy (M,) of each replica; y (M, batch, …)."""
        return cross_entropy(self.scores(p, x, buffers), y)

    def buffers(self) -> dict[str, torch.Tensor]:
        """Buffers of one replica, such as running means."""
        return {}

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        """Initial parameters of one replica: uniform on ±1/√inputs, normalisations 1 and 0, embeddings normal."""
        generator = torch.Generator().manual_seed(seed)
        found: dict[str, torch.Tensor] = {}
        for name, shape in self.shapes.items():
            kind = name.rpartition(".")[2]
            if kind in ("scale", "shift"):
                found[name] = torch.full(shape, float(kind == "scale"))
            elif kind in ("embedding", "position"):
                found[name] = torch.randn(shape, generator=generator) * (1.0 if kind == "embedding" else 0.02)
            else:
                n_inputs = self.shapes[name.replace("bias", "weight")][1]
                found[name] = (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(n_inputs)
        return found


def linear(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    """A linear layer: (M, n, inputs) to (M, n, outputs)."""
    return torch.baddbmm(p[f"{name}.bias"][:, None], x, p[f"{name}.weight"].transpose(1, 2))


def normed(p: Parameters, name: str, x: torch.Tensor, n: int = 1) -> torch.Tensor:
    """Layer normalisation of (M, N, d) over each n rows of d values, with a scale and a shift for each of the d."""
    z = functional.layer_norm(x.view(len(x), -1, n * x.shape[-1]), (n * x.shape[-1],)).view_as(x)
    return torch.addcmul(p[f"{name}.shift"][:, None], z, p[f"{name}.scale"][:, None])


def dense(name: str, n_in: int, n_out: int) -> Shapes:
    return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}


def norm(name: str, d: int) -> Shapes:
    return {f"{name}.scale": (d,), f"{name}.shift": (d,)}


def cross_entropy(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of each replica (M,), of scores (M, n, classes) and classes (M, …)."""
    losses = functional.cross_entropy(scores.flatten(0, 1).float(), y.flatten(), reduction="none")
    return losses.view(len(scores), -1).mean(1)


@dataclass(frozen=True, slots=True)
class ByteTransformer(Network):
    """A byte-level transformer: pre-norm blocks of causal attention and a perceptron four times as wide.

    >>> sum(math.prod(shape) for shape in ByteTransformer().shapes.values())
    3323648
    """

    width: int = 256
    depth: int = 4
    context: int = CONTEXT
    head_width: ClassVar[int] = 32

    @property
    def shapes(self) -> Shapes:
        d = self.width
        found: Shapes = {"embedding": (N_BYTES, d), "position": (self.context, d)}
        for i in range(self.depth):
            found |= norm(f"{i}.norm1", d) | dense(f"{i}.qkv", d, 3 * d) | dense(f"{i}.out", d, d)
            found |= norm(f"{i}.norm2", d) | dense(f"{i}.up", d, 4 * d) | dense(f"{i}.down", 4 * d, d)
        return found | norm("norm", d) | dense("head", d, N_BYTES)

    def scores(self, p: Parameters, x: torch.Tensor, buffers: Parameters) -> torch.Tensor:
        h = self.embedded(p, x)
        for i in range(self.depth):
            h = self.block(within(p, f"{i}."), h, x.shape[2])
        return self.read(p, h)

    def embedded(self, p: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Bytes (M, B, T) to (M, B T, d)."""
        own = torch.arange(len(x), device=x.device)[:, None, None] * N_BYTES
        h = functional.embedding(x + own, p["embedding"].flatten(0, 1)) + p["position"][:, None, : x.shape[2]]
        return h.flatten(1, 2)

    def block(self, p: Parameters, h: torch.Tensor, T: int) -> torch.Tensor:
        """One block with its own parameters: (M, B T, d) to the same shape."""
        h = h + linear(p, "out", self._attention(linear(p, "qkv", normed(p, "norm1", h)), T))
        return h + linear(p, "down", functional.gelu(linear(p, "up", normed(p, "norm2", h))))

    def read(self, p: Parameters, h: torch.Tensor) -> torch.Tensor:
        """(M, B T, d) to scores of the next bytes (M, B T, 256)."""
        return linear(p, "head", normed(p, "norm", h))

    def _attention(self, qkv: torch.Tensor, T: int) -> torch.Tensor:
        """(M, B T, 3 d) to (M, B T, d)."""
        heads = self.width // self.head_width
        q, k, v = qkv.view(-1, T, 3, heads, self.head_width).permute(2, 0, 3, 1, 4).unbind(0)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return a.transpose(1, 2).reshape(*qkv.shape[:2], self.width)


def within(p: Parameters, prefix: str) -> Parameters:
    """The parameters whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}


class Part(nn.Module):
    """Base of torch modules that hold parameters of one replica, under any names."""

    def __init__(self, net: ByteTransformer, given: Parameters) -> None:
        super().__init__()
        self.net, self.names = net, list(given)
        for name, value in given.items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(value))

    @property
    def held(self) -> Parameters:
        """The parameters by name, with a replica dimension M = 1."""
        return {name: getattr(self, name.replace(".", "_"))[None] for name in self.names}


class Block(Part):
    """A block of a `ByteTransformer` as a torch module."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(1, B T, d) to the same shape."""
        return self.net.block(self.held, h, self.net.context)


class ByteModule(Part):
    """A `ByteTransformer` as a torch module, for DDP and FSDP2; on a GPU products are in bfloat16 (autocast)."""

    def __init__(self, net: ByteTransformer) -> None:
        every = net.initial(0)
        super().__init__(net, {name: value for name, value in every.items() if not name[0].isdigit()})
        self.blocks = nn.ModuleList(Block(net, within(every, f"{i}.")) for i in range(net.depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores (batch, 256, length) of the bytes after x (batch, length)."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            h = self.net.embedded(self.held, x[None])
            for block in self.blocks:
                h = block(h)
            scores = self.net.read(self.held, h)
        return scores.float().view(*x.shape, N_BYTES).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class ConvNet(Network):
    """Four 3 × 3 convolutions, all but the first of stride 2, each normalised over its image; then a linear layer.

    A convolution is a product with the nine shifted images concatenated, so that replicas are a batch.

    >>> sum(math.prod(shape) for shape in ConvNet((1, 28, 28), 10).shapes.values())
    1002122
    """

    image: tuple[int, int, int]
    n_classes: int
    width: int = 64

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.image[0], self.width, 2 * self.width, 4 * self.width, 4 * self.width)

    @property
    def shapes(self) -> Shapes:
        found: Shapes = {}
        for i, (n_in, n_out) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            found |= dense(f"{i}.conv", 9 * n_in, n_out) | norm(f"{i}.norm", n_out)
        n_pixels = math.prod(-(-side // 8) for side in self.image[1:])
        return found | dense("head", n_pixels * self.widths[-1], self.n_classes)

    def scores(self, p: Parameters, x: torch.Tensor, buffers: Parameters) -> torch.Tensor:
        M, B = x.shape[:2]
        h = x.permute(0, 1, 3, 4, 2)
        for i, width in enumerate(self.widths[1:]):
            columns = shifted(h, stride=2 if i else 1)
            height, breadth = columns.shape[2:4]
            z = linear(p, f"{i}.conv", columns.reshape(M, -1, columns.shape[-1]))
            z = normed(p, f"{i}.norm", z, height * breadth)
            h = functional.relu(z).view(M, B, height, breadth, width)
        return linear(p, "head", h.flatten(2))


def shifted(x: torch.Tensor, stride: int) -> torch.Tensor:
    """(M, B, h, w, c) to (M, B, ⌈h / stride⌉, ⌈w / stride⌉, 9 c): each pixel's neighbourhood, zero beyond the edge."""
    h, w = x.shape[2:4]
    padded = functional.pad(x, (0, 0, 1, 1, 1, 1))
    return torch.cat([padded[:, :, i : i + h : stride, j : j + w : stride] for i in range(3) for j in range(3)], -1)


class OfModule(Network):
    """A torch module whose layers take parameters (S, k, …); see `benchmarks.papers.nuqsgd.networks`.

    make     makes the module, with weights drawn from torch's generator
    workers  k: consecutive replicas that have the same weights while gradients are recorded
    """

    def __init__(self, make: Callable[[], nn.Module], workers: int) -> None:
        self.make, self.module, self.workers = make, make(), workers

    @property
    def shapes(self) -> Shapes:
        return {name: tuple(p.shape) for name, p in self.module.named_parameters()}

    def initial(self, seed: int) -> dict[str, torch.Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return {name: p.detach() for name, p in self.make().named_parameters()}

    def buffers(self) -> dict[str, torch.Tensor]:
        return {name: buffer.clone() for name, buffer in self.module.named_buffers()}

    def scores(self, p: Parameters, x: torch.Tensor, buffers: Parameters) -> torch.Tensor:
        """If gradients are recorded, the module is in training mode and buffers are updated."""
        kind = x.device.type
        self.module.train(torch.is_grad_enabled())
        images = x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
        found = self.in_turn if kind == "cpu" else self.together
        return found({**p, **buffers}, images)

    def in_turn(self, tensors: Parameters, images: torch.Tensor) -> torch.Tensor:
        """Scores of one replica after the other by torch's layers, twice as fast on a CPU."""
        own = {name: each.unbind(0) for name, each in tensors.items()}
        replicas = [{name: each[i] for name, each in own.items()} for i in range(len(images))]
        return torch.stack([functional_call(self.module, *both) for both in zip(replicas, images, strict=True)])

    def together(self, tensors: Parameters, images: torch.Tensor) -> torch.Tensor:
        """Scores of all replicas at once."""
        k = self.workers if self.module.training else 1
        joint = {name: each.view(-1, k, *each.shape[1:]) for name, each in tensors.items()}
        scores: torch.Tensor = functional_call(self.module, joint, images.flatten(0, 1))
        return scores.view(*images.shape[:2], -1)
