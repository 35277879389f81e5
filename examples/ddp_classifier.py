"""Train a small convolutional network on handwritten digits under DistributedDataParallel, with gradients in 4 bits.

An ordinary PyTorch script, to which one line was added: `laconic.compress`.

    python ddp_classifier.py                              # one process: nothing is sent, the rest is the same
    torchrun --nproc-per-node 4 ddp_classifier.py         # four ranks, over Gloo; over NCCL where each has a GPU
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import laconic
from laconic.data import load_digits

N_TRAIN, N_EPOCHS = 1500, 5


def join() -> torch.device:
    """Join the other ranks that torchrun started, or be a group of one."""
    local_rank, n_local = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    own_gpu = torch.cuda.device_count() >= n_local
    backend = "nccl" if own_gpu else "gloo"
    if dist.is_torchelastic_launched():
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    if own_gpu:
        torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank) if own_gpu else torch.device("cpu")


def network() -> torch.nn.Module:
    """Two convolutions and two dense layers, 151,306 parameters, for images of 8 by 8."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 4 * 4, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )


def bytes_said(model: DistributedDataParallel) -> str:
    """What a rank sent a step, beside the 2 (P − 1) / P · 4 bytes a value of a float32 all-reduce over P ranks."""
    n_ranks, said = dist.get_world_size(), laconic.stats(model)
    if n_ranks == 1:
        return "one rank has no one to talk to; start several: torchrun --nproc-per-node 4 ddp_classifier.py"
    sent, float32 = said["bytes_sent"], 2 * (n_ranks - 1) / n_ranks * 4 * said["values"]
    return f"a step sent {sent:,.0f} bytes a rank; float32 would be {float32:,.0f}, {float32 / sent:.1f} times as many"


def train(model: DistributedDataParallel, data: TensorDataset, device: torch.device) -> None:
    """Some epochs of SGD, of which each rank gets its share; as in any script for DDP."""
    sampler = DistributedSampler(data)
    batches = DataLoader(data, batch_size=max(1, 64 // dist.get_world_size()), sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(N_EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in batches:
            loss = cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(batches)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: mean loss {total:.3f}")


def main() -> None:
    """Train on most of the digits; rank 0 tries the others."""
    device = join()
    torch.manual_seed(0)
    images, labels = load_digits()
    images = images.view(-1, 1, 8, 8)

    model = DistributedDataParallel(network().to(device))
    laconic.compress(model, laconic.NUQSGD(bits=4, bucket_size=512))  # the one added line

    train(model, TensorDataset(images[:N_TRAIN], labels[:N_TRAIN]), device)
    if dist.get_rank() == 0:
        guesses = model.module(images[N_TRAIN:].to(device)).argmax(dim=1).cpu()
        print(f"accuracy on {len(guesses)} digits not seen: {(guesses == labels[N_TRAIN:]).float().mean():.3f}")
        print(bytes_said(model))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
