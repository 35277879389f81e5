"""Train under Ray Train with gradients in 4 bits, and fit a linear model on the same workers.

Ray starts the workers and sets up the process group, on one machine or on a cluster; inside is ordinary PyTorch, to
which `laconic.compress` is added as under torchrun.

    pip install "ray[train]"                              # run with 2.60
    python ray_train.py                                   # two workers, over Gloo; over NCCL with USE_GPU = True
"""

import numpy as np
import ray
import ray.train
import ray.train.torch
import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import laconic

WORKERS, USE_GPU, STEPS = 2, False, 50


def train() -> dict[str, float]:
    """What each worker runs; what the first returns is the result."""
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    rank, size = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
    model = DistributedDataParallel(network)
    laconic.compress(model, laconic.NUQSGD(bits=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        X = torch.randn(64, 64, generator=generator)
        loss = mse_loss(model(X.to(device))[:, 0], X[:, :8].sum(1).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sent = laconic.stats(model)

    rng = np.random.default_rng(0)  # the same rows on every worker, which takes its columns of them
    X = rng.standard_normal((2000, 40)).astype(np.float32)
    fitted = laconic.CASGDRegressor(random_state=0, max_iter=20, tol=None).fit(X, X[:, :8].sum(1))
    return {"loss": loss.item(), "ratio": sent["ratio"], "workers": size, "r2": fitted.score(X, X[:, :8].sum(1))}


def main() -> None:
    """Start the workers, and print what the first returned."""
    scaling = ray.train.ScalingConfig(num_workers=WORKERS, use_gpu=USE_GPU)
    found = ray.train.torch.TorchTrainer(train, scaling_config=scaling).fit().return_value
    print(f"{found['workers']} workers: loss {found['loss']:.2f}, sent {found['ratio']:.1f} times fewer bytes")
    print(f"a linear model on the same workers: R² {found['r2']:.3f}")


if __name__ == "__main__":
    main()
