"""What each rank does in the suite `ddp`."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from laconic.bench.ddp.hooks import with_hook
from laconic.bench.ddp.ways import Way
from laconic.bench.problems import Problem
from laconic.bench.ranks import digest
from laconic.bench.turns import Lane, Trial, take_turns
from laconic.codec import codec as make_codec
from laconic.exchange import Communicator
from laconic.training import compress


def ddp_on_rank(
    tell: Callable[[str], None], *, ways: Mapping[str, Mapping[str, Any]], trial: Mapping[str, Any], seeds: int
) -> dict[str, dict[str, Any]]:
    """For each way: seconds of each timed step, training loss at the end, bytes sent a step, a digest of the weights.

    All of it is done `seeds` times, each with other weights, batches and random numbers: seconds of all, means of the
    rest.
    """
    chosen = {label: Way(**way) for label, way in ways.items()}
    asked = Trial(**trial)
    task = asked.task()
    found = [_once(chosen, task, asked, seed, tell) for seed in range(seeds)]
    return {label: _merged([looks[label] for looks in found]) for label in ways}


def _once(
    ways: Mapping[str, Way], task: Problem, trial: Trial, seed: int, tell: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    lanes = {label: _lane(way, task, seed) for label, way in ways.items()}
    take_turns(lanes.values(), task, trial, lambda said: tell(f"seed {seed + 1}, {said}"), seed=seed)
    found = {label: _look(lane, task) for label, lane in lanes.items()}
    for lane in lanes.values():
        lane.close()
    return found


def _lane(way: Way, task: Problem, seed: int) -> Lane:
    network = task.new_network(seed)
    if way.hook != "laconic":
        model = with_hook(network, way.hook)
        return Lane(model, task.new_optimizer(model.parameters()))
    model, codec = DistributedDataParallel(network), make_codec(way.scheme, way.coder, **way.options)
    compressor = compress(model, codec, exchange=way.exchange, seed=seed, error_every=0)
    return Lane(model, task.new_optimizer(model.parameters()), compressor)


def _look(lane: Lane, task: Problem) -> dict[str, Any]:
    """What to compare across ranks and ways; this rank's share of the training loss."""
    comm = Communicator.over()
    return {
        "seconds": lane.seconds,
        "loss": task.loss(lane.network, slice(comm.rank, None, comm.size)),
        "digest": digest(lane.model.parameters()),
        "n_parameters": lane.n_parameters,
        **lane.a_step("bytes_sent", "encode_seconds", "wire_seconds", "decode_seconds"),
    }


def _merged(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """What was seen with each seed, in one."""
    means = {key: sum(look[key] for look in looks) / len(looks) for key in looks[0] if key not in ("seconds", "digest")}
    return means | {
        "seconds": [seconds for look in looks for seconds in look["seconds"]],
        "digest": " ".join(look["digest"] for look in looks),
        "n_parameters": looks[0]["n_parameters"],
    }
