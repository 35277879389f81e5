"""`laconic.compress`: compressed gradients under DistributedDataParallel; their hook, another codec, their end."""

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator, Exchange
from laconic.options import MAX_SEED, check_int
from laconic.quantizers import ErrorFeedback, Quantizer, Sign
from laconic.training.automatic import choose, default_codec, log
from laconic.training.compressor import Compressor, exchanges_of
from laconic.training.fsdp import compress_sharded, give_back
from laconic.training.fsdp_weights import WeightCodec
from laconic.training.groups import Group, Policy, describe, make_groups, require_policy
from laconic.training.hook import HookState, average_gradients, raise_again
from laconic.training.metric import Metric, SquaredError, metric_for, metric_kind, unwrapped
from laconic.training.wrappers import averaged, check_model


@dataclass(frozen=True, slots=True)
class Settings:
    """What `compress` was asked for besides the codec, checked; its docstring explains each."""

    optimizer: torch.optim.Optimizer | None = None
    metric: str = "auto"
    exchange: str | Exchange = "auto"
    policy: Policy | None = None
    seed: int = 0
    error_every: int = 100
    timeout: timedelta | float | None = None

    def __post_init__(self) -> None:
        checked = {
            "seed": check_int("seed", self.seed, 0, MAX_SEED),
            "error_every": check_int("error_every", self.error_every, 0),
            "optimizer": unwrapped(self.optimizer),
            "policy": require_policy(self.policy or Policy()),
            "timeout": _as_timedelta(self.timeout),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def parts(
        self, codec: Codec, groups: list[Group], parameters: Mapping[str, torch.Tensor], size: int
    ) -> tuple[Exchange, dict[int, Exchange], Metric]:
        """The exchange for this codec, those of groups with codecs of their own, and the metric."""
        exchange, own = exchanges_of(self.exchange, codec, groups, self.policy or Policy(), size)
        return exchange, own, metric_for(self.metric, self.optimizer, parameters, codec)


@dataclass(slots=True)
class _Record:
    """What is known of a compressed model.

    parts  for a codec, what `Compressor.use` takes with it
    state  only under DistributedDataParallel
    """

    compressor: Compressor
    parts: Callable[[Codec], tuple[Exchange, dict[int, Exchange], Metric]]
    state: HookState | None = None


_records: "WeakKeyDictionary[torch.nn.Module, _Record]" = WeakKeyDictionary()


def compress(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    metric: str = "auto",
    replica_codec: Codec | Quantizer | str | None = None,
    weight_codec: WeightCodec | None = None,
    exchange: str | Exchange = "auto",
    policy: Policy | None = None,
    seed: int = 0,
    error_every: int = 100,
    timeout: timedelta | float | None = None,
) -> Compressor:
    """Send this model's gradients compressed from now on. Call it on every rank, once, before the first step.

    model        a model wrapped in DistributedDataParallel, or sharded by `fully_shard`
    codec        a `Codec`, a quantizer such as `NUQSGD(bits=4)`, a scheme's name, or "auto": link and device are
                 measured for a second or two, and the one of NUQSGD at 4 or 8 bits, bfloat16 and float32 that is
                 predicted to be fastest is taken, with its exchange; `compress(...).plan.explain()` says why.
                 If left out, one that trains like float32 with this optimizer, by `training.automatic.DEFAULTS`
    optimizer    of the model, if gradients are to be quantised in its metric: divided by the root of the second moments
                 of Adam and the like, which all ranks share
    metric       "auto" chooses by the optimizer's type; "tensor" divides by the rms of the parameter's last averaged
                 gradient; "model" gives every coordinate the same error, whatever group it is in, with `Dithered`;
                 "none" does nothing. `laconic.stats` says which, and why
    replica_codec  of a sharded model with several copies (HSDP): the codec between copies; by default the same, or
                 8-bit QSGDInf where that one is biased
    weight_codec  of a sharded model: how its weights are gathered, such as "bf16" or `Differences()`; by default as
                 FSDP2 does
    exchange     "auto" (explained in `laconic.exchange.by_name`), "all_gather", "scatter_reduce", "all_reduce",
                 "nothing" (exchanges nothing, to see what perfect compression could win), or an `Exchange`;
                 of a sharded model, between copies
    policy       what stays in float32 (by default 1-D and small tensors), warm-up steps, group size
    seed         of the random streams; the same on every rank
    error_every  measure the quantisation error every so many steps, for `laconic.stats`; 0 never
    timeout      of the process groups made for the exchange, as a timedelta or in seconds; by default that of the
                 model's own. None are made for a sharded model

    Ranks that disagree on any of this, or on the model's parameters, find out at the first step: `Disagreement` is
    raised on every rank and names rank and field.

    Returns the `Compressor`, which holds the threads and connections of the exchange. They end with the model, or when
    `close()` is called on it, on every rank; then the model may be compressed again.
    """
    check_model(model)
    earlier = _records.get(model)
    if earlier is not None and not earlier.compressor.closed:
        raise ValueError("this model is compressed already; call compress() once, and set_codec() for another codec")
    settings = Settings(optimizer, metric, exchange, policy, seed, error_every, timeout)
    if not isinstance(model, DistributedDataParallel):
        return _begin_sharded(model, codec, replica_codec, weight_codec, settings, earlier)
    _leave_out(replica_codec=replica_codec, weight_codec=weight_codec)
    if earlier is not None and earlier.state is not None:  # DDP takes a hook once
        return _begin(model, codec, settings, model.process_group, earlier.state)
    state, average = hook(model, codec, **{name: getattr(settings, name) for name in Settings.__slots__})
    model.register_comm_hook(state, average)
    return compressor_of(model)


def hook(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None = None,
    *,
    process_group: dist.ProcessGroup | None = None,
    **options: Any,
) -> tuple[HookState, Callable[..., torch.futures.Future[torch.Tensor]]]:
    """State and hook for `DistributedDataParallel.register_comm_hook`, for those who register hooks themselves.

    model          a model in DistributedDataParallel; or the module that will be, even before there is a process group:
                   connections are then made, and kernels compiled, in the first backward pass
    process_group  that the module will be averaged over; by default all ranks
    options        those of `compress` for DistributedDataParallel

    `laconic.stats`, `laconic.state_dict` and `laconic.set_codec` take the model that was given here.
    """
    state, settings = HookState(), Settings(**options)
    if isinstance(model, DistributedDataParallel):
        _begin(model, codec, settings, model.process_group, state)
        model.register_forward_pre_hook(partial(raise_again, state))
    else:
        state.make = partial(_begin, model, codec, settings, process_group, state)
    return state, average_gradients


def set_codec(model: torch.nn.Module, codec: Codec | Quantizer | str | None) -> None:
    """Use another codec from the next step on, or none: float32. Call it on every rank, between the same two steps.

    Ranks that differ raise `Disagreement` at the next step. If the new codec keeps no error memory, what the old one
    had not sent yet is lost. With None, memory stays as it is, for a codec that is set later.
    """
    record = _record_of(model)
    compressor = record.compressor
    compressor.require_open()
    if codec is None:
        compressor.off, compressor.agreed = True, False
        return
    chosen = codec_for(codec)
    compressor.use(chosen, *record.parts(chosen))
    compressor.reason = "given to set_codec"
    _prepare(compressor)


def compressor_of(model: torch.nn.Module) -> Compressor:
    """The state behind a compressed model."""
    return _record_of(model).compressor


def _record_of(model: torch.nn.Module) -> _Record:
    try:
        return _records[model]
    except KeyError:
        raise ValueError("this model is not compressed; call laconic.compress(model, codec) first") from None


def _begin(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None,
    settings: Settings,
    process_group: dist.ProcessGroup | None,
    state: HookState,
) -> Compressor:
    """Make the compressor of a model, and have `state` use it."""
    parameters, policy = averaged(model), settings.policy or Policy()
    groups, device = make_groups(parameters.items(), policy), next(iter(parameters.values())).device
    chosen, reason = _chosen(codec, settings, device)
    size = dist.get_world_size(process_group) if dist.is_initialized() else 1
    plan, parts = None, None if chosen is None else settings.parts(chosen, groups, parameters, size)
    comm = Communicator.open(process_group, device, timeout=_as_timedelta(settings.timeout))
    if chosen is None or parts is None:
        chosen, exchange, plan = choose(comm, groups, device)
        parts, reason = replace(settings, exchange=exchange).parts(chosen, groups, parameters, size), plan.verdict()
    exchange, own, metric = parts
    config = {**describe(chosen, policy, groups), "exchange": repr(exchange)}
    seed, error_every = settings.seed, settings.error_every
    compressor = Compressor(groups, chosen, exchange, policy, comm, device, config, seed, error_every, plan=plan)
    compressor.exchanges, compressor.metric, compressor.parameters = own, metric, parameters
    compressor.reason = reason
    state.use(compressor, {id(p): name for name, p in parameters.items()})
    later = partial(settings.parts, groups=groups, parameters=parameters, size=size)
    _records[model] = _Record(compressor, later, state)
    weakref.finalize(model, _close_later, compressor).atexit = False
    _prepare(compressor)
    return compressor


def _chosen(
    codec: Codec | Quantizer | str | None, settings: Settings, device: torch.device
) -> tuple[Codec | None, str]:
    """The codec that was asked for, or the default, and why; None where it is to be chosen by measuring."""
    if isinstance(codec, str) and codec == "auto":
        if settings.exchange != "auto":
            raise ValueError(
                f"codec='auto' chooses the exchange, too; leave exchange={settings.exchange!r} out, or name a codec"
            )
        return None, ""
    if codec is not None:
        return codec_for(codec), "asked for"
    chosen, reason = default_codec(metric_kind(settings.metric, settings.optimizer)[0], device)
    return codec_for(chosen), reason


def _begin_sharded(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None,
    replica_codec: Codec | Quantizer | str | None,
    weight_codec: WeightCodec | None,
    settings: Settings,
    earlier: _Record | None,
) -> Compressor:
    """Make the compressor of a model of `fully_shard`."""
    kind, _ = metric_kind(settings.metric, settings.optimizer)
    needless = kind == "none" or (kind == "model" and settings.metric == "auto")
    _leave_out(timeout=settings.timeout, optimizer=None if needless else settings.optimizer or settings.metric)
    chosen, reason = default_codec(kind, next(model.parameters()).device) if codec is None else (codec, "asked for")
    if earlier is None:
        model.register_forward_pre_hook(_check_open, prepend=True)
    else:
        give_back(earlier.compressor)
    policy, seed, error_every = settings.policy or Policy(), settings.seed, settings.error_every
    compressor, between = compress_sharded(
        model, chosen, replica_codec, weight_codec, settings.exchange, policy, seed, error_every
    )
    compressor.metric = SquaredError("ranks share no second moments of a sharded model")
    compressor.reason = reason
    _records[model] = _Record(compressor, lambda codec: (*between(codec), compressor.metric))
    _prepare(compressor)
    return compressor


def _check_open(model: torch.nn.Module, *call: object) -> None:
    """Before a forward pass of a sharded model, for training: an error if its compressor is closed."""
    if torch.is_grad_enabled() and model in _records:
        _records[model].compressor.require_open()


def _prepare(compressor: Compressor) -> None:
    """Compile kernels, and log on one rank what a user may not expect."""
    seconds = compressor.prepare()
    if compressor.rank != 0:
        return
    log.info("kernels are ready, compiled or loaded in %.1f s", seconds)
    quantizer = compressor.codec.quantizer
    if compressor.passes_through:
        log.info("one rank trains alone: its gradients are left as they are; Policy(alone=True) quantises them")
    elif compressor.reason not in ("asked for", "given to set_codec") and compressor.plan is None:
        log.info("no codec was given: %r; %s", quantizer, compressor.reason)
    if isinstance(quantizer, ErrorFeedback) and isinstance(quantizer.core, Sign):
        log.warning(
            "%r sends a sign per value, late by what its memory holds: a learning rate that suits float32 may be far "
            "too large for it; try smaller ones, or QSGDInf or Dithered, which take the same as float32",
            quantizer,
        )


def _close_later(compressor: Compressor) -> None:
    """Close the compressor of a model that is gone, on a thread: garbage is collected in the middle of anything.

    A script's end waits for the thread; killed while it takes a process group down, it would abort the process.
    """
    threading.Thread(target=compressor.close, name="laconic-closing").start()


def _as_timedelta(timeout: object) -> timedelta | None:
    if timeout is None or (isinstance(timeout, timedelta) and timeout > timedelta()):
        return timeout
    if isinstance(timeout, int | float) and timeout > 0:
        return timedelta(seconds=timeout)
    raise InvalidOption(Option("timeout"), f" must be a timedelta or seconds, above 0; got {timeout!r}")


_REASONS = {
    "replica_codec": " is for models of fully_shard with several copies; leave it out",
    "weight_codec": " is for models of fully_shard, whose weights travel; leave it out",
    "timeout": " of a sharded model is that of its mesh; leave it out",
    "optimizer": " of a sharded model knows this rank's second moments only; leave it out, or give metric='none'",
}


def _leave_out(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidOption(Option(name), _REASONS[name])
