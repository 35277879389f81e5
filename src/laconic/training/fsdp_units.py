"""The units of a `fully_shard`ed model: which parameters each reduce-scatter carries, and where they lie in it.

FSDP2 hands the gradients of a unit (what one call of `fully_shard` took together) over as one flat tensor of as many
rows as there are ranks. Row r is what rank r gets: its part of each parameter, one after another, with zeros where a
parameter does not divide by the number of ranks. Names are not handed over; they follow from the order and the sizes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Any

import torch

from laconic.errors import InvalidOption, Option
from laconic.training.groups import Group, Policy, make_groups

NATIVE = ("_reduce_scatter_comm", "_all_gather_comm", "_all_reduce_hook", "mesh_info", "post_forward_mesh_info")
MOST_SUMS = 2**16
"""Most sums of sizes to try when telling by a gradient's size which parameters it is of."""


@dataclass(frozen=True, slots=True)
class ShardedGroup(Group):
    """A group whose flat tensor has a row for each rank, as FSDP2 lays it out.

    dims     dimension that each parameter is cut along
    chunks   shape of one rank's part of each, padding included
    n_ranks  ranks that have a part
    """

    dims: tuple[int, ...]
    chunks: tuple[torch.Size, ...]
    n_ranks: int

    @property
    def cuts(self) -> list[int]:
        """Where each parameter begins in a row, and where the last ends."""
        return [0, *accumulate(chunk.numel() for chunk in self.chunks)]

    @property
    def n_values(self) -> int:
        return self.n_ranks * self.cuts[-1]

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters' parts of a flat (n_values,) tensor, each as (n_ranks, *chunk)."""
        rows = flat.view(self.n_ranks, -1)
        return {
            name: rows[:, first : first + chunk.numel()].view(self.n_ranks, *chunk)
            for name, first, chunk in zip(self.names, self.cuts, self.chunks, strict=False)
        }

    def parts(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters' values put together, in their own shapes: a state does not depend on the number of ranks.

        >>> size, half = torch.Size([3, 2]), torch.Size([2, 2])
        >>> group = ShardedGroup(0, True, ("weight",), (size,), dims=(0,), chunks=(half,), n_ranks=2)
        >>> group.parts(torch.arange(8.0))["weight"]
        tensor([[0., 1.],
                [2., 3.],
                [4., 5.]])
        """
        found = zip(self.views(flat).items(), self.shapes, self.dims, strict=True)
        return {name: torch.cat(view.unbind(), dim).narrow(dim, 0, shape[dim]) for (name, view), shape, dim in found}

    def fill(self, flat: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> None:
        for name, place, dim, first, n in self._pieces(flat):
            place.narrow(dim, 0, n).copy_(parts[name].narrow(dim, first, n))
        self.clear_padding(flat)

    def clear_padding(self, flat: torch.Tensor) -> None:
        """Set the padding to zero, so that a saved memory is complete without it."""
        for _, place, dim, _, n in self._pieces(flat):
            place.narrow(dim, n, place.shape[dim] - n).zero_()

    def _pieces(self, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, int, int, int]]:
        """For each parameter and rank: name, view of its part, dimension cut, first index along it and how many."""
        for (name, view), shape, dim in zip(self.views(flat).items(), self.shapes, self.dims, strict=True):
            for r, place in enumerate(view):
                first = min(shape[dim], r * place.shape[dim])
                yield name, place, dim, first, min(place.shape[dim], shape[dim] - first)


@dataclass(frozen=True, slots=True)
class Columns:
    """Some columns of a matrix, in its order."""

    slices: tuple[slice, ...]

    @property
    def widths(self) -> list[int]:
        """Number of columns in each slice."""
        return [s.stop - s.start for s in self.slices]

    def is_all_of(self, matrix: torch.Tensor) -> bool:
        """Whether these are all columns of `matrix`."""
        return sum(self.widths) == matrix.shape[1]

    def take(self, matrix: torch.Tensor) -> torch.Tensor:
        """The columns as one flat tensor, row after row: the matrix itself if they are all it has, else a copy."""
        if self.is_all_of(matrix):
            return matrix.view(-1)
        return torch.cat([matrix[:, s] for s in self.slices], dim=1).view(-1)

    def put(self, values: torch.Tensor, matrix: torch.Tensor) -> None:
        """Write values, in the order of `take`, to the columns, unless they are there already."""
        if values.data_ptr() != matrix.data_ptr():
            sources = values.view(len(matrix), -1).split_with_sizes(self.widths, dim=1)
            torch._foreach_copy_([matrix[:, s] for s in self.slices], list(sources))


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The parameters that FSDP2 exchanges together, in one reduce-scatter and one all-gather.

    name        the module's, from the root of the model
    module      the `FSDPModule`; the first of several that `fully_shard` took together
    fsdp        torch's own `FSDPParamGroup`
    native      the attributes of `fsdp` that compression replaces, as they were
    parameters  torch's `FSDPParam`s that require a gradient, by name, in the order of a row
    groups      the compressed parameters, and the others
    weights     the same with frozen parameters, and their columns in the matrix that FSDP2 gathers
    """

    name: str
    module: Any
    fsdp: Any
    native: dict[str, Any]
    parameters: dict[str, Any]
    groups: tuple[ShardedGroup, ...]
    weights: tuple[tuple[ShardedGroup, Columns], ...]

    @property
    def title(self) -> str:
        """The name, in messages."""
        return self.name or "the root"

    @property
    def weight_dtypes(self) -> set[torch.dtype]:
        """The dtypes that weights are gathered in; normally one."""
        param_dtype = self.fsdp.mp_policy.param_dtype
        return {param_dtype} if param_dtype else {p.sharded_param.dtype for p in self.fsdp.fsdp_params}

    def check_weights(self) -> None:
        """Raise `InvalidOption` if this unit's weights cannot be sent by a codec."""
        all_gather, dtypes = type(self.fsdp._all_gather_comm).__name__, self.weight_dtypes
        if all_gather != "DefaultAllGather":
            problem = f"has an all-gather of its own, {all_gather}"
        elif len(dtypes) > 1:
            names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            problem = f"gathers weights of several types, {names}"
        elif any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in self.fsdp.fsdp_params):
            problem = "has weights that say themselves how they are gathered"
        else:
            return
        raise InvalidOption(f"{self.title} {problem}; leave ", Option("weight_codec"), " out")

    def columns(self, width: int) -> Iterator[tuple[ShardedGroup, Columns, Columns]]:
        """For each group, the columns of its gradients in the unit's row of `width` values, and in its own row."""
        places = self._places(width)
        for group in self.groups:
            present = [(name, first) for name, first in zip(group.names, group.cuts, strict=False) if name in places]
            if present:
                own = (slice(first, first + places[name].stop - places[name].start) for name, first in present)
                yield group, Columns(tuple(places[name] for name, _ in present)), Columns(tuple(own))

    def _places(self, width: int) -> dict[str, slice]:
        """The slice of each parameter in the unit's row; those without a gradient are left out.

        Parameters frozen since are left out. Which others have no gradient follows from the size of the row: raises
        `ValueError` if no set of parameters has that size, or more than one.
        """
        widths = {
            name: p.padded_sharded_param_size.numel()
            for name, p in self.parameters.items()
            if p.sharded_param.requires_grad
        }
        names = list(widths) if sum(widths.values()) == width else self._names_of(widths, width)
        return _slices({name: widths[name] for name in names})

    def _names_of(self, widths: dict[str, int], width: int) -> list[str]:
        """The one set of parameters whose widths add up to `width`."""
        sets: dict[int, list[list[str]]] = {0: [[]]}  # at most two by their sum, in the order of a row
        for name in widths:
            for total, found in list(sets.items()) if len(sets) < MOST_SUMS else []:
                longer = total + widths[name]
                sets[longer] = [*sets.get(longer, []), *([*names, name] for names in found)][:2]
        if len(sets.get(width, [])) != 1 or len(sets) >= MOST_SUMS:
            raise ValueError(
                f"{self.title}: a gradient of {width} values per rank came, and that does not tell which "
                "parameters it is of; use all of them in forward, and thaw none after compress()"
            )
        return sets[width][0]


