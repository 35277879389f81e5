"""What each rank does in the suite `papers nuqsgd` with real processes: the same training, under DDP."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.papers.nuqsgd.methods import Method
from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.pictures import Pictures, open_pictures
from benchmarks.papers.nuqsgd.seen import Seen
from benchmarks.papers.nuqsgd.simulate import Schedule, batch_of, new_network, new_optimizer, wait_for
from laconic.bench.ranks import barrier, digest
from laconic.exchange import Communicator
from laconic.training import compress
from laconic.training.compressor import Compressor


@dataclass(slots=True)
class RankLane:
    """One method on one rank."""

    seen: Seen
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
        self.seen.seconds.append(time.perf_counter() - began)

    def found(self) -> dict[str, Any]:
        """As JSON values, with a digest of the weights."""
        found = self.seen.found(self.model, self.compressor.totals.bytes_sent)
        return {**found, "digest": digest(self.model.parameters())}


def nuqsgd_on_rank(tell: Callable[[str], None], *, options: Mapping[str, Any]) -> dict[str, Any]:
    """Train with every method; what was seen of each."""
    asked = NUQSGDOptions(**options)
    comm = Communicator.over()
    device = device_of(asked.device, comm.rank)
    tell("reading the images")
    pictures = open_pictures(asked.dataset, asked.data, device, asked.images)
    schedule = asked.schedule(pictures.n_train)
    lanes = [_lane(method, asked, pictures, schedule, device) for method in asked.chosen()]
    train(lanes, asked.chosen(), pictures, schedule, comm, tell)
    found = {"images": pictures.about, "lanes": [lane.found() for lane in lanes]}
    for lane in lanes:
        lane.compressor.close()
    return found


def device_of(name: str, rank: int) -> torch.device:
    """The rank's own GPU, where there are enough; several ranks share one otherwise."""
    if name != "cuda":
        return torch.device(name)
    return torch.device("cuda", rank % torch.cuda.device_count())


def train(
    lanes: Sequence[RankLane],
    methods: Sequence[Method],
    pictures: Pictures,
    schedule: Schedule,
    comm: Communicator,
    tell: Callable[[str], None],
) -> None:
    """Step t of all lanes comes before step t + 1 of any; rank r has the r-th of the iteration's mini-batches."""
    size, points = schedule.workers * schedule.batch_size, set(schedule.looked_at)
    mine = slice(comm.rank * schedule.batch_size, (comm.rank + 1) * schedule.batch_size)
    for t in range(schedule.iterations + 1):
        x, y = (part[mine] for part in batch_of(pictures, t, size, schedule.seed))
        if t in points:
            tell(f"iteration {t} of {schedule.iterations}")
            if comm.rank == 0:
                for lane in lanes:
                    totals = lane.compressor.totals
                    lane.seen.look(
                        lane.model.module, lane.compressor.groups, totals.bytes_sent, methods, pictures, x, y
                    )
        if t < schedule.iterations:
            for lane in lanes:
                barrier(comm)
                lane.step(x, y, schedule.rate(t))


def _lane(
    method: Method, options: NUQSGDOptions, pictures: Pictures, schedule: Schedule, device: torch.device
) -> RankLane:
    net = new_network(options.model, pictures, schedule.seed, device)
    model = DistributedDataParallel(net, broadcast_buffers=False)
    exchange = options.exchange if method.lossy else "all_reduce"
    compressor = compress(model, method.codec, exchange=exchange, seed=schedule.seed, error_every=0)
    return RankLane(Seen(method), model, new_optimizer(net, schedule), compressor)
