"""Ranks as processes that train a small model or fit a GLM, with checkpoints that a kill may interrupt.

A checkpoint is one file per rank, each written atomically, and after all of them the file `latest` that names it.
"""

import gc
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic import Codec, Differences, Policy
from laconic.atomic_write import atomic_write
from laconic.glm.fit import fit_file
from tests.distributed.models import adamw, batch, network, sgd
from tests.glm.fits import changed, small_job

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "laconic.bench.fsdp", "tests.warm", "campaign.ranks"])
SMALL = Policy(min_values=100, group_values=1000, alone=True)
LIMIT = timedelta(minutes=30)
"""Timeout of collectives; longer than that of a trial, which ends ranks that hang."""


@dataclass(frozen=True, slots=True)
class Death:
    """When a rank kills itself: its number, the step, and the moment in the step, one of MOMENTS."""

    rank: int
    step: int
    moment: str


MOMENTS = ("before", "backward", "writing", "written", "agreed", "named")


class Training:
    """A model in training, whose state can be saved and loaded."""

    def __init__(self, kind: str, scheme: str, rank: int) -> None:
        make, codec, options = SCHEMES[kind][scheme]
        net = network()
        self.rank, self.node = rank, None
        if kind == "decentralised":
            self.net, self.optimizer = net, sgd(net)
            self.node = codec(net, self.optimizer, laconic.Ring(), policy=SMALL, **options)
            return
        if kind == "FSDP":
            for layer in net:
                if isinstance(layer, torch.nn.Linear):
                    fully_shard(layer)
        self.net = fully_shard(net) if kind == "FSDP" else DistributedDataParallel(net)
        self.optimizer = make(self.net)
        laconic.compress(self.net, codec, policy=SMALL, seed=5, optimizer=self.optimizer, **options)

    def step(self, number: int, inside: Callable[[], object] = lambda: None) -> None:
        """Train one step; `inside` is called in the backward pass."""
        x, y = batch(self.rank, number)
        self.optimizer.zero_grad()
        out = self.net(x)
        out.register_hook(lambda _: inside())
        torch.nn.functional.cross_entropy(out, y).backward()  # type: ignore[no-untyped-call]
        (self.node or self.optimizer).step()

    def state(self) -> dict[str, Any]:
        """This rank's state for a restart."""
        own = self.node.state_dict() if self.node else laconic.state_dict(self.net)
        return {"net": _local(self.net.state_dict()), "optimizer": _local(self.optimizer.state_dict()), "own": own}

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        with torch.no_grad():
            for name, value in self.net.state_dict().items():
                getattr(value, "_local_tensor", value).copy_(state["net"][name])
        self.optimizer.load_state_dict(_like(state["optimizer"], list(self.net.parameters())))
        if self.node:
            self.node.load_state_dict(state["own"])
        else:
            laconic.load_state_dict(self.net, state["own"])

    def result(self) -> torch.Tensor:
        """This rank's parameters."""
        return torch.cat([_local(p.detach()).reshape(-1) for p in self.net.parameters()])


def _local(value: Any) -> Any:
    """The value with every sharded tensor replaced by this rank's shard."""
    if isinstance(value, dict):
        return {name: _local(one) for name, one in value.items()}
    return getattr(value, "_local_tensor", value)


