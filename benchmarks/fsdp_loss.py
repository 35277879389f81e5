"""The suite `fsdp-loss`: the loss that sharded training ends with, beside FSDP2 in float32, and memory per rank.

A finished run (a contender with a seed) is a file of its own, and is never run again: a sweep can be made in pieces.
"""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from laconic.atomic_write import atomic_write
from laconic.bench.fsdp import FSDPOptions, new_run
from laconic.bench.ranks import RankOptions, choose, on_ranks, resolve_network
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import NetworkProblem, TrainingRun, Trial, interleave, network_width
from laconic.exchange import Communicator
from laconic.options import check_counts, option
from laconic.report import Column, Presentation, RowTable, text, where

FP32 = FSDPOptions.baselines[0]


@dataclass(frozen=True, slots=True)
class LossOptions(RankOptions):
    """What to run."""

    codecs: Sequence[str] = option(
        ("nuqsgd-4/512", "qsgdinf-4/512", "weights"), "As for `laconic bench fsdp`.", flag="--codec", metavar="NAME,..."
    )
    size: int = option(20_000_000, "Parameters of the transformer, at least.")
    batch_size: int = option(2, "Samples per rank and step; a sample has 64 tokens.")
    steps: int = option(500, "Steps.")
    seeds: int = option(3, "Seeds; all contenders of one come before the next.")
    keep_gathered: bool = option(False, "Keep weights from forward to backward: a gather less, and the same loss.")
    out: Path = option(Path("runs/fsdp-loss"), "Folder of finished runs, which are not run again.", metavar="DIR")  # noqa: RUF009
    seconds: float = option(math.inf, "Start no run after so many seconds; 0 only gathers what is there.")

    def __post_init__(self) -> None:
        check_counts(self)
        resolve_network(self)
        choose(self.codecs, FSDPOptions.asked_by, FSDPOptions.baselines)

    def published(self) -> dict[str, Any]:
        """For the document: without where runs are kept, and how long it may take."""
        return {name: value for name, value in asdict(self).items() if name not in ("out", "seconds")}

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.missing) * self.steps

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Contender and seed, in the order in which they are run."""
        labels = choose(self.codecs, FSDPOptions.asked_by, FSDPOptions.baselines)
        return [(label, seed) for seed, label in product(range(self.seeds), labels)]

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Runs that are not finished."""
        return [run for run in self.runs if not self.file_of(*run).exists()]

    @property
    def trial(self) -> Trial:
        """What is trained on, and for how long."""
        width = network_width("text", self.size)
        return Trial("text", width, self.batch_size, self.steps, warmup_steps=0, device=self.device or "cpu")

    def file_of(self, label: str, seed: int) -> Path:
        """Where a run's result is, or will be; its name says all that the result depends on."""
        kept = "-kept" if self.keep_gathered else ""
        job = f"{label}-{seed}-{self.ranks}-{self.device or 'cpu'}-{self.size}-{self.batch_size}-{self.steps}{kept}"
        return self.out / (re.sub(r"[^\w.]+", "-", job) + ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """One contender; means over seeds.

    loss            on the training set after all steps, and
    loss_over_fp32  that over the loss of FSDP2 in float32 with the same seed; `worst` of all seeds
    seconds         of a step on rank 0, the median
    peak_bytes      of a GPU's memory on rank 0; None on the CPU
    """

    contender: str
    ranks: int
    device: str | None
    n: int
    n_steps: int
    n_seeds: int
    loss: float
    loss_over_fp32: float
    worst: float
    seconds: float
    peak_bytes: float | None


def loss_rows(options: LossOptions, progress: Progress = no_progress) -> list[LossRow] | None:
    """Make the runs that are missing, while there is time; rows of all that have one with each seed's baseline."""
    options.out.mkdir(parents=True, exist_ok=True)
    if options.missing and options.seconds > 0:
        arguments = {
            "runs": [[label, seed, str(options.file_of(label, seed))] for label, seed in options.missing],
            "trial": asdict(options.trial),
            "seconds": min(options.seconds, 1e9),
            "reshard": not options.keep_gathered,
        }
        where_from = "benchmarks.fsdp_loss:losses_on_rank"
        if on_ranks(where_from, arguments, options.ranks, options.rate, progress, device=options.device) is None:
            return None
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for label, seed in options.runs:
        if options.file_of(label, seed).exists():
            found.setdefault(label, {})[seed] = json.loads(options.file_of(label, seed).read_text())
    return [
        _row(label, runs, found[FP32], options) for label, runs in found.items() if runs.keys() <= found[FP32].keys()
    ]


def _row(label: str, runs: Mapping[int, Any], plain: Mapping[int, Any], options: LossOptions) -> LossRow:
    over = [run["loss"] / plain[seed]["loss"] for seed, run in runs.items()]
    return LossRow(
        contender=label,
        ranks=options.ranks,
        device=options.device,
        n=runs[0]["n"],
        n_steps=options.steps,
        n_seeds=len(runs),
        loss=fmean(run["loss"] for run in runs.values()),
        loss_over_fp32=fmean(over),
        worst=max(over),
        seconds=median(run["seconds"] for run in runs.values()),
        peak_bytes=max(run["peak_bytes"] for run in runs.values()) if options.device == "cuda" else None,
    )


def losses_on_rank(
    progress: Progress, *, runs: Sequence[tuple[str, int, str]], trial: Mapping[str, Any], seconds: float, reshard: bool
) -> int:
    """Train run after run, while there is time by rank 0's clock, which writes each result; how many were made."""
    comm, asked = Communicator.over(), Trial(**trial)
    problem, begin = asked.network_problem(), time.monotonic()
    for done, (label, seed, path) in enumerate(runs):
        if _sum(comm, comm.rank == 0 and time.monotonic() - begin > seconds):
            return done
        result = _train(new_run(label, problem, seed, reshard_after_forward=reshard), problem, asked, progress, seed)
        if comm.rank == 0:
            with atomic_write(Path(path)) as file:
                file.write(json.dumps(result))
    return len(runs)


def _train(run: TrainingRun, problem: NetworkProblem, trial: Trial, progress: Progress, seed: int) -> dict[str, Any]:
    comm, on_gpu = Communicator.over(), trial.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    interleave([run], problem, trial, progress, seed=seed)
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    share = problem.loss(run.network, slice(comm.rank, None, comm.size))
    result = {"loss": _sum(comm, share) / comm.size, "seconds": median(run.seconds), "peak_bytes": peak}
    run.close()
    return result | {"n": run.n_parameters}


def _sum(comm: Communicator, value: float) -> float:
    """Over ranks."""
    found = torch.tensor([float(value)], dtype=torch.float64)
    comm.all_reduce(found)()
    return float(found)


PRESENTATION = Presentation(
    lambda document: f"The loss of a sharded network on {where(document)}",
    [
        RowTable(
            "The loss after all steps, and what a step and a rank need",
            [
                text("contender", "contender"),
                Column("seeds", "n_seeds", digits=1),
                Column("loss", "loss", digits=4),
                Column("÷ fp32", "loss_over_fp32", digits=4),
                Column("worst", "worst", digits=4),
                Column("ms per step", "seconds", "ms"),
                Column("MB of memory", "peak_bytes", "MB"),
            ],
            "Loss on the training set, means over seeds. ÷ fp32: over the loss of FSDP2 in float32 with the same seed; "
            "worst: of all seeds. MB of memory: the most that rank 0 needed of a GPU.",
        )
    ],
    "fully_shard (FSDP2), one contender after another.",
)
SUITE = Suite(
    "fsdp-loss",
    LossOptions,
    loss_rows,
    """The loss that sharded training ends with, by how gradients and weights travel.

    Finished runs stay in a folder and are not run again, so that a sweep can be made in pieces.
    """,
)
