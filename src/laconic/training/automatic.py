"""Codecs that nobody named: the default by optimizer, and codec="auto", which measures these ranks' link and device."""

import logging
from collections.abc import Sequence

import torch

from laconic.codec import Codec
from laconic.exchange import Communicator, Exchange
from laconic.exchange import by_name as exchange_by_name
from laconic.planner import Plan, plan
from laconic.planner.calibrate import measure
from laconic.planner.cluster import Cluster, CodecRates, Link
from laconic.planner.network import NetworkJob
from laconic.planner.rates import make_codec
from laconic.planner.timing import Stopwatch
from laconic.quantizers import NUQSGD, Dithered, Quantizer
from laconic.training.groups import Group

NOWHERE = Link(0.0, 0.0)
ALONE = Cluster(
    1,
    NOWHERE,
    NOWHERE,
    NOWHERE,
    codecs={"fp32": CodecRates(32.0, 0.0, 0.0, 0.0, 0.0, 0.0), "bf16": CodecRates(16.0, 0.0, 0.0, 0.0, 0.0, 0.0)},
)
log = logging.getLogger("laconic")

DEFAULTS: dict[str, tuple[Quantizer, str]] = {
    "second moment": (Dithered(error=0.1), "few bits, and the noise follows what the optimizer divides by"),
    "tensor": (Dithered(error=0.1), "few bits, and the noise follows each parameter's own gradient"),
    "model": (Dithered(error=0.3), "few bits, and SGD averages the noise out"),
    "none": (NUQSGD(bits=4), "small buckets suit every optimizer; give optimizer= for fewer bits"),
    "gpu": (NUQSGD(bits=4), "small buckets suit every optimizer, and a GPU packs them in one pass"),
}
"""What `compress` takes without a codec, and why, by the name of the metric; docs/training.md has their losses."""


def default_codec(metric: str, device: torch.device) -> tuple[Quantizer, str]:
    """The default for gradients in this metric on this device, and the reason."""
    return DEFAULTS[metric if device.type == "cpu" else "gpu"]


def choose(comm: Communicator, groups: Sequence[Group], device: torch.device) -> tuple[Codec, Exchange, Plan]:
    """Measure for a second or two, plan, and take what is recommended: NUQSGD at 4 or 8 bits, bfloat16 or float32.

    All ranks call this together. The slowest rank's times count, on every rank, so that all of them choose alike.
    """
    n = max(1, sum(group.n_values for group in groups if group.compressed))
    cluster = ALONE
    if comm.size > 1:
        stopwatch = Stopwatch(comm, device, budget_seconds=0.0, round_seconds=0.005)
        cluster = measure(stopwatch, quick=True).cluster(comm.size)
    made = plan(NetworkJob(n), cluster)
    option = made.recommended.option
    codec = make_codec(getattr(option, "codec", "fp32"), NUQSGD().bucket_size)
    if comm.rank == 0:
        log.info("codec='auto': %s; %s", made.verdict(), made.crossing())
    return codec, exchange_by_name(getattr(option, "exchange", "auto"), codec, comm.size, n), made
