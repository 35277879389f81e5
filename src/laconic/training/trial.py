"""The same few steps of training under several ways to average gradients, step by step in turn; for benchmarks."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import codec as make_codec
from laconic.exchange import Accounting, Communicator
from laconic.kernels import Stream
from laconic.training.compressor import Compressor
from laconic.training.ddp import compress
from laconic.training.problems import Problem, problem

ONE_BUCKET_MB = 2**14
"""For PyTorch's PowerSGD hook, which over Gloo crashes or hangs where DDP has several buckets (torch 2.13); it seems to
start their all-reduces from callbacks, whose order differs from rank to rank."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to average gradients, by plain values.

    hook      "fp32" (DDP as it is), "bf16" or "powersgd" (PyTorch's own hooks), or "laconic"
    scheme    of laconic's codec; with `coder` and `options` as in `laconic.codec`
    exchange  of laconic
    """

    hook: str
    scheme: str = ""
    coder: str = "fixed"
    exchange: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """One way under trial on this rank."""

    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    compressor: Compressor | None
    seconds: list[float] = field(default_factory=list)


def trial_on_rank(
    tell: Callable[[str], None],
    *,
    ways: dict[str, dict[str, Any]],
    steps: int,
    warmup_steps: int,
    problem_name: str,
    width: int,
    batch_size: int,
    seeds: int = 1,
) -> dict[str, dict[str, Any]]:
    """For each way: seconds of each timed step, training loss at the end, bytes sent a step, a digest of the weights.

    Step t of all ways comes before step t + 1 of any, on the same batches, from the same initial weights. All of it is
    done `seeds` times, each with other weights, batches and random numbers: seconds of all, means of the rest.
    """
    task = problem(problem_name, width)
    chosen = {label: Way(**way) for label, way in ways.items()}
    found = []
    for seed in range(seeds):
        lanes = {label: _lane(way, task, seed) for label, way in chosen.items()}
        _run(tell, lanes, task, seed, (steps, warmup_steps), batch_size)
        found.append({label: _look(lane, task) for label, lane in lanes.items()})
        for lane in lanes.values():
            if lane.compressor is not None:
                lane.compressor.close()
    return {label: _merged([looks[label] for looks in found]) for label in ways}


def _run(
    tell: Callable[[str], None],
    lanes: dict[str, _Lane],
    task: Problem,
    seed: int,
    counts: tuple[int, int],
    batch_size: int,
) -> None:
    """All steps of all lanes; `counts` are those of timed and of first steps."""
    comm, (steps, warmup_steps) = Communicator.over(), counts
    for step in range(warmup_steps + steps):
        tell(f"seed {seed + 1}, step {step + 1} of {warmup_steps + steps}")
        rows = _rows(len(task.x), seed, step, comm, batch_size)
        for lane in lanes.values():
            if step == warmup_steps and lane.compressor is not None:
                lane.compressor.totals = Accounting()  # the first steps compile kernels
            comm.all_reduce(torch.zeros(1))()
            start = time.perf_counter()
            _step(lane, task.x[rows], task.y[rows])
            if step >= warmup_steps:
                lane.seconds.append(time.perf_counter() - start)


def _lane(way: Way, task: Problem, seed: int) -> _Lane:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = task.network()
    model = DistributedDataParallel(network, bucket_cap_mb=ONE_BUCKET_MB if way.hook == "powersgd" else None)
    compressor = _attach(model, way, seed)
    return _Lane(model, torch.optim.SGD(model.parameters(), lr=task.learning_rate, momentum=0.9), compressor)


def _attach(model: DistributedDataParallel, way: Way, seed: int) -> Compressor | None:
    if way.hook == "laconic":
        codec = make_codec(way.scheme, way.coder, **way.options)
        return compress(model, codec, exchange=way.exchange, seed=seed, error_every=0)
    if way.hook == "bf16":
        model.register_comm_hook(None, _bf16)
    elif way.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif way.hook != "fp32":
        raise ValueError(f"unknown hook {way.hook!r}; choose one of fp32, bf16, powersgd, laconic")
    return None


def _bf16(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """PyTorch's hook; under its own name DDP refuses it without NCCL, though Gloo sums bfloat16 as well."""
    future: torch.futures.Future[torch.Tensor] = default_hooks.bf16_compress_hook(group, bucket)
    return future


def _rows(n: int, seed: int, step: int, comm: Communicator, batch_size: int) -> torch.Tensor:
    """The samples of this rank's batch: a random draw, the same for every way."""
    key = Stream(seed, rank=comm.rank, step=step, tensor="rows").key
    generator = torch.Generator().manual_seed(key % 2**32)  # torch's generator on the CPU looks at no more bits
    return torch.randint(n, (batch_size,), generator=generator)


def _step(lane: _Lane, x: torch.Tensor, y: torch.Tensor) -> None:
    lane.optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(lane.model(x), y)
    loss.backward()  # type: ignore[no-untyped-call]
    lane.optimizer.step()


def _look(lane: _Lane, task: Problem) -> dict[str, Any]:
    """What to compare across ranks and ways; this rank's share of the training loss."""
    comm = Communicator.over()
    x, y = task.x[comm.rank :: comm.size], task.y[comm.rank :: comm.size]
    with torch.no_grad():
        loss = float(torch.nn.functional.cross_entropy(lane.model.module(x), y))
    digest = hashlib.blake2b(digest_size=16)
    for parameter in lane.model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    n_parameters = sum(p.numel() for p in lane.model.parameters())
    seen = {"seconds": lane.seconds, "loss": loss, "digest": digest.hexdigest(), "n_parameters": n_parameters}
    if lane.compressor is None:
        return seen
    counted = ("bytes_sent", "encode_seconds", "wire_seconds", "decode_seconds")
    return seen | {name: getattr(lane.compressor.totals, name) / len(lane.seconds) for name in counted}


def _merged(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """What was seen with each seed, in one."""
    means = {key: sum(look[key] for look in looks) / len(looks) for key in looks[0] if key not in ("seconds", "digest")}
    return means | {
        "seconds": [seconds for look in looks for seconds in look["seconds"]],
        "digest": " ".join(look["digest"] for look in looks),
        "n_parameters": looks[0]["n_parameters"],
    }
