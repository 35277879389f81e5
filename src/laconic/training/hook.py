"""The communication hook that DDP calls with each bucket of gradients."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist

from laconic.errors import LaconicError
from laconic.exchange import Accounting, Handle
from laconic.training.compressor import Compressor
from laconic.training.groups import Group


@dataclass(slots=True)
class HookState:
    """The hook of one model, and the backward pass under way.

    make        calls `use` at the first backward pass, where there was no process group before
    compressor  the model's lasting state
    names       of the parameters, by identity
    error       makes the error that the last backward pass failed with: DDP cannot go on from there
    targets     gradients to be replaced by their average, by parameter
    values      what is averaged, in place, by group
    missing     how many parameters of each group have not come yet
    devices     GPUs whose streams wait for a future when DDP does; None on the CPU
    """

    make: Callable[[], object] | None = None
    compressor: Compressor | None = None
    names: dict[int, str] = field(default_factory=dict)
    error: Callable[[], Exception] | None = None
    devices: list[int | str | torch.device] | None = None
    group_of: dict[str, int] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    targets: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[int, torch.Tensor] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)
    futures: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = field(default_factory=list)

    def use(self, compressor: Compressor, names: dict[int, str]) -> None:
        """Average by this compressor from now on."""
        self.compressor, self.names, self.make = compressor, names, None
        self.devices = [compressor.device] if compressor.device.type == "cuda" else None
        self.group_of = {name: group.index for group in compressor.groups for name in group.names}
        self.reset(compressor)

    def ready(self) -> Compressor:
        """The compressor, made now if it was not before."""
        if self.make is not None:
            self.make()
        if self.compressor is None:
            raise RuntimeError("this hook has no compressor; register what laconic.hook gave")
        return self.compressor

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """None in a copy or pickle of the model: there DDP registers no hook, and connections cannot be copied."""
        warnings.warn("a copy of a compressed model is not compressed; call laconic.compress on it", stacklevel=2)
        return type(None), ()

    def reset(self, compressor: Compressor) -> None:
        """Ready for the next backward pass."""
        self.missing = [len(group.names) for group in compressor.groups]
        self.targets, self.values, self.handles, self.futures = {}, {}, [], []


def raise_again(state: HookState | None, *call: object) -> None:
    """Before a forward pass for training: the error of the backward pass before, or that the compressor is closed.

    DDP itself would run into an assertion of its own then. `state` is None in a copy of the model.
    """
    if state is not None and torch.is_grad_enabled():
        if state.error is not None:
            raise state.error()
        if state.compressor is not None:
            state.compressor.require_open()


def average_gradients(
    state: HookState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Average one DDP bucket:

    1. at the first step, and at the first after a state was loaded, compare configurations across ranks;
    2. copy each gradient of the bucket into its group's flat buffer, unless it is a group by itself;
    3. start every group that is now complete, in the groups' order;
    4. with the last bucket, wait for all groups and write the averages back into DDP's buckets.

    DDP waits for the futures only after its last bucket, so nothing is lost by completing them all there. On a GPU
    "wait" means that the current stream does; over NCCL the host queues everything and goes on.
    """
    compressor = state.ready()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=state.devices)
    state.futures.append((future, bucket.buffer()))
    try:
        compressor.agree()
        _collect(state, compressor, bucket)
        if bucket.is_last():
            _finish(state, compressor)
    except BaseException as error:
        for pending, buffer in state.futures:
            pending.set_result(buffer)
        parts = error.parts if isinstance(error, LaconicError) else (f"an earlier backward pass failed: {error!r}",)
        kind = type(error) if isinstance(error, LaconicError) else RuntimeError
        state.error = partial(kind, *parts)
        state.reset(compressor)
        raise
    return future


def _collect(state: HookState, compressor: Compressor, bucket: dist.GradBucket) -> None:  # type: ignore[name-defined]
    for parameter, shown in zip(bucket.parameters(), bucket.gradients(), strict=True):
        name, gradient = state.names[id(parameter)], _in_parameter_layout(shown, parameter)
        group = compressor.groups[state.group_of[name]]
        if _is_flat_group(group, gradient):
            state.values[group.index] = gradient.view(-1)
        else:
            state.values[group.index] = compressor.flat(group)
            compressor.views(group)[name].copy_(gradient)
            state.targets[name] = gradient
        state.missing[group.index] -= 1
    while len(state.handles) < len(compressor.groups) and state.missing[len(state.handles)] == 0:
        group = compressor.groups[len(state.handles)]
        state.handles.append(compressor.start(group, state.values[group.index]))


def _in_parameter_layout(shown: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The gradient in the parameter's shape: buckets hold it in the parameter's strides, and show it as contiguous.

    So what is quantised together, and a saved memory, do not depend on the memory format.
    """
    if parameter.is_contiguous() or torch.empty_like(parameter, device="meta").stride() != parameter.stride():
        return shown.view(parameter.shape)  # there are gaps between its values, which the bucket does not have
    return shown.as_strided(parameter.shape, parameter.stride())


def _is_flat_group(group: Group, gradient: torch.Tensor) -> bool:
    """Whether the gradient can be averaged where it lies: large layers are most of a model, and copies cost time."""
    return len(group.names) == 1 and gradient.dtype == torch.float32 and gradient.is_contiguous()


def _finish(state: HookState, compressor: Compressor) -> None:
    step = Accounting()
    for handle in state.handles:
        handle.run()  # before the first is settled, for which the host may wait
    for group, handle in zip(compressor.groups, state.handles, strict=True):
        done = handle.wait()
        step += done.accounting
        if group.compressed:
            compressor.metric.observe(group, done.value)
            compressor.bits[group.index] = done.accounting.bits
        for name in group.names:
            if name in state.targets:
                state.targets[name].copy_(compressor.views(group)[name])
    for future, buffer in state.futures:
        future.set_result(buffer)
    compressor.finish_step(step)
    state.reset(compressor)
