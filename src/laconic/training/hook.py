"""The communication hook that DDP calls with each bucket of gradients."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laconic.errors import LaconicError
from laconic.exchange import Handle, Scheduler, pipeline_for
from laconic.training.compressor import Compressor
from laconic.training.groups import Group, trainable


@dataclass(slots=True, repr=False)
class DDPCompressor(Compressor):
    """All state of a model in DistributedDataParallel, and the backward pass under way.

    flat       by group, a buffer for gradients that do not lie together; the same memory at every step
    views      the parameters' parts of `flat`, in their shapes
    gradients  of this pass so far, by parameter, in DDP's buckets
    handles    of the groups that are being averaged, which are the first of `groups`
    futures    that DDP waits for, each with its bucket
    """

    flat: dict[int, torch.Tensor] = field(default_factory=dict)
    views: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)
    futures: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _scheduler: Scheduler | None = None

    def collect(self, bucket: dist.GradBucket) -> None:  # type: ignore[name-defined]
        """Take the gradients of a bucket, and start every group that is now complete, in the groups' order."""
        self._names = self._names or {id(p): name for name, p in self.parameters.items()}
        self._scheduler = self._scheduler or pipeline_for(self.comm, self.device)
        for parameter, shown in zip(bucket.parameters(), bucket.gradients(), strict=True):
            self.gradients[self._names[id(parameter)]] = _in_parameter_layout(shown, parameter)
        for group in self.groups[len(self.handles) :]:
            if not all(name in self.gradients for name in group.names):
                return
            exchange, task = self.task(group, self._values(group))
            self.handles.append(self._scheduler.start(exchange, replace(task, late=True)))

    def _values(self, group: Group) -> torch.Tensor:
        """A group's gradients as one row, to be averaged in place: the gradient itself, or copies in `flat`."""
        first = self.gradients[group.names[0]]
        if _is_flat_group(group, first):
            return first.view(-1)
        if group.index not in self.flat:
            self.flat[group.index] = torch.zeros(group.n_values, dtype=torch.float32, device=self.device)
            self.views |= group.views(self.flat[group.index])
        for name in group.names:
            self.views[name].copy_(self.gradients[name])
        return self.flat[group.index]

    def finish(self) -> None:
        """Wait for all groups, write the averages into DDP's buckets and count the step."""
        for handle in self.handles:
            handle.run()  # before the first is settled, for which the host may wait
        for group, handle in zip(self.groups, self.handles, strict=True):
            self.count(group, handle.wait())
            for name in group.names:
                if not _is_flat_group(group, self.gradients[name]):
                    self.gradients[name].copy_(self.views[name])
        self.finish_step()
        self.release()

    def release(self) -> None:
        """Complete DDP's futures with its buckets as they are, and clear the state for the next backward pass."""
        for future, buffer in self.futures:
            future.set_result(buffer)
        self.gradients, self.handles, self.futures = {}, [], []

    def close(self) -> None:
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None
        Compressor.close(self)


@dataclass(slots=True)
class HookState:
    """The state of one model's hook, which DDP registers once.

    make        sets `compressor` at the first backward pass, if there was no process group before
    compressor  the model's state
    error       makes the error that the last backward pass failed with: DDP cannot continue after it
    """

    make: Callable[[], object] | None = None
    compressor: DDPCompressor | None = None
    error: Callable[[], Exception] | None = None

    def ready(self) -> DDPCompressor:
        """The compressor, made now if it was not before."""
        if self.compressor is None and self.make is not None:
            self.make()
        if self.compressor is None:
            raise RuntimeError("this hook has no compressor; register what laconic.hook gave")
        return self.compressor

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """None in a copy or pickle of the model: there DDP registers no hook, and connections cannot be copied."""
        warnings.warn(
            "a copy of a compressed model is not compressed; to train it, call laconic.compress on it", stacklevel=2
        )
        return type(None), ()


def average_gradients(
    state: HookState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Average one DDP bucket:

    1. at the first step, and at the first after a state was loaded, compare configurations across ranks;
    2. start every group that is now complete; its gradients are copied into one row, unless there is only one;
    3. with the last bucket, wait for all groups and write the averages back into DDP's buckets.

    DDP waits for the futures only after its last bucket, so nothing is lost by completing them all there. On a GPU
    "wait" means that the current stream does; over NCCL the host queues everything and goes on.
    """
    compressor = state.ready()
    devices: list[int | str | torch.device] | None = [compressor.device] if compressor.device.type == "cuda" else None
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    compressor.futures.append((future, bucket.buffer()))
    try:
        compressor.agree()
        compressor.collect(bucket)
        if bucket.is_last():
            compressor.finish()
    except BaseException as error:
        compressor.release()
        parts = error.parts if isinstance(error, LaconicError) else (f"an earlier backward pass failed: {error!r}",)
        kind = type(error) if isinstance(error, LaconicError) else RuntimeError
        state.error = partial(kind, *parts)
        raise
    return future


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


def averaged(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that DDP averages: those that required a gradient when it was made, and were not to be ignored.

    Only DDP's buckets know them (a parameter may have been frozen since), and they are not public: this asks the
    private `reducer._get_zeros_like_grad_buckets`. Of a module that is not in DDP yet, those that require a gradient.
    """
    if not isinstance(model, DistributedDataParallel):
        ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
        _check_dense(model, ignored)
        return {name: p for name, p in trainable(model).items() if name not in ignored}
    _check_dense(model.module, set(model.parameters_to_ignore))
    buckets = model.reducer._get_zeros_like_grad_buckets()
    found = {id(p) for bucket in buckets for p in bucket.parameters()}
    return {name: p for name, p in model.module.named_parameters() if id(p) in found}


def _check_dense(model: torch.nn.Module, ignored: set[str]) -> None:
    for name, module in model.named_modules():
        is_sparse = isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse
        weight = f"{name}.weight".removeprefix(".")
        if is_sparse and module.weight.requires_grad and weight not in ignored:
            raise ValueError(f"the gradient of {weight} is sparse, and only dense ones are averaged; use sparse=False")