def _like(state: dict[str, Any], parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The inverse of `_local` for an optimizer's state: shards of parameters become sharded tensors again."""
    from torch.distributed.tensor import DTensor

    def part(value: Any, p: torch.Tensor) -> Any:
        if isinstance(p, DTensor) and isinstance(value, torch.Tensor) and value.shape == p._local_tensor.shape:
            return DTensor.from_local(
                value, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride()
            )
        return value

    found = {i: {name: part(value, parameters[i]) for name, value in own.items()} for i, own in state["state"].items()}
    return {**state, "state": found}


FINE = laconic.NUQSGD(bits=4, bucket_size=256)
SCHEMES: dict[str, dict[str, tuple[Any, Any, dict[str, Any]]]] = {
    "DDP": {
        "fp32": (sgd, "fp32", {}),
        "bf16": (sgd, "bf16", {}),
        "nuqsgd": (sgd, FINE, {}),
        "nuqsgd rans": (sgd, Codec(FINE, laconic.RANS()), {"exchange": "all_gather"}),
        "qsgd elias": (sgd, Codec(laconic.QSGD(bits=4, bucket_size=256), laconic.Elias()), {}),
        "ef-sign": (sgd, laconic.ErrorFeedback(laconic.Sign(bucket_size=256)), {}),
        "dithered, adamw": (adamw, laconic.Dithered(error=0.1), {}),
        "rotated": (sgd, laconic.Rotated(bits=4, bucket_size=256), {"exchange": "scatter_reduce"}),
    },
    "FSDP": {
        "nuqsgd": (sgd, FINE, {}),
        "ef-sign": (sgd, laconic.ErrorFeedback(laconic.Sign(bucket_size=256)), {}),
        "dithered, bf16 weights": (sgd, laconic.Dithered(error=0.1), {"weight_codec": "bf16"}),
        "nuqsgd, differences": (sgd, FINE, {"weight_codec": Differences()}),
    },
    "decentralised": {
        "dpsgd": (sgd, laconic.DPSGD, {}),
        "dcd": (sgd, laconic.DCDPSGD, {"codec": FINE}),
        "ecd": (sgd, laconic.ECDPSGD, {"codec": FINE}),
        "ecd elias": (sgd, laconic.ECDPSGD, {"codec": Codec(FINE, laconic.Elias())}),
    },
    "GLM": {
        "ca_sgd": (None, None, {}),
        "sgd": (None, None, {"solver": "sgd", "s": 1}),
        "recipe C": (None, None, {"recipe": "C"}),
        "momentum": (None, None, {"momentum": 0.5}),
        "teams": (None, None, {"teams": 2, "average_every": 1, "average_codec": "ef-sign"}),
    },
}
"""By kind and scheme of training: optimizer, codec, options."""


def train(rank: int, job: dict[str, Any], begun: Callable[[], None]) -> torch.Tensor:
    """Train from the latest checkpoint, writing one every few steps; returns the final parameters."""
    folder, steps, every, death = Path(job["folder"]), job["steps"], job["every"], job.get("death")

    def may_die(step: int, moment: str) -> None:
        if death == Death(rank, step, moment):
            os.kill(os.getpid(), signal.SIGKILL)

    training, latest = Training(job["kind"], job["scheme"], rank), folder / "latest"
    first = int(latest.read_text()) if latest.exists() else 0
    if first:
        training.load(torch.load(folder / f"{first}-{rank}", weights_only=True))
    for step in range(first, steps):
        may_die(step, "before")
        training.step(step, partial(may_die, step, "backward"))
        if step == first:
            begun()
        if (step + 1) % every == 0:
            with atomic_write(folder / f"{step + 1}-{rank}", "wb") as file:
                torch.save(training.state(), file)
                may_die(step, "writing")
            may_die(step, "written")
            dist.barrier()
            may_die(step, "agreed")
            if rank == 0:
                with atomic_write(latest) as file:
                    file.write(str(step + 1))
            may_die(step, "named")
    return training.result()


def fit(rank: int, job: dict[str, Any]) -> torch.Tensor:
    """Fit a GLM, resuming from its checkpoint if there is one; a rank may kill itself after a segment."""
    folder, death = Path(job["folder"]), job.get("death")
    left = -1 if death is None or death.rank != rank else 1 + death.step

    def may_die(_: object) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    kept, own = folder / "kept", SCHEMES["GLM"][job["scheme"]][2]
    small = small_job(folder.parent / "rows.safetensors", folder / "model.safetensors")
    fit_file(
        changed(small, checkpoint=str(kept), checkpoint_every=0.0, resume=kept.exists(), **own), callbacks=[may_die]
    )
    model = laconic.glm.model.Model.load(folder / "model.safetensors")
    return torch.cat([model.coef.reshape(-1), model.intercept])


def soak(rank: int, job: dict[str, Any], begun: Callable[[], None]) -> torch.Tensor:
    """Train for long; returns the growth of memory in KiB, of descriptors and of threads, and how often parameters
    differed between ranks. Both are checked every 100 steps, resources from step `warm` on.

    Growth is the peak of the second half over that of the first: Python allocates by the MiB, and releases and
    reallocates one repeatedly.
    """
    training = Training(job["kind"], job["scheme"], rank)
    held, differed, middle = torch.zeros(2, 3), 0, (job["warm"] + job["steps"]) // 2
    for step in range(job["steps"]):
        training.step(step)
        if step % 100 == 99 and step >= job["warm"]:
            held[int(step >= middle)] = torch.maximum(held[int(step >= middle)], _held())
        if step % 100 == 99 and job["kind"] == "DDP":
            sums = torch.tensor([zlib.crc32(training.result().numpy().tobytes())])
            found = [torch.zeros_like(sums) for _ in range(dist.get_world_size())]
            dist.all_gather(found, sums)
            differed += any(int(one) != int(sums) for one in found)
    good = bool(training.result().isfinite().all())
    return torch.tensor([*(held[1] - held[0]).tolist(), differed + (not good)])


def _held() -> torch.Tensor:
    """KiB of memory, descriptors and threads of this process."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return torch.tensor(
        [int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"])]
    ).float()


WORK = {"train": train, "soak": soak}


def be_a_rank(rank: int, size: int, job: dict[str, Any], attempt: int, pipe: Any) -> None:
    """The process of a rank: join the others, work, and send the result."""
    torch.set_num_threads(1)
    folder = Path(job["folder"])
    try:
        if job.get("late") == rank:
            time.sleep(job["seconds"])
        dist.init_process_group("gloo", f"file://{folder}/store-{attempt}", job.get("limit", LIMIT), size, rank)
        begun = partial(pipe.send, "begun")
        found = fit(rank, job) if job["kind"] == "GLM" else WORK[job.get("work", "train")](rank, job, begun)
        pipe.send(found.numpy().tobytes())
    except Exception as error:  # noqa: BLE001 (sent to the parent)
        pipe.send((type(error).__name__, str(error)))
    os._exit(0)  # skip the orderly shutdown of connections to killed ranks


@contextmanager
def ranks(size: int, job: dict[str, Any], attempt: int = 0) -> Iterator[tuple[list[Any], list[Any]]]:
    """Start the processes of a job; yields them and our ends of their pipes, and kills those left at the end."""
    Path(job["folder"]).mkdir(parents=True, exist_ok=True)
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(size)]
    started = [
        CONTEXT.Process(target=be_a_rank, args=(rank, size, job, attempt, theirs), daemon=True)
        for rank, (_, theirs) in enumerate(pipes)
    ]
    try:
        for one, (_, theirs) in zip(started, pipes, strict=True):
            one.start()
            theirs.close()
        yield started, [ours for ours, _ in pipes]
    finally:
        for one in started:
            one.kill()
            one.join()
        for ours, _ in pipes:
            ours.close()


def results(pipes: list[Any]) -> list[Any]:
    """The result of each rank: bytes, or an error; None for a rank that died. After a death the others are not waited
    for, as in torchrun."""
    told, waiting = dict.fromkeys(range(len(pipes))), dict(enumerate(pipes))
    while waiting:
        ready = wait(list(waiting.values()))
        for rank in [rank for rank, pipe in waiting.items() if pipe in ready]:
            try:
                told[rank] = waiting[rank].recv()
            except EOFError:
                del waiting[rank]
                if told[rank] in (None, "begun"):
                    return [found if found != "begun" else None for found in told.values()]
    return list(told.values())
