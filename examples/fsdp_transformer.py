"""Train a small transformer under FSDP2 (`fully_shard`), with gradients reduced in 4 bits.

The loop is one that larger trainers have: each step accumulates two micro-batches, gradients are clipped over all
shards, the learning rate warms up. One line was added: `laconic.compress`. The model learns to write Python, byte by
byte, from the source of one of Python's own modules.

    python fsdp_transformer.py                            # one process: nothing is sent, the rest is the same
    torchrun --nproc-per-node 4 fsdp_transformer.py       # four ranks, over Gloo; over NCCL where each has a GPU
"""

import argparse
import inspect
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import laconic

WIDTH, N_HEADS, N_BLOCKS, LENGTH = 128, 4, 2, 64
N_STEPS, N_MICRO_BATCHES, BATCH_SIZE = 30, 2, 8


class Block(nn.Module):
    """Causal attention and a feed-forward network, each after a normalisation and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, N_HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        return x + self.feed(self.norm_2(x))


class Transformer(nn.Module):
    """Bytes in, the logits of the next byte out, a row for each; 470,784 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(N_BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.bytes(text) + self.places(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(0, 1))


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


def sharded(device: torch.device) -> Transformer:
    """The model, of which each rank has a part; a unit for each block, and one for the rest."""
    torch.manual_seed(0)
    model = Transformer().to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def micro_batch(text: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Some bytes of the text, and for each the one that follows."""
    starts = torch.randint(len(text) - LENGTH, (BATCH_SIZE, 1), generator=generator)
    found = text[starts + torch.arange(LENGTH + 1)]
    return found[:, :-1], found[:, 1:]


def train(model: Transformer, text: torch.Tensor, device: torch.device) -> None:
    """AdamW with warm-up, clipping and accumulation; as in any script for FSDP2."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, N_STEPS + 1):
        total = 0.0
        for i in range(N_MICRO_BATCHES):
            model.set_requires_gradient_sync(i == N_MICRO_BATCHES - 1)
            x, y = micro_batch(text, generator)
            logits = model(x.to(device))
            loss = cross_entropy(logits, y.to(device).flatten()) / N_MICRO_BATCHES
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {total:.2f}")


def bytes_said(model: Transformer) -> str:
    """What a rank sent a step, beside the (P − 1) / P · 4 bytes a value of a float32 reduce-scatter over P ranks."""
    n_ranks, said = dist.get_world_size(), laconic.stats(model)
    if n_ranks == 1:
        return "one rank has no one to talk to; start several: torchrun --nproc-per-node 4 fsdp_transformer.py"
    sent, float32 = said["bytes_sent"], (n_ranks - 1) / n_ranks * 4 * said["values"]
    return f"a step sent {sent:,.0f} bytes a rank; float32 would be {float32:,.0f}, {float32 / sent:.1f} times as many"


def main() -> None:
    """Train; rank 0 says how it went."""
    device = join()
    text = torch.frombuffer(bytearray(inspect.getsource(argparse).encode()), dtype=torch.uint8).long()

    model = sharded(device)
    laconic.compress(model, laconic.QSGDInf(bits=4, bucket_size=512))  # the one added line

    train(model, text, device)
    if dist.get_rank() == 0:
        print(bytes_said(model))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
