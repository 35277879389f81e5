"""Handwritten digits: 1797 images of 8 by 8 that come with scikit-learn."""

import torch

from laconic.extras import require


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 64) as float32 in [0, 1] and labels (1797,) as int64.

    >>> images, labels = load_digits()
    >>> tuple(images.shape), labels[:3].tolist()
    ((1797, 64), [0, 1, 2])
    """
    datasets = require("sklearn.datasets", for_="load_digits", extra="glm")

    images, labels = datasets.load_digits(return_X_y=True)
    return torch.from_numpy(images / 16.0).float(), torch.from_numpy(labels).long()
