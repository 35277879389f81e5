"""The suite `fsdp`: steps of sharded training, beside FSDP2 as it is, in float32 and with gradients in bfloat16."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from laconic.bench.ddp import DDPOptions, ddp_rows, parts, train_on_rank
from laconic.bench.ranks import noise, scheme_of
from laconic.bench.suite import Progress, Suite
from laconic.bench.training import NetworkProblem, TrainingRun
from laconic.exchange import Communicator
from laconic.options import option
from laconic.planner.rates import make_codec
from laconic.report import Presentation, Text, where
from laconic.training import compress

NATIVE = {"FSDP2 fp32": "reduce_dtype float32", "FSDP2 bf16": "reduce_dtype bfloat16"}
"""FSDP2 as it is: label to what gradients are reduced in. Weights are gathered in float32 by all contenders."""
CODECS = ("bf16", "nuqsgd-4/512", "qsgdinf-4/512", "qsgdinf-8", "nuqsgd-4-rans", "ef-sign")


@dataclass(frozen=True, slots=True)
class FSDPOptions(DDPOptions):
    """The same as for `ddp`, with a larger network."""

    problem: str = option("text", "clusters (a perceptron), digits (a small network) or text (a transformer).")
    size: int = option(20_000_000, "Parameters of perceptron or transformer, at least.")
    batch_size: int = option(2, "Samples per rank and step; a sample of text has 64 tokens.")
    codecs: Sequence[str] | None = option(
        None, "Only these besides the baselines: nuqsgd, qsgdinf, ef-sign, ...", flag="--codec", metavar="NAME,..."
    )

    function: ClassVar[str] = "laconic.bench.fsdp:fsdp_on_rank"
    baselines: ClassVar[tuple[str, str]] = ("FSDP2 fp32", "FSDP2 bf16")
    native: ClassVar[Mapping[str, str]] = NATIVE
    asked_by: ClassVar[Mapping[str, Sequence[str]]] = {
        "FSDP2 fp32": ("fp32",),
        "FSDP2 bf16": ("bf16",),
    } | {name: (scheme_of(name), name) for name in CODECS}


def fsdp_on_rank(progress: Progress, **asked: Any) -> dict[str, dict[str, Any]]:
    """What `train_on_rank` finds under FSDP2."""
    return train_on_rank(_new_run, progress, **asked)


def _new_run(label: str, problem: NetworkProblem, seed: int) -> TrainingRun:
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if label == "FSDP2 bf16" else None)
    model = sharded(problem.new_network(seed), problem.x.device, mp_policy=policy)
    compressor = None if label in NATIVE else compress(model, make_codec(label), seed=seed, error_every=0)
    return TrainingRun(model, problem.new_optimizer(model.parameters()), compressor)


def sharded(network: torch.nn.Module, device: torch.device, **options: Any) -> torch.nn.Module:
    """The network, a unit for each block, or for each layer where it has none, and one for the rest."""
    mesh = init_device_mesh(device.type, (Communicator.over().size,))
    for layer in getattr(network, "blocks", network.children()):
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(network, mesh=mesh, **options)
    return network


PRESENTATION = Presentation(
    lambda document: f"Training a sharded network on {where(document)}",
    [Text(noise), *parts("FSDP2 in float32", "FSDP2 with gradients in bfloat16")],
    "fully_shard (FSDP2), the contenders step by step in turn.",
)
SUITE = Suite(
    "fsdp",
    FSDPOptions,
    ddp_rows,
    """Steps of sharded training, next to FSDP2 as it is.

    Every contender trains the same network on the same batches, and gathers its weights in float32. Under torchrun,
    uses its ranks.
    """,
)
