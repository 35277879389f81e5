"""Loaded by the process that ranks are forked from: kernels that most of them call are then compiled and loaded."""

import numpy as np
import torch

import laconic
from laconic.kernels import select

_gradient = torch.ones(64)
for _codec in (
    laconic.codec("nuqsgd"),
    laconic.codec("nuqsgd", "rans"),
    laconic.codec("qsgdinf"),
    laconic.codec("dithered", error=0.1),
    laconic.codec("rotated", bucket_size=64),
):
    _codec.decode_add(_codec.encode(_gradient, laconic.Stream()), torch.zeros(64))
_kernels = select("auto", _gradient.device)
_kernels.scale_by_root(torch.ones(64), _gradient, 1.0, 0.0, True)
_kernels.total(_gradient, True)
laconic.CASGDClassifier(max_iter=1, tol=None).fit(np.eye(2), [0, 1])