def find_units(model: torch.nn.Module, policy: Policy) -> list[Unit]:
    """The units with parameters that require a gradient; `ValueError` if one cannot be compressed, or there is none."""
    prefix = {id(module): f"{name}." if name else "" for name, module in model.named_modules()}
    units: list[Unit] = []
    for name, module, fsdp, n_groups in _parameter_groups(model):
        _check(name or "the root", fsdp, n_groups)
        everything = {f"{prefix[id(p._module_info.module)]}{p._module_info.param_name}": p for p in fsdp.fsdp_params}
        parameters = {name: p for name, p in everything.items() if p.sharded_param.requires_grad}
        if parameters:
            first = 1 + max((group.index for unit in units for group, _ in unit.weights), default=-1)
            n_ranks = fsdp.mesh_info.shard_mesh_size
            groups = _groups(parameters, policy, first, n_ranks)
            places = _slices({name: p.padded_sharded_param_size.numel() for name, p in everything.items()})
            weights = tuple(
                (group, Columns(tuple(places[name] for name in group.names)))
                for group in _groups(everything, policy, first, n_ranks)
            )
            native = {one: getattr(fsdp, one) for one in NATIVE}
            units.append(Unit(name, module, fsdp, native, parameters, groups, weights))
    if not units:
        raise ValueError(f"{type(model).__name__} has no sharded parameters that require a gradient")
    return units


