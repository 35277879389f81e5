"""`laconic.compress`, `laconic.hook` and `laconic.set_codec`, for models in DistributedDataParallel and of FSDP2."""

import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator, Exchange
from laconic.quantizers import ErrorFeedback, Identity, Quantizer, Sign
from laconic.training.choices import check_stepped, choose, default_codec, log, metric_kind
from laconic.training.compressor import Compressor, Settings
from laconic.training.fsdp import ShardedCompressor
from laconic.training.fsdp_units import is_sharded
from laconic.training.fsdp_weights import WeightCodec
from laconic.training.groups import PLAIN, Policy, make_groups, require_module
from laconic.training.hook import DDPCompressor, HookState, average_gradients, averaged

_ADVICE = {
    "FullyShardedDataParallel": "FSDP1 has no hook that could quantise; shard the model by fully_shard (FSDP2)",
    "OptimizedModule": "compress the model in DistributedDataParallel first, then call torch.compile on it",
    "DataParallel": "DataParallel sends nothing between processes; use DistributedDataParallel under torchrun",
    "LightningModule": "compress trainer.strategy.model from a callback, in on_fit_start (examples/lightning_fit.py)",
    "_FabricModule": "compress the DistributedDataParallel inside, as examples/lightning_fit.py does",
    "DeepSpeedEngine": "DeepSpeed averages gradients by itself; use DistributedDataParallel or fully_shard instead",
}
"""What to do about models of other kinds, by the name of a class."""
_REPLICATED = "replicate() hides its DistributedDataParallel; wrap the model in that instead"
_OTHERWISE = "call it as compress(DistributedDataParallel(model), ...), or after fully_shard(model)"

