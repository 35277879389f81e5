"""A rank crashes in the middle of training; torchrun starts all of them again, and the end is the same, bit for bit.

Gradients go in 1 bit a value with error feedback, so each rank remembers what it has not said yet: besides model and
optimizer, every rank saves `laconic.state_dict`. Nothing is unpickled when it is read again.

    torchrun --nproc-per-node 4 --max-restarts 1 resume_after_crash.py
    python resume_after_crash.py                          # crashes; the same command again goes on
"""

import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import laconic

N_STEPS, SAVE_EVERY, CRASH_AT = 60, 10, 34
FOLDER = Path("resume_after_crash.checkpoints")  # where you are; removed at the end


def join() -> None:
    """Join the other ranks of this attempt, or be a group of one."""
    if dist.is_torchelastic_launched():
        store, rank, n_ranks = next(dist.rendezvous("env://"))
        # torchrun's store outlives a crash, and the addresses in it are those of dead ranks
        store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    else:
        store, rank, n_ranks = dist.HashStore(), 0, 1
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks)


def new_model() -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    """The model as it is before the first step."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
    model = DistributedDataParallel(net)
    laconic.compress(model, laconic.ErrorFeedback(laconic.Sign(bucket_size=512)))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train_step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, step: int) -> float:
    """One step, on a batch that follows from step and rank alone: so the data goes on where it stopped, too."""
    seed = step * dist.get_world_size() + dist.get_rank()
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(seed))
    loss = (model(x) - x.flip(dims=(1,))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def save(folder: Path, step: int, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Rank 0 saves what all ranks share, each rank what is its own; `latest` changes when all of it is there."""
    here, rank = folder / f"step-{step}", dist.get_rank()
    here.mkdir(parents=True, exist_ok=True)
    torch.save(laconic.state_dict(model), here / f"laconic-{rank}.pt")
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, here / "shared.pt")
    dist.barrier()
    if rank == 0:
        (folder / "latest.part").write_text(str(step))
        (folder / "latest.part").replace(folder / "latest")


def load(folder: Path, model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> int:
    """Go back to the last complete checkpoint; returns its step, 0 where there is none."""
    if not (folder / "latest").exists():
        return 0
    step = int((folder / "latest").read_text())
    shared = torch.load(folder / f"step-{step}" / "shared.pt", weights_only=True)
    model.module.load_state_dict(shared["model"])
    optimizer.load_state_dict(shared["optimizer"])
    own = torch.load(folder / f"step-{step}" / f"laconic-{dist.get_rank()}.pt", weights_only=True)
    laconic.load_state_dict(model, own)
    return step


def train(folder: Path | None) -> torch.Tensor:
    """All steps, with checkpoints in `folder`, and a crash unless there was one before; returns the weights."""
    model, optimizer = new_model()
    first = load(folder, model, optimizer) if folder else 0
    for step in range(first, N_STEPS):
        if folder and first == 0 and step == CRASH_AT and dist.get_rank() == dist.get_world_size() - 1:
            raise RuntimeError(f"this is the crash that was promised, at step {step}")
        loss = train_step(model, optimizer, step)
        if folder and (step + 1) % SAVE_EVERY == 0:
            save(folder, step + 1, model, optimizer)
    if dist.get_rank() == 0:
        print(f"steps {first} to {N_STEPS}: loss {loss:.3f}", flush=True)
    return torch.nn.utils.parameters_to_vector(model.parameters())


def main() -> None:
    """Train with a crash, then once more without any, and compare."""
    join()
    crashed, whole = train(FOLDER), train(None)
    if dist.get_rank() == 0:
        same = torch.equal(crashed, whole)
        print(f"{crashed.numel():,} weights after the crash and without it are the same, bit for bit: {same}")
        shutil.rmtree(FOLDER)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