def count_units(model: torch.nn.Module) -> int:
    """The number of units, those without a trainable parameter included."""
    return sum(1 for _ in _parameter_groups(model))


def _slices(widths: Mapping[str, int]) -> dict[str, slice]:
    """Consecutive slices of these widths, by name."""
    cuts = accumulate(widths.values(), initial=0)
    return {name: slice(first, first + width) for (name, width), first in zip(widths.items(), cuts, strict=False)}


def _groups(parameters: dict[str, Any], policy: Policy, first: int, n_ranks: int) -> tuple[ShardedGroup, ...]:
    """One group of the compressed parameters and one of the others, in the order of a row; `first` is the next index.

    A unit is exchanged whole, as FSDP2 does, whatever `policy.group_values` is. A parameter that is also parallel in
    another way has the shape of its part on this rank.
    """
    shapes = {
        name: torch.empty(p._orig_size, dtype=p.sharded_param.dtype, device="meta") for name, p in parameters.items()
    }
    found = make_groups(list(shapes.items())[::-1], policy, group_values=inf)
    return tuple(
        ShardedGroup(
            first + group.index,
            group.compressed,
            group.names,
            group.shapes,
            tuple(parameters[name].fsdp_placement.dim for name in group.names),
            tuple(parameters[name].padded_sharded_param_size for name in group.names),
            n_ranks,
        )
        for group in found
    )


def is_sharded(module: torch.nn.Module) -> bool:
    """Whether `fully_shard` was called with this module; torch.distributed.fsdp need not be imported to ask."""
    return hasattr(module, "set_custom_reduce_scatter")


def replica_group(fsdp: Any) -> torch.distributed.ProcessGroup | None:
    """The ranks that have the same part of the model's copies; None if there is one copy."""
    group: torch.distributed.ProcessGroup | None = getattr(fsdp.mesh_info, "replicate_process_group", None)
    return group


def leave_out_replicas(fsdp: Any) -> None:
    """Have FSDP2 reduce the gradients of a unit over the inner dimension of the mesh only; parameters stay on both."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo

    both = fsdp.mesh_info
    inner = FSDPMeshInfo(both.mesh, shard_mesh_dim=both.shard_mesh_dim)
    inner.reduce_scatter_process_group = getattr(both, "reduce_scatter_process_group", None)
    if fsdp.post_forward_mesh_info is both:
        fsdp.post_forward_mesh_info = inner
    fsdp.mesh_info = inner


def _parameter_groups(model: torch.nn.Module) -> Iterator[tuple[str, Any, Any, int]]:
    """Name, module, `FSDPParamGroup` and number of such groups of each unit. Only the modules are public in torch."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        state: Any = module._get_fsdp_state() if is_sharded(module) else None
        if state is None or id(state) in seen:
            continue
        seen.add(id(state))
        groups = getattr(state, "_fsdp_param_groups", None)
        groups = [state._fsdp_param_group] if groups is None else groups  # torch 2.11
        for fsdp in groups:
            if fsdp is not None:
                yield name, module, fsdp, len(groups)


def _check(name: str, fsdp: Any, n_groups: int) -> None:
    """Raise `ValueError` if this unit's reduce-scatter cannot be compressed; the message says what to do."""
    reduce_scatter, info = type(fsdp._reduce_scatter_comm).__name__, fsdp.mesh_info
    if n_groups > 1:
        problem = "has parameters on several meshes; call fully_shard for the parameters of each mesh"
    elif not hasattr(info, "shard_process_group"):
        problem = "is replicated, not sharded; wrap it in DistributedDataParallel"
    elif reduce_scatter == "UnitExchange":
        problem = "is compressed already; call compress() once, for the whole model"
    elif reduce_scatter != "DefaultReduceScatter":
        problem = f"has a reduce-scatter of its own, {reduce_scatter}; leave that out"
    elif replica_group(fsdp) is not None and fsdp._all_reduce_hook is not None:
        problem = "has an all-reduce hook, which is where compressed gradients are exchanged; leave that out"
    else:
        return
    raise ValueError(f"{name} {problem}")
