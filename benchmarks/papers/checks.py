"""Checks of the papers' options before any work."""

from typing import Any

import torch

from laconic.errors import InvalidOption, Option


def check_at_least(least: int, options: Any, *names: str) -> None:
    """Raise `InvalidOption` if one of these options is given and smaller than `least`."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise InvalidOption(Option(name), f" must be at least {least}, got {value}")


def check_device(device: str, instead: str) -> None:
    """Raise `InvalidOption` if the device is neither "cpu" nor an available GPU.

    instead  what happens if no device is given
    """
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise InvalidOption(Option("device"), f" must be cpu or cuda, got {device!r}")
    if device != "cpu" and not torch.cuda.is_available():
        raise InvalidOption("there is no CUDA GPU here; leave out ", Option("device"), f" to {instead}")
