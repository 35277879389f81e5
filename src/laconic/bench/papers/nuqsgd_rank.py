"""What each rank does in the suite `papers nuqsgd` with real processes: the same training, under DDP."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.bench.papers import probe
from laconic.bench.papers.methods import Method
from laconic.bench.papers.nuqsgd import NUQSGDOptions, about
from laconic.bench.papers.pictures import Pictures, open_pictures
from laconic.bench.papers.simulate import (
    Schedule,
    batch_of,
    finite,
    judge,
    looked_at,
    new_network,
    new_optimizer,
    wait_for,
)
from laconic.errors import LaconicError
from laconic.exchange import Communicator
from laconic.training import compress
from laconic.training.compressor import Compressor


@dataclass(slots=True)
class RankLane:
    """One method on one rank; fields as in `simulate.Lane`."""

    method: Method
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    compressor: Compressor
    seconds: list[float] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    at_full: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def step(self, x: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """One iteration on this rank's mini-batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        began = time.perf_counter()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        wait_for(x.device)
        self.seconds.append(time.perf_counter() - began)

    def look(self, pictures: Pictures, methods: list[Method], x: torch.Tensor, y: torch.Tensor) -> None:
        """Add a point, as `simulate.look` does; rank 0 alone does it."""
        net: torch.nn.Module = self.model.module
        loss, accuracy = judge(net, pictures)
        point: dict[str, Any] = {"iteration": len(self.seconds), "seconds": sum(self.seconds)}
        point |= {"bytes": self.compressor.totals.bytes_sent, "loss": finite(loss), "accuracy": accuracy}
        parts = probe.gradient(net, self.compressor.groups, x, y)
        if self.method.lossy:
            point["variance"] = finite(probe.normalised_variance(parts, self.method.quantizer))
        else:
            for method in methods:
                if method.lossy:
                    self.at_full.setdefault(method.name, []).append(looked_at(parts, method))
        self.curve.append(point)


def nuqsgd_on_rank(tell: Callable[[str], None], *, options: Mapping[str, Any]) -> dict[str, Any]:
    """Train with every method; what was seen of each. What is the user's to mend comes back as {"complaint": …}."""
    asked = NUQSGDOptions(**options)
    comm = Communicator.over()
    device = device_of(asked.device, comm.rank)
    tell("reading the images")
    try:
        pictures = open_pictures(asked.dataset, asked.data, device, asked.images)
        schedule = asked.schedule(pictures.n_train)
    except LaconicError as error:
        return {"complaint": str(error)}
    lanes = [_lane(method, asked, pictures, schedule, device) for method in asked.chosen()]
    train(lanes, pictures, schedule, comm, tell)
    found = {"images": about(pictures), "lanes": [_seen(lane) for lane in lanes]}
    for lane in lanes:
        lane.compressor.close()
    return found


def device_of(name: str, rank: int) -> torch.device:
    """The rank's own GPU, where there are enough; several ranks share one otherwise."""
    if name != "cuda":
        return torch.device(name)
    return torch.device("cuda", rank % torch.cuda.device_count())


def train(
    lanes: list[RankLane], pictures: Pictures, schedule: Schedule, comm: Communicator, tell: Callable[[str], None]
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
                    lane.look(pictures, [other.method for other in lanes], x, y)
        if t < schedule.iterations:
            for lane in lanes:
                comm.all_reduce(torch.zeros(1))()
                lane.step(x, y, schedule.rate(t))


def _lane(
    method: Method, options: NUQSGDOptions, pictures: Pictures, schedule: Schedule, device: torch.device
) -> RankLane:
    net = new_network(options.model, pictures, schedule.seed, device)
    model = DistributedDataParallel(net, broadcast_buffers=False)
    exchange = options.exchange if method.lossy else "all_reduce"
    compressor = compress(model, method.codec, exchange=exchange, seed=schedule.seed, error_every=0)
    return RankLane(method, model, new_optimizer(net, schedule), compressor)


def _seen(lane: RankLane) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    for parameter in lane.model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return {
        "n": sum(p.numel() for p in lane.model.parameters()),
        "digest": digest.hexdigest(),
        "seconds": lane.seconds,
        "bytes_sent": lane.compressor.totals.bytes_sent / len(lane.seconds),
        "curve": lane.curve,
        "at_full": lane.at_full,
    }
