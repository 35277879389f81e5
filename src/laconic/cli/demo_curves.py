"""Curves for `laconic demo`: a small network trained with each scheme by workers that are simulated on one device."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laconic.bench import Scheme, one_thread
from laconic.data import load_digits
from laconic.training import SimulatedWorkers

LABELS = ("fp32", "qsgd-4", "nuqsgd-4", "qsgdinf-4", "ef-sign")
PROBLEM = "digits"
N_WORKERS, BATCH_SIZE, WIDTH = 4, 32, 128
LEARNING_RATE = 0.5
EVERY = 2
"""Steps from one look at the loss to the next."""


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One scheme's training.

    curve  points with iteration, seconds (of all workers, one after another), bytes (that one worker sent), loss (over
           all images) and, of unbiased schemes, variance ‖Q(v) − v‖² / ‖v‖² (of the workers' gradients in that step)
    """

    problem: str
    contender: str
    n_workers: int
    curve: list[dict[str, Any]]


@one_thread()
def curve_rows(schemes: Sequence[Scheme], steps: int, seed: int, begin: Callable[[str], None]) -> list[CurveRow]:
    """The same network on the same batches with each of the schemes in `LABELS`."""
    rows = []
    for scheme in chosen(schemes):
        begin(f"train with {scheme.label}")
        rows.append(CurveRow(PROBLEM, scheme.label, N_WORKERS, _curve(scheme, steps, seed)))
    return rows


def chosen(schemes: Sequence[Scheme]) -> list[Scheme]:
    """Those that are trained with."""
    return [scheme for scheme in schemes if scheme.label in LABELS]


def _curve(scheme: Scheme, steps: int, seed: int) -> list[dict[str, Any]]:
    images, labels = load_digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(images.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        batches = torch.randint(len(images), (steps, N_WORKERS, BATCH_SIZE))
    workers = SimulatedWorkers(net, scheme.quantizer, N_WORKERS, seed=seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)
    seconds, sent, measured = 0.0, 0.0, scheme.quantizer.unbiased
    points = [_point(0, 0.0, 0.0, _loss(net, images, labels).item(), None)]
    for step, parts in enumerate(batches, 1):
        start = time.perf_counter()
        workers.backward([partial(_loss, net, images[part], labels[part]) for part in parts])
        optimizer.step()
        seconds += time.perf_counter() - start
        sent += workers.last.bytes_sent / N_WORKERS
        if step % EVERY == 0 or step == steps:
            variance = workers.last.nmse if measured else None
            points.append(_point(step, seconds, sent, _loss(net, images, labels).item(), variance))
    return points


def _loss(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(net(images), labels)


def _point(step: int, seconds: float, sent: float, loss: float, variance: float | None) -> dict[str, Any]:
    exact = variance is None or not variance or not math.isfinite(variance)
    return {
        "iteration": step,
        "seconds": seconds,
        "bytes": sent,
        "loss": loss if math.isfinite(loss) else None,
        "variance": None if exact else variance,
    }
