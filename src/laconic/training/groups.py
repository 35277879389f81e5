"""Parameters that are exchanged together.

Groups are made once, from the parameters alone. They do not follow DDP's buckets, which change after the first step: so
what is quantised with what, and with which random numbers, is the same in every run and after every restart.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import torch

from laconic.training.policy import Policy


@dataclass(frozen=True, slots=True)
class Group:
    """A run of parameters, flattened one after another.

    index       place in the order of exchange, and the tensor's number in the random streams
    compressed  whether the codec applies; otherwise float32
    names       the parameters, by name
    shapes      their shapes
    """

    index: int
    compressed: bool
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def cuts(self) -> list[int]:
        """Where each parameter begins in the flat group, and where the last ends."""
        return [0, *accumulate(shape.numel() for shape in self.shapes)]

    @property
    def n_values(self) -> int:
        """Values in the group."""
        return self.cuts[-1]

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters' parts of a flat (n_values,) tensor, in their own shapes."""
        cuts = self.cuts
        return {
            name: flat[first : first + shape.numel()].view(shape)
            for name, first, shape in zip(self.names, cuts, self.shapes, strict=False)
        }


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name; `ValueError` if none does.

    >>> list(trainable(torch.nn.Linear(2, 2)))
    ['weight', 'bias']
    """
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"{type(model).__name__} has no parameters that require a gradient")
    return found


def make_groups(parameters: Iterable[tuple[str, torch.Tensor]], policy: Policy) -> list[Group]:
    """Groups of parameters: the compressed ones last parameter first, as backward yields them; then the rest.

    >>> net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    >>> [(group.compressed, group.names) for group in make_groups(net.named_parameters(), Policy())]
    [(True, ('1.weight', '0.weight')), (False, ('1.bias', '0.bias'))]
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy such as Policy(min_values=1024), got {policy!r}")
    backwards = list(parameters)[::-1]
    for name, p in backwards:
        _check_real(name, p)
    groups: list[Group] = []
    for compressed in (True, False):
        chosen = [(name, p) for name, p in backwards if policy.compresses(p) == compressed]
        for run in _runs(chosen, policy.group_values):
            names, shapes = tuple(name for name, _ in run), tuple(p.shape for _, p in run)
            groups.append(Group(len(groups), compressed, names, shapes))
    return groups


def described(groups: Iterable[Group]) -> dict[str, list[int] | list[str]]:
    """Shapes and groups as plain values, for ranks to compare; groups come last where the names are sorted.

    >>> described(make_groups(torch.nn.Linear(64, 64).named_parameters(), Policy()))["what group 0 holds"]
    ['compressed', 'weight']
    """
    found: dict[str, list[int] | list[str]] = {}
    for group in groups:
        found |= {f"shape of {name}": list(shape) for name, shape in zip(group.names, group.shapes, strict=True)}
        found[f"what group {group.index} holds"] = ["compressed" if group.compressed else "float32", *group.names]
    return found


def _runs(parameters: list[tuple[str, torch.Tensor]], n_values: int) -> list[list[tuple[str, torch.Tensor]]]:
    """Cut into runs of about n_values: a run is closed once it is full, and before a parameter that fills one alone."""
    runs: list[list[tuple[str, torch.Tensor]]] = []
    filled = n_values
    for name, p in parameters:
        if filled >= n_values or p.numel() >= n_values:
            runs.append([])
            filled = 0
        runs[-1].append((name, p))
        filled += p.numel()
    return runs


def _check_real(name: str, p: torch.Tensor) -> None:
    if p.is_complex():  # a copy to float32 would drop the imaginary part
        raise TypeError(
            f"parameter {name} is {str(p.dtype).removeprefix('torch.')}, and only real numbers are exchanged; "
            "keep it as torch.view_as_real(...), and call torch.view_as_complex in forward"
        )
