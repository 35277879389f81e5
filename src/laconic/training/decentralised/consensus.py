"""All nodes' models together: their average, and how far they are from it."""

import math

import torch

from laconic.exchange import Communicator


def average(model: torch.nn.Module, comm: Communicator) -> dict[str, torch.Tensor]:
    """The mean over ranks of parameters and floating-point buffers, as a state dict; other buffers are one's own.

    >>> net = torch.nn.Linear(1, 1)
    >>> average(net, Communicator())["bias"].equal(net.bias)
    True
    """
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    real = [name for name, value in own.items() if value.is_floating_point()]
    flat = torch.cat([own[name].reshape(-1).float() for name in real])
    comm.all_reduce(flat)()
    flat /= comm.size
    pieces = flat.split_with_sizes([own[name].numel() for name in real])
    return own | {
        name: piece.view(own[name].shape).to(own[name].dtype) for name, piece in zip(real, pieces, strict=True)
    }


def distance(parameters: dict[str, torch.nn.Parameter], comm: Communicator) -> float:
    """√(1/n Σ_i ‖x_i − x̄‖²)."""
    x = torch.cat([p.detach().reshape(-1).float() for p in parameters.values()])
    mean = x.clone()
    comm.all_reduce(mean)()
    squares = (x - mean / comm.size).square().sum()
    comm.all_reduce(squares)()
    return math.sqrt(float(squares) / comm.size)
