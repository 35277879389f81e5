"""Loaded by the process that ranks are forked from: kernels that most of them call are then compiled and loaded.

Their calibrations are short, and not made again where they are uncertain: what they measure is not judged, and `laconic
plan` takes nine seconds of every core.
"""

from functools import partial

import numpy as np
import torch

import laconic
from laconic.kernels import select
from laconic.measure import calibrate

calibrate.UNCERTAIN = float("inf")
calibrate.Stopwatch = partial(calibrate.Stopwatch, budget_seconds=0.0)

_gradient = torch.ones(64)
for _codec in (
    laconic.codec("nuqsgd"),
    laconic.codec("nuqsgd", "rans"),
    laconic.codec("nuqsgd", "elias"),
    laconic.codec("ef-sign"),
    laconic.codec("qsgdinf"),
    laconic.codec("dithered", error=0.1),
    laconic.codec("rotated", bucket_size=64),
):
    _sent = _codec.encode(_gradient, laconic.Stream(), _codec.new_memory(_gradient))
    _codec.decode_add(_sent, torch.zeros(64))
_kernels = select("auto", _gradient.device)
_kernels.scale_by_root(torch.ones(64), _gradient, 1.0, 0.0, True)
_kernels.total(_gradient, True)
laconic.CASGDClassifier(max_iter=1, tol=None).fit(np.eye(2), [0, 1])
