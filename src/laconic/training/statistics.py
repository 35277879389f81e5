"""`laconic.stats`: what compression of a model has cost and saved so far."""

import math
from typing import Any, Protocol

import torch

from laconic.training.compressor import Compressor
from laconic.training.ddp import compressor_of


def stats(model: torch.nn.Module) -> dict[str, Any]:
    """Statistics of compression so far, on this rank.

    steps, values, bytes_sent, bytes_received (per step), ratio, bits (per value of this rank's codes, without what went
    in float32), encode_ms, wire_ms, decode_ms (per step), nmse (mean normalised error of this rank's own messages,
    after division by the metric: as measured, or else the `error` of the quantizer). After a state was loaded `steps`
    continues from there; all other numbers are of the steps since `compress`.

    weight_bytes_sent, weight_bytes_received (per step): of a sharded model's weights, gathers without a step included.

    codec and metric, in words, each with the reason it was chosen for; bits_by_parameter, at the last step, 32 for what
    went in float32.

    ratio is what PyTorch's own all-reduce of the same gradients would have sent, 2 (P − 1) / P copies in their dtype
    with P ranks, over bytes_sent; of a sharded model, its reduce-scatter and the all-reduce between copies, both in
    float32. NaN where nothing was sent. Under all_gather a rank sends P − 1 codes, so that ratio falls as ranks are
    added.
    """
    compressor = compressor_of(model)
    totals, steps, quantizer = compressor.totals, max(1, compressor.n_counted), compressor.codec.quantizer
    return {
        "steps": compressor.step,
        "values": totals.n_values / steps,
        "bytes_sent": totals.bytes_sent / steps,
        "bytes_received": totals.bytes_received / steps,
        "ratio": compressor.n_counted * compressor.plain_bytes / totals.bytes_sent if totals.bytes_sent else math.nan,
        "bits": totals.bits,
        "encode_ms": 1e3 * totals.encode_seconds / steps,
        "wire_ms": 1e3 * totals.wire_seconds / steps,
        "decode_ms": 1e3 * totals.decode_seconds / steps,
        "weight_bytes_sent": compressor.weights.totals.bytes_sent / steps,
        "weight_bytes_received": compressor.weights.totals.bytes_received / steps,
        "nmse": totals.nmse if totals.nmse == totals.nmse else getattr(quantizer, "error", None) or math.nan,
        "codec": f"{quantizer!r}: {_state_of(compressor)}",
        "metric": f"{compressor.metric.name}: {compressor.metric.reason}",
        "bits_by_parameter": _bits(compressor),
    }


def _state_of(compressor: Compressor) -> str:
    if compressor.off:
        return "off, by set_codec"
    return "not used by one rank alone" if compressor.passes_through else compressor.reason


def _bits(compressor: Compressor) -> dict[str, float]:
    found = {name: compressor.bits.get(group.index, 32.0) for group in compressor.groups for name in group.names}
    return {name: bits if bits == bits else 32.0 for name, bits in found.items()}


class ScalarWriter(Protocol):
    """What `log_stats` needs of `torch.utils.tensorboard.SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""


def log_stats(model: torch.nn.Module, writer: ScalarWriter, prefix: str = "laconic") -> None:
    """Write the numbers of `laconic.stats(model)` at the current step to TensorBoard, or anything with `add_scalar`.

    Numbers that are NaN, since they were not measured, are left out.
    """
    step = compressor_of(model).step
    for name, value in stats(model).items():
        if isinstance(value, int | float) and value == value:
            writer.add_scalar(f"{prefix}/{name}", value, step)
