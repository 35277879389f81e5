"""The suite `papers nuqsgd`: residual networks trained by k workers, whose gradients are quantised in five ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.papers.nuqsgd.options import NUQSGDOptions
from benchmarks.papers.nuqsgd.pictures import open_pictures
from benchmarks.papers.nuqsgd.row import NUQSGDRow, rows_from
from benchmarks.papers.nuqsgd.simulate import simulate
from laconic.bench.checks import WrongResult
from laconic.bench.ranks import on_ranks, slowest

RANK_FUNCTION = "benchmarks.papers.nuqsgd.rank:nuqsgd_on_rank"
Tell = Callable[[str], None]


def nuqsgd_rows(options: NUQSGDOptions, tell: Tell = lambda label: None) -> list[NUQSGDRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.ranks is not None:
        return _on_ranks(options, tell)
    device = torch.device(options.device)
    tell("reading the images")
    pictures = open_pictures(options.dataset, options.data, device, options.images)
    lanes = simulate(pictures, options.model, options.chosen(), options.schedule(pictures.n_train), device, tell)
    return rows_from(options, pictures.about, [lane.found() for lane in lanes])


def _on_ranks(options: NUQSGDOptions, tell: Tell) -> list[NUQSGDRow] | None:
    results = on_ranks(RANK_FUNCTION, {"options": asdict(options)}, options.n_workers, None, tell)
    if results is None:
        return None
    for i, method in enumerate(options.chosen()):
        if len({result["lanes"][i]["digest"] for result in results}) > 1:
            raise WrongResult(f"{method.label}: the ranks have ended with different weights")
    return rows_from(options, results[0]["images"], [_slowest(results, i) for i in range(len(options.chosen()))])


def _slowest(results: Sequence[Mapping[str, Any]], i: int) -> dict[str, Any]:
    """Rank 0's view of a lane, with the slowest rank's seconds and the busiest one's bytes."""
    ranks = [result["lanes"][i] for result in results]
    return {**ranks[0], "seconds": slowest(ranks), "bytes_sent": max(rank["bytes_sent"] for rank in ranks)}
