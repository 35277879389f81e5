"""What each rank does in the suite `papers nuqsgd` with real processes: the same training, under DDP."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.papers.nuqsgd.batches import ImageBatches, open_batches
from benchmarks.papers.nuqsgd.methods import Method
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.training import Schedule, TrainingLog, batch_of, new_network, new_optimizer, wait_for
from laconic.bench.ranks import barrier, digest
from laconic.bench.suite import Progress
from laconic.exchange import Communicator
from laconic.training import compress
from laconic.training.compressor import Compressor


@dataclass(slots=True)
class RankRun:
    """One method in training, on one rank."""

    log: TrainingLog
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    compressor: Compressor

    def step(self, x: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """One iteration on this rank's mini-batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        began = time.perf_counter()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        wait_for(x.device)
        self.log.seconds.append(time.perf_counter() - began)

    def result(self) -> dict[str, Any]:
        """As JSON values, with a digest of the weights."""
        result = self.log.result(self.model, self.compressor.totals.bytes_sent)
        return {**result, "digest": digest(self.model.parameters())}


def nuqsgd_on_rank(progress: Progress, *, options: Mapping[str, Any]) -> dict[str, Any]:
    """Train with every method; what was logged of each."""
    asked = NUQSGDOptions(**options)
    comm = Communicator.over()
    device = device_of(asked.device, comm.rank)
    progress("reading the images")
    batches = open_batches(asked.dataset, asked.data, device, asked.images)
    schedule = asked.schedule(batches.n_train)
    runs = [_new_run(method, asked, batches, schedule, device) for method in asked.chosen()]
    train(runs, asked.chosen(), batches, schedule, comm, progress)
    results = {"images": batches.about, "runs": [run.result() for run in runs]}
    for run in runs:
        run.compressor.close()
    return results


def device_of(name: str, rank: int) -> torch.device:
    """The rank's own GPU, where there are enough; several ranks share one otherwise."""
    if name != "cuda":
        return torch.device(name)
    return torch.device("cuda", rank % torch.cuda.device_count())


def train(
    runs: Sequence[RankRun],
    methods: Sequence[Method],
    batches: ImageBatches,
    schedule: Schedule,
    comm: Communicator,
    progress: Progress,
) -> None:
    """Step t of all runs comes before step t + 1 of any; rank r has the r-th of the iteration's mini-batches."""
    size, points = schedule.workers * schedule.batch_size, set(schedule.log_iterations)
    mine = slice(comm.rank * schedule.batch_size, (comm.rank + 1) * schedule.batch_size)
    for t in range(schedule.iterations + 1):
        x, y = (part[mine] for part in batch_of(batches, t, size, schedule.seed))
        if t in points:
            progress(f"iteration {t} of {schedule.iterations}")
            if comm.rank == 0:
                for run in runs:
                    totals = run.compressor.totals
                    run.log.add_point(
                        run.model.module, run.compressor.groups, totals.bytes_sent, methods, batches, x, y
                    )
        if t < schedule.iterations:
            for run in runs:
                barrier(comm)
                run.step(x, y, schedule.rate(t))


def _new_run(
    method: Method, options: NUQSGDOptions, batches: ImageBatches, schedule: Schedule, device: torch.device
) -> RankRun:
    net = new_network(options.model, batches, schedule.seed, device)
    model = DistributedDataParallel(net, broadcast_buffers=False)
    exchange = options.exchange if method.lossy else "all_reduce"
    compressor = compress(model, method.codec, exchange=exchange, seed=schedule.seed, error_every=0)
    return RankRun(TrainingLog(method), model, new_optimizer(net, schedule), compressor)
