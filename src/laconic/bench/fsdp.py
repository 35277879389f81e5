"""The suite `fsdp`: steps of sharded training, beside plain FSDP2 in float32 and with gradients in bfloat16.

A contender's name is the codec of its gradients and, after a plus, of its weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from laconic.bench.ddp import DDPOptions, ddp_rows, parts, train_on_rank
from laconic.bench.ranks import PAPERS_BUCKET, noise, scheme_of
from laconic.bench.suite import Suite
from laconic.bench.training import NetworkProblem, TrainingRun
from laconic.codec import make_codec
from laconic.exchange import Communicator
from laconic.options import option
from laconic.quantizers import QSGDInf
from laconic.report import BarChart, Column, Presentation, Text, where
from laconic.training import Differences, compress
from laconic.training.fsdp_weights import WeightCodec

NATIVE = {
    "FSDP2 fp32": "reduce_dtype float32",
    "FSDP2 bf16": "reduce_dtype bfloat16",
    "bf16+bf16": "reduce_dtype and param_dtype bfloat16",
}
"""Plain FSDP2: label to the dtype that reduces gradients; the last, for suites that ask, also gathers weights in it."""
CODECS = ("bf16", "nuqsgd-4/512", "qsgdinf-4/512", "qsgdinf-8", "nuqsgd-4-rans", "ef-sign")
WEIGHTS: dict[str, WeightCodec | None] = {
    "": None,
    "bf16": "bf16",
    "differences-8": Differences(),
    "differences-4": Differences(QSGDInf(bits=4, bucket_size=512)),
}
"""How weights are gathered, by name: in float32 by FSDP2 itself, or by a codec."""
WEIGHTED = [f"{codec}+{name}" for codec in ("nuqsgd-4/512", "qsgdinf-4/512") for name in WEIGHTS if name]


@dataclass(frozen=True, slots=True)
class FSDPOptions(DDPOptions):
    """Options of the suite `fsdp`: those of `ddp`, with a larger network."""

    problem: str = option("text", "clusters (a perceptron), digits (a small network) or text (a transformer).")
    size: int = option(20_000_000, "Parameters of perceptron or transformer, at least.")
    batch_size: int = option(2, "Samples per rank and step; a sample of text has 64 tokens.")
    codecs: Sequence[str] | None = option(
        None,
        "Only these besides the baselines: nuqsgd, ef-sign, ...; weights: all with a plus, after which it says how "
        "weights are sent, as in nuqsgd-4/512+differences-8.",
        flag="--codec",
        metavar="NAME,...",
    )

    function: ClassVar[str] = "laconic.bench.fsdp:fsdp_on_rank"
    baselines: ClassVar[tuple[str, str]] = ("FSDP2 fp32", "FSDP2 bf16")
    native: ClassVar[Mapping[str, str]] = NATIVE
    asked_by: ClassVar[Mapping[str, Sequence[str]]] = {
        "FSDP2 fp32": ("fp32",),
        "FSDP2 bf16": ("bf16",),
        **{name: (scheme_of(name), name) for name in CODECS},
        **{name: ("weights", name) for name in WEIGHTED},
    }


def new_run(label: str, problem: NetworkProblem, seed: int, **options: Any) -> TrainingRun:
    """A contender by its label; `options` are those of `fully_shard`."""
    half = torch.bfloat16
    policy = MixedPrecisionPolicy(
        param_dtype=half if label == "bf16+bf16" else None,
        reduce_dtype=half if label in ("FSDP2 bf16", "bf16+bf16") else None,
    )
    model = sharded(problem.new_network(seed), problem.x.device, mp_policy=policy, **options)
    optimizer = problem.new_optimizer(model.parameters())
    if label in NATIVE:
        return TrainingRun(model, optimizer)
    codec, _, weights = label.partition("+")
    found = compress(model, make_codec(codec, PAPERS_BUCKET), weight_codec=WEIGHTS[weights], seed=seed, error_every=0)
    return TrainingRun(model, optimizer, found)


fsdp_on_rank = partial(train_on_rank, new_run)


def sharded(network: torch.nn.Module, device: torch.device, **options: Any) -> torch.nn.Module:
    """The network, sharded with one FSDP2 unit per block (per layer if it has no blocks) and one for the rest."""
    mesh = init_device_mesh(device.type, (Communicator.over().size,))
    for layer in getattr(network, "blocks", network.children()):
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(network, mesh=mesh, **options)
    return network


PRESENTATION = Presentation(
    lambda document: f"Training a sharded network on {where(document)}",
    [
        Text(noise),
        *parts(
            "FSDP2 in float32", "FSDP2 with gradients in bfloat16", Column("MB of weights", "weight_bytes_sent", "MB")
        ),
        BarChart("Bytes of weights that a rank sends in a step", "weight_bytes_sent", "B"),
    ],
    "fully_shard (FSDP2), the contenders step by step in turn.",
)
SUITE = Suite(
    "fsdp",
    FSDPOptions,
    ddp_rows,
    """Steps of sharded training, next to FSDP2 as it is.

    Every contender trains the same network on the same batches. Weights are gathered in float32 but where a contender's
    name has a plus. Under torchrun, uses its ranks.
    """,
)