_compressors: "WeakKeyDictionary[torch.nn.Module, Compressor]" = WeakKeyDictionary()
_hooks: "WeakKeyDictionary[torch.nn.Module, HookState]" = WeakKeyDictionary()
"""By model; of models in DistributedDataParallel, and of modules that `hook` was given."""


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
    codec        a `Codec`, a quantizer such as `NUQSGD(bits=4)`, a name such as "nuqsgd-4", or "auto": link and device
                 are measured for a second or two, and the one of NUQSGD at 4 or 8 bits, bfloat16 and float32 that is
                 predicted to be fastest is taken, with its exchange; `compress(...).plan.explain()` says why.
                 If left out, one that trains like float32 with this optimizer, by `training.choices.DEFAULTS`
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
    _check_model(model)
    if model in _compressors and not _compressors[model].closed:
        raise ValueError("this model is compressed already; call compress() once, and set_codec() for another codec")
    options = dict[str, Any](optimizer=optimizer, metric=metric, exchange=exchange, policy=policy, seed=seed)
    options |= {"error_every": error_every, "timeout": timeout}
    settings = Settings(**options)
    if not isinstance(model, DistributedDataParallel):
        return _begin_sharded(model, codec, replica_codec, weight_codec, settings)
    _leave_out(replica_codec=replica_codec, weight_codec=weight_codec)
    if model in _hooks:  # DDP takes a hook once
        return _begin(model, codec, settings, model.process_group, _hooks[model])
    if any(one is not average_gradients for one, _ in getattr(model, "_comm_hooks", ())):  # ours is of a copied model
        raise ValueError("this model has a communication hook already, and DDP takes one; wrap the network anew")
    model.register_comm_hook(*hook(model, codec, **options))
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
                   connections are then made, and kernels compiled, in the first backward pass, or by `load_state_dict`
    process_group  that the module will be averaged over; by default all ranks
    options        those of `compress` for DistributedDataParallel

    `laconic.stats`, `laconic.state_dict` and `laconic.set_codec` take the model that was given here.
    """
    require_module(model)
    codec = codec if codec is None or codec == "auto" else codec_for(codec)
    state, settings = HookState(), Settings(**options)
    if isinstance(model, DistributedDataParallel):
        _begin(model, codec, settings, model.process_group, state)
        model.register_forward_pre_hook(_before_forward)
    else:
        module = weakref.ref(model)  # `_hooks` must not keep it alive; DDP does
        state.make = lambda: _begin(cast(torch.nn.Module, module()), codec, settings, process_group, state)
        _hooks[model] = state
    return state, average_gradients


def set_codec(model: torch.nn.Module, codec: Codec | Quantizer | str | None) -> None:
    """Use another codec from the next step on, or none: float32. Call it on every rank, between the same two steps.

    Ranks that differ raise `Disagreement` at the next step. If the new codec keeps no error memory, what the old one
    had not sent yet is lost. With None, memory stays as it is, for a codec that is set later.
    """
    compressor = compressor_of(model, on_every_rank=True)
    compressor.require_open()
    if codec is None:
        compressor.off, compressor.agreed = True, False
        return
    compressor.use(codec_for(codec), "given to set_codec")
    _prepare(compressor)


def compressor_of(model: torch.nn.Module, *, on_every_rank: bool = False) -> Compressor:
    """The state behind a compressed model, also if it was compiled since.

    A hook on a module makes its state in the first backward pass; or now, where every rank asks for it together.
    """
    require_module(model)
    model = getattr(model, "_orig_mod", model)
    if model in _hooks and model not in _compressors:
        if not (on_every_rank and dist.is_initialized()):
            raise ValueError(
                "this model's hook was not called yet: train a step first, or load a state after init_process_group"
            )
        _hooks[model].ready()
    if model not in _compressors:
        raise ValueError("this model is not compressed; call laconic.compress(model, codec) first")
    return _compressors[model]


def _check_model(model: object) -> None:
    """Raise `TypeError`, with what to do, unless this is a model that can be compressed."""
    sharded = isinstance(model, torch.nn.Module) and any(is_sharded(module) for module in model.modules())
    kinds = [kind.__name__ for kind in type(model).__mro__]
    advice = next((_ADVICE[kind] for kind in kinds if kind in _ADVICE), None)
    if advice is None and (isinstance(model, DistributedDataParallel) or sharded):
        return
    if "replicate" in _composed(model):
        advice = _REPLICATED
    raise TypeError(
        f"compress() needs a model wrapped in DistributedDataParallel, got {type(model).__name__}; "
        f"{advice or _OTHERWISE}"
    )


def _composed(model: object) -> set[str]:
    """Names of the functions, such as `replicate`, that have changed this module in place."""
    try:
        from torch.distributed._composable.contract import _get_registry
    except ImportError:
        return set()
    return set(_get_registry(model) or ()) if isinstance(model, torch.nn.Module) else set()


def _begin(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None,
    settings: Settings,
    process_group: dist.ProcessGroup | None,
    state: HookState,
) -> Compressor:
    """Make the compressor of a model, and have `state` use it. Connections are made once the arguments are checked."""
    parameters = averaged(model)
    check_stepped(settings.optimizer, parameters)
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    settings.policy.require_matches(name for name, _ in inner.named_parameters())
    automatic, device = isinstance(codec, str) and codec == "auto", next(iter(parameters.values())).device
    first = (PLAIN, "") if automatic else _chosen(codec, settings, device)
    groups = make_groups(parameters.items(), settings.policy, first[0])
    size = dist.get_world_size(process_group) if dist.is_initialized() else 1
    compressor = DDPCompressor(settings, groups, parameters, device, Communicator(size=size))
    if not automatic:
        compressor.use(*first)
    elif settings.exchange != "auto":
        raise ValueError(
            f"codec='auto' chooses the exchange, too; leave exchange={settings.exchange!r} out, or name a codec"
        )
    compressor.comm = Communicator.open(process_group, device, timeout=settings.timeout)
    try:
        if automatic:
            chosen, exchange, compressor.plan = choose(compressor.comm, groups, device)
            compressor.use(chosen, compressor.plan.verdict(), exchange)
        _prepare(compressor)
    except BaseException:  # a model must not be registered as compressed, and then train plainly
        compressor.close()
        raise
    state.compressor, state.make = compressor, None
    _compressors[model], _hooks[model] = compressor, state
    weakref.finalize(model, _close_later, compressor).atexit = False
    return compressor


def _begin_sharded(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None,
    replica_codec: Codec | Quantizer | str | None,
    weight_codec: WeightCodec | None,
    settings: Settings,
) -> Compressor:
    """Make the compressor of a model of `fully_shard`."""
    kind, _ = metric_kind(settings.metric, settings.optimizer)
    _leave_out(timeout=settings.timeout, metric=None if settings.metric in ("auto", "none") else settings.metric)
    _leave_out(optimizer=None if kind in ("none", "model") else settings.optimizer)
    if isinstance(codec, str) and codec == "auto":
        raise InvalidOption(Option("codec", "auto"), " measures for DistributedDataParallel only; name a codec")
    settings.policy.require_matches(name for name, _ in model.named_parameters())
    if isinstance(earlier := _compressors.get(model), ShardedCompressor):
        earlier.uninstall()
    compressor = ShardedCompressor.of(model, settings, replica_codec, weight_codec)
    compressor.use(*_chosen(codec, settings, next(model.parameters()).device, sharded=True))
    _prepare(compressor)
    compressor.install()
    if earlier is None:
        model.register_forward_pre_hook(_before_forward, prepend=True)
    _compressors[model] = compressor
    return compressor


def _chosen(
    codec: Codec | Quantizer | str | None, settings: Settings, device: torch.device, *, sharded: bool = False
) -> tuple[Codec, str]:
    """The codec that was asked for, or the default, and why."""
    if codec is not None:
        return codec_for(codec), "asked for"
    metric = "sharded" if sharded else metric_kind(settings.metric, settings.optimizer)[0]
    quantizer, reason = default_codec(metric, device)
    return codec_for(quantizer), reason


def _before_forward(model: torch.nn.Module, *call: object) -> None:
    """Before a forward pass for training, raise if the last backward pass failed or the compressor is closed.

    DDP itself would fail with an internal assertion. A copy of the model is not compressed, and never raises.
    """
    if torch.is_grad_enabled() and model in _compressors:
        state = _hooks.get(model)
        if state is not None and state.error is not None:
            raise state.error()
        _compressors[model].check_model(model)


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
            "%r sends one sign per value and delivers the rest in later steps: a learning rate that suits float32 may "
            "be far too large for it; try smaller ones, or QSGDInf or Dithered, which take the same as float32",
            quantizer,
        )
    elif not quantizer.unbiased and not isinstance(quantizer, Identity | ErrorFeedback):
        log.warning("%r is biased, and what it loses never arrives; use ErrorFeedback(%r)", quantizer, quantizer)


def _close_later(compressor: Compressor) -> None:
    """Close the compressor of a deleted model, on a thread, since garbage collection may interrupt any code.

    Python waits for the thread at exit: killed while it destroys a process group, it would abort the process. Once
    Python is shutting down it would wait no longer, and everything ends with the process anyway.
    """
    if threading.main_thread().is_alive():
        threading.Thread(target=compressor.close, name="laconic-closing").start()


_REASONS = {
    "replica_codec": " is for models of fully_shard with several copies; leave it out",
    "weight_codec": " is for models of fully_shard, whose weights travel; leave it out",
    "timeout": " of a sharded model is that of its mesh; leave it out",
    "optimizer": " of a sharded model knows this rank's second moments only, which make no metric; leave it out",
    "metric": " must be 'auto' or 'none' for a sharded model, whose ranks share no second moments",
}


def _leave_out(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidOption(Option(name), _REASONS[name])
