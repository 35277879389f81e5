"""Which models `laconic.compress` takes, which of their parameters are averaged, and what to do about all others."""

import torch
from torch.nn.parallel import DistributedDataParallel

from laconic.training.fsdp_units import is_sharded
from laconic.training.groups import trainable

ADVICE = {
    "FullyShardedDataParallel": "FSDP1 has no hook that could quantise; shard the model by fully_shard (FSDP2)",
    "OptimizedModule": "compress the model in DistributedDataParallel first, then call torch.compile on it",
    "DataParallel": "DataParallel sends nothing between processes; use DistributedDataParallel under torchrun",
    "LightningModule": "give DDPStrategy ddp_comm_state and ddp_comm_hook of laconic.hook(module, codec)",
    "_FabricModule": "give DDPStrategy ddp_comm_state and ddp_comm_hook of laconic.hook(module, codec)",
    "DeepSpeedEngine": "DeepSpeed averages gradients by itself; use DistributedDataParallel or fully_shard instead",
}
"""What to do about models of other kinds, by the name of a class."""
REPLICATED = "replicate() hides its DistributedDataParallel; wrap the model in that instead"
OTHERWISE = "call it as compress(DistributedDataParallel(model), ...), or after fully_shard(model)"


def check_model(model: object) -> None:
    """Raise `TypeError`, with what to do, unless this is a model that can be compressed."""
    sharded = isinstance(model, torch.nn.Module) and any(is_sharded(module) for module in model.modules())
    kinds = [kind.__name__ for kind in type(model).__mro__]
    advice = next((ADVICE[kind] for kind in kinds if kind in ADVICE), None)
    if advice is None and (isinstance(model, DistributedDataParallel) or sharded):
        return
    if "replicate" in _composed(model):
        advice = REPLICATED
    raise TypeError(
        f"compress() needs a model wrapped in DistributedDataParallel, got {type(model).__name__}; "
        f"{advice or OTHERWISE}"
    )


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


def _composed(model: object) -> set[str]:
    """Names of the functions, such as `replicate`, that have changed this module in place."""
    try:
        from torch.distributed._composable.contract import _get_registry
    except ImportError:
        return set()
    return set(_get_registry(model) or ()) if isinstance(model, torch.nn.Module) else set()
