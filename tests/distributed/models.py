"""Small models and a few steps of training, for rank processes."""

import torch
from torch.nn.parallel import DistributedDataParallel

import laconic

device = torch.device("cpu")
"""Where models and batches are; `pool` changes it on ranks that have a GPU."""


def network(seed: int = 0, width: int = 48) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(20, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 5),
    ).to(device)


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 20, generator=generator)
    y = (x[:, :5] + 0.1 * torch.randn(8, 5, generator=generator)).argmax(dim=1)
    return x.to(device), y.to(device)


def wrap(group, codec, *, net=None, policy=None, make=None, **options):
    """A compressed model; small groups, so that there are several. `make` makes its optimizer, `model.optimizer`."""
    ours = ("exchange", "seed", "error_every", "timeout", "optimizer", "metric")
    compress_options = {k: options.pop(k) for k in ours if k in options}
    model = DistributedDataParallel(net or network(), process_group=group, **options)
    if make is not None:
        model.optimizer = compress_options["optimizer"] = make(model)
    if codec is not None:
        policy = policy or laconic.Policy(min_values=100, group_values=1000, alone=True)
        laconic.compress(model, codec, policy=policy, **compress_options)
    return model


def train(model, optimizer, steps, rank: int) -> list[float]:
    losses = []
    for step in steps:
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def sgd(model, lr: float = 0.05) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adamw(model, lr: float = 0.01) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def weights(model) -> torch.Tensor:
    """All of them, those of a sharded model gathered."""
    whole = (getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters())
    return torch.cat([p.detach().reshape(-1).float() for p in whole])
