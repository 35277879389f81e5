"""A real gradient: of a small network that has begun to learn the digits."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laconic.bench.protocol import one_thread
from laconic.data import load_digits

BATCH_SIZE = 128
LEARNING_RATE = 0.2
WIDTH = 512


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a training run.

    gradient    (n_parameters,) float32, of one mini-batch
    n_steps     steps taken before it
    first_loss  of the first mini-batch
    loss        of the mini-batch the gradient is of
    accuracy    share of all images the network names correctly
    """

    gradient: torch.Tensor
    n_steps: int
    first_loss: float
    loss: float
    accuracy: float


@one_thread()
def digits_gradient(*, n_steps: int = 40, seed: int = 0) -> Snapshot:
    """Train 64-512-512-10 with plain SGD for `n_steps` mini-batches; the gradient of the next one.

    On one thread, so that sums have the same order, and the gradient the same bits, however many cores there are.

    >>> digits_gradient(n_steps=1).gradient.shape
    torch.Size([301066])
    """
    images, labels = load_digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(images.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        )
        batches = [torch.randint(len(images), (BATCH_SIZE,)) for _ in range(n_steps + 1)]
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)
    losses = []
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = cross_entropy(net(images[batch]), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        if step < n_steps:
            optimizer.step()
    gradient = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    with torch.no_grad():
        accuracy = (net(images).argmax(1) == labels).float().mean().item()
    return Snapshot(gradient, n_steps, losses[0], losses[-1], accuracy)
