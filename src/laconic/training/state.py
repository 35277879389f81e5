"""Saving and loading the state of a compressed model: step, seed, error memory and what the metric has learnt."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from laconic.options import MAX_SEED, check_int
from laconic.training.compressor import Compressor
from laconic.training.ddp import compressor_of
from laconic.training.groups import Group

FORMAT = 1


def state_dict(model: torch.nn.Module) -> dict[str, Any]:
    """What this rank must keep to go on as if never stopped: the step count and its error memory, by parameter.

    Each rank saves its own. All values are tensors, so nothing needs pickle: `torch.load(..., weights_only=True)` and
    `torch.distributed.checkpoint` read them as they are. For the latter, put it under a key of the rank's own, as in
    `{f"laconic.{rank}": laconic.state_dict(model)}`.
    """
    compressor = compressor_of(model)
    numbers = {
        "format": FORMAT,
        "step": compressor.step,
        "seed": compressor.seed,
        "rank": compressor.rank,
        "world_size": compressor.world_size,
    }
    return {
        **{name: torch.tensor(value) for name, value in numbers.items()},
        "memory": {name: part for group, memory in _memories(compressor) for name, part in group.parts(memory).items()},
        "metric": compressor.metric.state(),
        "weights": compressor.weights.state(),
    }


def load_state_dict(model: torch.nn.Module, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Go on from a saved state; call it on every rank, after `compress`.

    state  what this rank saved; or, if the number of ranks has changed, the states of all former ranks. Where the codec
           keeps no memory, the states of all ranks are the same, and any will do

    Under the same number of ranks the run goes on bit for bit. Under another, every rank takes the mean of the former
    ranks' memories: the error that is still owed to the average, which is the mean over ranks, stays what it was.

    Ranks that loaded different steps or seeds raise `Disagreement` at the next step, as after `compress`.
    """
    compressor = compressor_of(model, on_every_rank=True)
    states: list[Any] = list(state) if isinstance(state, Sequence) else [state]
    _check(compressor, states)
    if int(states[0]["world_size"]) == compressor.world_size:
        states = [s for s in states if int(s["rank"]) == compressor.rank] or states
    compressor.step, compressor.seed, compressor.agreed = int(states[0]["step"]), int(states[0]["seed"]), False
    compressor.metric.load({name: value.to(compressor.device) for name, value in states[0].get("metric", {}).items()})
    compressor.weights.load(states[0].get("weights", {}))
    for group, memory in _memories(compressor):
        means = {name: torch.stack([s["memory"][name].to(memory) for s in states]).mean(dim=0) for name in group.names}
        group.fill(memory, means)


def _memories(compressor: Compressor) -> list[tuple[Group, torch.Tensor]]:
    """The groups with an error memory; none where the codec keeps none."""
    found = ((group, compressor.memory_of(group)) for group in compressor.groups if group.compressed)
    return [(group, memory) for group, memory in found if memory.numel()]


def _check(compressor: Compressor, states: list[Mapping[str, Any]]) -> None:
    if not states:
        raise ValueError("load_state_dict got no state")
    for s in states:
        check_format(s, FORMAT, ("step", "seed", "rank", "world_size"), ("memory",))
        for name in {"metric", "weights"} & s.keys():
            check_tensors(name, s[name])
    _check_ranks(states, compressor.rank, compressor.world_size)
    for name in ("step", "seed"):
        found = sorted({int(s[name]) for s in states})
        if len(found) > 1:
            raise ValueError(f"the states are not of one moment: their {name} is {' and '.join(map(str, found[:5]))}")
    groups = [group for group, _ in _memories(compressor)]
    shapes = {name: shape for group in groups for name, shape in zip(group.names, group.shapes, strict=True)}
    for s in states:
        check_shapes("memory", shapes, s["memory"])
        if s.get("weights") and compressor.weights.kept:
            gathered = compressor.weights.state()["values"]
            check_shapes("weights", {name: v.shape for name, v in gathered.items()}, s["weights"]["values"])


def check_format(state: object, version: int, numbers: Sequence[str], tables: Sequence[str]) -> None:
    """Raise `TypeError` or `ValueError` unless this is a state of this version, with these numbers and tables."""
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict takes what state_dict gave, got {type(state).__name__}")
    if (found := _number("format", state.get("format", version))) != version:
        raise ValueError(f"state has format {found}, this laconic reads {version}")
    missing = [name for name in ("format", *numbers, *tables) if name not in state]
    if missing:
        got = f"has no {missing[0]!r}, but {', '.join(map(str, list(state)[:5]))}" if state else "is empty"
        raise ValueError(f"load_state_dict takes what state_dict gave; this {got}")
    for name in numbers:
        _number(name, state[name])
    for name in tables:
        check_tensors(name, state[name])


def _number(name: str, value: object) -> int:
    plain = value.item() if isinstance(value, torch.Tensor) and value.shape == () else value
    return check_int(name, plain, 0, MAX_SEED, owner="state")


def check_tensors(what: str, got: object) -> None:
    """Raise `ValueError` unless this is a table of tensors with real values, or of such tables."""
    if not isinstance(got, Mapping):
        raise ValueError(f"state has no tensors by name as its {what}, but {type(got).__name__}")
    for name, value in got.items():
        if not isinstance(value, torch.Tensor):
            check_tensors(f"{what} of {name}", value)
        elif value.is_meta or value.layout != torch.strided or value.is_complex():
            kind = f"{value.dtype}, {value.layout}, on {value.device}"
            raise ValueError(f"the {what} of {name} must be a dense tensor of real numbers; the state has {kind}")


def check_shapes(what: str, wanted: Mapping[str, torch.Size], got: Mapping[str, torch.Tensor]) -> None:
    """Raise `ValueError` unless a state has tensors of the names and shapes that the model wants."""
    if wanted.keys() != got.keys():
        differing = sorted(map(str, wanted.keys() ^ got.keys()))
        raise ValueError(f"state and model differ in the {what} of {', '.join(differing[:5])}")
    for name, shape in wanted.items():
        if got[name].shape != shape:
            raise ValueError(
                f"the {what} of {name} has shape {tuple(got[name].shape)} in the state and {tuple(shape)} here"
            )


def _check_ranks(states: list[Mapping[str, Any]], rank: int, size: int) -> None:
    """Raise `ValueError` unless these are the states of all former ranks, this rank's own, or any without memory."""
    former, ranks = int(states[0]["world_size"]), sorted(int(s["rank"]) for s in states)
    if ranks == list(range(former)) or not any(s["memory"] for s in states):
        return
    if len(states) > 1:
        raise ValueError(f"need the states of ranks 0 to {former - 1}, got {ranks}")
    if former != size:
        raise ValueError(
            f"this state is from {former} ranks and there are {size} now; "
            "give load_state_dict the list of all former ranks' states"
        )
    if ranks != [rank]:
        raise ValueError(
            f"this state is from rank {ranks[0]} and this is rank {rank}, whose memory is another; "
            "give load_state_dict what this rank saved, or the list of all ranks' states"
        )
