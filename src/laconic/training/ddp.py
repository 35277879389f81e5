"""`laconic.compress`: compressed gradients under DistributedDataParallel, and their statistics."""

import math
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.codec import Codec, codec_for
from laconic.errors import InvalidOption, Option
from laconic.exchange import Communicator, Exchange
from laconic.exchange import by_name as exchange_by_name
from laconic.options import MAX_SEED, check_int
from laconic.quantizers import Quantizer
from laconic.training.automatic import choose, default_codec, log
from laconic.training.compressor import Compressor
from laconic.training.fsdp import compress_sharded
from laconic.training.fsdp_units import is_sharded
from laconic.training.groups import Group, Policy, describe, make_groups
from laconic.training.hook import HookState, average_gradients
from laconic.training.metric import SquaredError, metric_for, metric_kind, unwrapped

_compressors: "WeakKeyDictionary[torch.nn.Module, Compressor]" = WeakKeyDictionary()


def compress(
    model: torch.nn.Module,
    codec: Codec | Quantizer | str | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    metric: str = "auto",
    replica_codec: Codec | Quantizer | str | None = None,
    exchange: str | Exchange = "auto",
    policy: Policy | None = None,
    seed: int = 0,
    error_every: int = 100,
    timeout: timedelta | None = None,
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
    exchange     "auto" (explained in `laconic.exchange.by_name`), "all_gather", "scatter_reduce", "all_reduce",
                 "nothing" (exchanges nothing, to see what perfect compression could win), or an `Exchange`;
                 of a sharded model, between copies
    policy       what stays in float32 (by default 1-D and small tensors), warm-up steps, group size
    seed         of the random streams; the same on every rank
    error_every  measure the quantisation error every so many steps, for `laconic.stats`; 0 never
    timeout      of the process groups made for the exchange; by default that of the model's own. None are made for a
                 sharded model

    Ranks that disagree on any of this, or on the model's parameters, find out at the first step: `Disagreement` is
    raised on every rank and names rank and field.

    Returns the `Compressor`, which holds the threads and connections of the exchange. They last as long as the process;
    a script that trains one model after another calls `close()` on it, on every rank, when it is done with a model.
    """
    _check_model(model)
    seed, error_every = check_int("seed", seed, 0, MAX_SEED), check_int("error_every", error_every, 0)
    policy = policy or Policy()
    parameters = _averaged(model) if isinstance(model, DistributedDataParallel) else list(model.named_parameters())
    optimizer, device = unwrapped(optimizer), parameters[0][1].device
    kind, _ = metric_kind(metric, optimizer)
    chosen, reason = default_codec(kind, device) if codec is None else (codec, "asked for")
    if isinstance(model, DistributedDataParallel):
        _leave_out(replica_codec=replica_codec)
        compressor = _compress_ddp(model, parameters, chosen, exchange, policy, seed, error_every, timeout)
        compressor.metric = metric_for(metric, optimizer, dict(parameters), compressor.codec)
    else:
        needless = kind == "none" or (kind == "model" and metric == "auto")
        _leave_out(timeout=timeout, optimizer=None if needless else optimizer or metric)
        compressor = compress_sharded(model, chosen, replica_codec, exchange, policy, seed, error_every)
        compressor.metric = SquaredError("ranks share no second moments of a sharded model")
    compressor.reason = reason if compressor.plan is None else compressor.plan.verdict()
    if codec is None and compressor.comm.rank == 0:
        log.info("no codec was given: %r; %s", chosen, reason)
    _compressors[model] = compressor
    return compressor


def _compress_ddp(
    model: DistributedDataParallel,
    parameters: list[tuple[str, torch.nn.Parameter]],
    codec: Codec | Quantizer | str,
    exchange: str | Exchange,
    policy: Policy,
    seed: int,
    error_every: int,
    timeout: timedelta | None,
) -> Compressor:
    groups, device = make_groups(parameters, policy), parameters[0][1].device
    asked = _asked_for(codec, exchange, groups, torch.distributed.get_world_size(model.process_group))
    comm = Communicator.open(model.process_group, device, timeout=timeout)
    chosen, chosen_exchange, plan = choose(comm, groups, device) if asked is None else (*asked, None)
    config = {**describe(chosen, policy, groups), "exchange": repr(chosen_exchange)}
    compressor = Compressor(groups, chosen, chosen_exchange, policy, comm, device, config, seed, error_every, plan=plan)
    names = {id(p): name for name, p in parameters}
    model.register_comm_hook(HookState(compressor, names), average_gradients)
    return compressor


def compressor_of(model: torch.nn.Module) -> Compressor:
    """The state behind a compressed model."""
    try:
        return _compressors[model]
    except KeyError:
        raise ValueError("this model is not compressed; call laconic.compress(model, codec) first") from None


def stats(model: torch.nn.Module) -> dict[str, Any]:
    """Statistics of compression so far, on this rank.

    steps, values, bytes_sent, bytes_received (per step), ratio, bits (per value of this rank's codes, without what went
    in float32), encode_ms, wire_ms, decode_ms (per step), nmse (mean normalised error of this rank's own messages,
    after division by the metric: what was measured, or what the quantizer was told to make). After a state was loaded
    `steps` goes on from there; all other numbers are of the steps since `compress`.

    codec and metric, in words, each with the reason it was chosen for.

    ratio = 4 values / bytes_sent compares with one copy of the gradient in float32, not with the traffic of an
    all-reduce, of which a rank of P sends 2 (P − 1) / P copies.
    """
    compressor = compressor_of(model)
    totals, steps, quantizer = compressor.totals, max(1, compressor.n_counted), compressor.codec.quantizer
    return {
        "steps": compressor.step,
        "values": totals.n_values / steps,
        "bytes_sent": totals.bytes_sent / steps,
        "bytes_received": totals.bytes_received / steps,
        "ratio": totals.ratio,
        "bits": totals.bits,
        "encode_ms": 1e3 * totals.encode_seconds / steps,
        "wire_ms": 1e3 * totals.wire_seconds / steps,
        "decode_ms": 1e3 * totals.decode_seconds / steps,
        "nmse": totals.nmse if totals.nmse == totals.nmse else getattr(quantizer, "error", None) or math.nan,
        "codec": f"{quantizer!r}: {compressor.reason}",
        "metric": f"{compressor.metric.name}: {compressor.metric.reason}",
    }


class ScalarWriter(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` offers."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""


def log_stats(model: torch.nn.Module, writer: ScalarWriter, prefix: str = "laconic") -> None:
    """Write the numbers of `laconic.stats(model)` at the current step to TensorBoard, or anything with `add_scalar`.

    Numbers that are NaN, since they were not measured, are left out.
    """
    step = compressor_of(model).step
    for name, value in stats(model).items():
        if not isinstance(value, str) and value == value:
            writer.add_scalar(f"{prefix}/{name}", value, step)


def _check_model(model: object) -> None:
    sharded = isinstance(model, torch.nn.Module) and any(is_sharded(module) for module in model.modules())
    if not isinstance(model, DistributedDataParallel) and not sharded:
        raise TypeError(
            f"compress() needs a model wrapped in DistributedDataParallel, got {type(model).__name__}; "
            "call it as compress(DistributedDataParallel(model), ...), or after fully_shard(model)"
        )
    if model in _compressors:
        raise ValueError("this model is compressed already; call compress() once")


_REASONS = {
    "replica_codec": " is for models of fully_shard with several copies; leave it out",
    "timeout": " of a sharded model is that of its mesh; leave it out",
    "optimizer": " of a sharded model knows this rank's second moments only; leave it out, or give metric='none'",
}


def _leave_out(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidOption(Option(name), _REASONS[name])


def _averaged(model: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that DDP averages: those that required a gradient when it was made, and were not to be ignored.

    Only DDP's buckets know them (a parameter may have been frozen since), and they are not public: this asks the
    private `reducer._get_zeros_like_grad_buckets`.
    """
    _check_dense(model)
    buckets = model.reducer._get_zeros_like_grad_buckets()
    found = {id(p) for bucket in buckets for p in bucket.parameters()}
    return [(name, p) for name, p in model.module.named_parameters() if id(p) in found]


def _check_dense(model: DistributedDataParallel) -> None:
    for name, module in model.module.named_modules():
        is_sparse = isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse
        weight = f"{name}.weight"
        if is_sparse and module.weight.requires_grad and weight not in model.parameters_to_ignore:
            raise ValueError(f"the gradient of {weight} is sparse, and only dense ones are averaged; use sparse=False")


def _asked_for(
    codec: Codec | Quantizer | str, exchange: str | Exchange, groups: list[Group], size: int
) -> tuple[Codec, Exchange] | None:
    """Codec and exchange, checked, where they are not ours to choose by measuring (codec="auto")."""
    if isinstance(codec, str) and codec == "auto":
        if exchange != "auto":
            raise ValueError(
                f"codec='auto' chooses the exchange, too; leave exchange={exchange!r} out, or name a codec"
            )
        return None
    chosen = codec_for(codec)
    largest = max((group.n_values for group in groups if group.compressed), default=1)
    return chosen, exchange_by_name(exchange, chosen, size, largest)
