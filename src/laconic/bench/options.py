"""What a suite's options must be, told before any work."""

from collections.abc import Sequence

import torch

from laconic.bench.network import MAX_HOSTS, bits_per_second


def require_known(asked: Sequence[str], known: Sequence[str], what: str) -> None:
    """A ValueError that names the first of `asked` that is not in `known`, or that nothing was asked for."""
    for name in asked:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    if not asked:
        raise ValueError(f"no {what} to run; choose from {', '.join(known)}")


def require_at_least(least: float, options: object, *names: str) -> None:
    """A ValueError that names the first of these options that is given and smaller."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def require_network(ranks: int, rate: str | None) -> None:
    """A ValueError if there can be no such network."""
    if not 2 <= ranks <= MAX_HOSTS:
        raise ValueError(f"ranks must be from 2 to {MAX_HOSTS}, got {ranks}")
    if rate is not None:
        bits_per_second(rate)


def require_device(device: str, instead: str) -> None:
    """A ValueError if this is neither "cpu" nor a GPU that is there.

    instead  what happens if no device is given
    """
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda, got {device!r}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA GPU here; leave --device out to {instead}")
