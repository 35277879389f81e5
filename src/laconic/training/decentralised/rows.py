"""A model's parameters as rows of float32, one per group."""

from collections.abc import Mapping, Sequence

import torch

from laconic.training.groups import Policy, make_groups, trainable

Row = torch.Tensor
"""The values (n,) of one group, float32."""


class Rows:
    """The parameters of a model as flat rows of float32, one per group: gathers and scatters them.

    >>> net = torch.nn.Linear(2, 3)
    >>> rows = Rows(net, Policy())
    >>> [row.numel() for row in rows.gather()]
    [9]
    """

    def __init__(self, model: torch.nn.Module, policy: Policy) -> None:
        self.parameters = trainable(model)
        self.groups = make_groups(self.parameters.items(), policy)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(iter(self.parameters.values())).device

    def gather(self) -> list[Row]:
        """Copies of the parameters."""
        return self.from_named({name: p.detach() for name, p in self.parameters.items()})

    @torch.no_grad()
    def scatter(self, rows: Sequence[Row]) -> None:
        """Write rows into the parameters."""
        for group, row in zip(self.groups, rows, strict=True):
            for name, view in group.views(row).items():
                self.parameters[name].copy_(view)

    def named(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        """Copies of rows, by parameter and in its shape."""
        found: dict[str, torch.Tensor] = {}
        for group, row in zip(self.groups, rows, strict=True):
            found |= {name: view.clone() for name, view in group.views(row).items()}
        return found

    def from_named(self, values: Mapping[str, torch.Tensor]) -> list[Row]:
        """The inverse of `named`."""
        return [
            torch.cat([values[name].reshape(-1).to(self.device, torch.float32) for name in group.names])
            for group in self.groups
        ]
