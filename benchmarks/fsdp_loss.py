"""The suite `fsdp-loss`: final loss of sharded training beside FSDP2 in float32, and memory per rank.

A finished run (a contender with a seed) is a file of its own and is never run again, so a sweep can be interrupted.
Ranks are processes, or simulated with several runs side by side.
"""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar

import torch

from benchmarks.fsdp_simulated import SimulatedShards, units_of
from laconic.atomic_write import atomic_write
from laconic.bench.fsdp import WEIGHTS, FSDPOptions, new_run
from laconic.bench.ranks import PAPERS_BUCKET, RankOptions, choose, finish, resolve_network
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import NetworkProblem, TrainingRun, Trial, batch_rows, interleave
from laconic.codec import make_codec
from laconic.exchange import Communicator
from laconic.kernels import Stream
from laconic.options import check_counts, option
from laconic.report import BarChart, Column, Presentation, RowTable, text, where

FP32, BF16 = FSDPOptions.baselines


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
    processes: int | None = option(
        None, "Simulate the ranks; so many runs side by side. No memory is noted then, nor FSDP2 bf16 run."
    )
    out: Path = option(Path("runs/fsdp-loss"), "Folder of finished runs, which are not run again.", metavar="DIR")  # noqa: RUF009
    seconds: float = option(math.inf, "Start no run after so many seconds; 0 only gathers what is there.")

    function: ClassVar[str] = "benchmarks.fsdp_loss:losses_on_rank"

    def __post_init__(self) -> None:
        check_counts(self)
        resolve_network(self)
        choose(self.codecs, FSDPOptions.asked_by, FSDPOptions.baselines)

    def published(self) -> dict[str, Any]:
        """The options as JSON values, without the folder of runs and the time limit."""
        return {name: value for name, value in asdict(self).items() if name not in ("out", "seconds")}

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.missing) * (1 if self.processes else self.steps)

    @property
    def runs(self) -> list[tuple[str, int]]:
        """(contender, seed) of all runs, in order."""
        labels = choose(self.codecs, FSDPOptions.asked_by, FSDPOptions.baselines)
        left_out = BF16 if self.processes else None
        return [(label, seed) for seed, label in product(range(self.seeds), labels) if label != left_out]

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Runs that are not finished."""
        return [run for run in self.runs if not self.file_of(*run).exists()]

    @property
    def trial(self) -> Trial:
        """The training of every run."""
        return Trial("text", self.size, self.batch_size, self.steps, warmup_steps=0, device=self.device or "cpu")

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of each rank, as JSON values."""
        runs = [(label, seed, str(self.file_of(label, seed))) for label, seed in self.missing]
        return {"runs": runs, "trial": asdict(self.trial), "seconds": min(self.seconds, 1e9)}

    def file_of(self, label: str, seed: int) -> Path:
        """The file of a run's result; its name has everything that the result depends on."""
        how = "-simulated" if self.processes else ""
        job = f"{label}-{seed}-{self.ranks}-{self.device or 'cpu'}-{self.size}-{self.batch_size}-{self.steps}{how}"
        return self.out / (re.sub(r"[^\w.]+", "-", job) + ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRow:
    """One contender; means over seeds.

    loss            on the training set after all steps
    loss_over_fp32  loss over that of FSDP2 in float32 with the same seed; `worst` of all seeds
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
    """Run what is missing, while there is time; rows of the contenders whose seeds all have a finished baseline."""
    options.out.mkdir(parents=True, exist_ok=True)
    if options.missing and options.seconds > 0:
        if options.processes:
            _simulate_all(options, options.asked["runs"], progress)
        elif options.results(progress) is None:
            return None
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for label, seed in options.runs:
        if options.file_of(label, seed).exists():
            found.setdefault(label, {})[seed] = json.loads(options.file_of(label, seed).read_text())
    plain = found.get(FP32, {})
    return [_row(label, runs, plain, options) for label, runs in found.items() if runs.keys() <= plain.keys()]


def _row(label: str, runs: Mapping[int, Any], plain: Mapping[int, Any], options: LossOptions) -> LossRow:
    over = [run["loss"] / plain[seed]["loss"] for seed, run in runs.items()]
    return LossRow(
        contender=label,
        ranks=options.ranks,
        device=options.device,
        n=next(iter(runs.values()))["n"],
        n_steps=options.steps,
        n_seeds=len(runs),
        loss=fmean(run["loss"] for run in runs.values()),
        loss_over_fp32=fmean(over),
        worst=max(over),
        seconds=median(run["seconds"] for run in runs.values()),
        peak_bytes=max(run["peak_bytes"] or 0 for run in runs.values()) or None,
    )


def losses_on_rank(
    progress: Progress, *, runs: Sequence[tuple[str, int, str]], trial: Mapping[str, Any], seconds: float
) -> int:
    """Train run after run, while there is time by rank 0's clock; rank 0 writes each result. Returns their number."""
    comm, asked = Communicator.over(), Trial(**trial)
    problem, begin = asked.network_problem(), time.monotonic()
    for done, (label, seed, path) in enumerate(runs):
        if _sum(comm, comm.rank == 0 and time.monotonic() - begin > seconds):
            return done
        result = _train(new_run(label, problem, seed), problem, asked, progress, seed)
        if comm.rank == 0:
            _write(path, result)
    return len(runs)


def _write(path: str, result: Mapping[str, Any]) -> None:
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(result))


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


def _simulate_all(options: LossOptions, runs: Sequence[tuple[str, int, str]], progress: Progress) -> None:
    """Simulate runs in parallel processes, while there is time."""
    begin, trial = time.monotonic(), asdict(options.trial)
    with ProcessPoolExecutor(options.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = [pool.submit(simulate, label, seed, path, trial, options.ranks) for label, seed, path in runs]
        for _ in as_completed(waiting):
            progress("simulated runs")
            if time.monotonic() - begin > options.seconds:
                pool.shutdown(wait=True, cancel_futures=True)
                break
        for one in waiting:
            if not one.cancelled():
                one.result()


def simulate(label: str, seed: int, path: str, trial: Mapping[str, Any], size: int) -> None:
    """One run with all ranks in this process."""
    torch.set_num_threads(1)
    asked = Trial(**trial)
    problem = asked.network_problem()
    codec, _, weights = label.partition("+")
    units, network = units_of(problem.network(), size), problem.new_network(seed)
    model = SimulatedShards(
        network, units, None if label == FP32 else make_codec(codec, PAPERS_BUCKET), WEIGHTS[weights], seed
    )
    optimizer, seconds = problem.new_optimizer(model.masters), []
    for step in range(asked.n_steps):
        begin = time.perf_counter()
        drawn = [batch_rows(len(problem.x), asked.batch_size, Stream(seed, rank, step)) for rank in range(size)]
        model.step([(problem.x[rows], problem.y[rows]) for rows in drawn], optimizer)
        finish(problem.x.device)
        seconds.append(time.perf_counter() - begin)
    model.gather()
    n = sum(p.numel() for p in network.parameters())
    _write(path, {"loss": problem.loss(network), "seconds": median(seconds), "peak_bytes": None, "n": n})


def _sum(comm: Communicator, value: float) -> float:
    """The sum of a value over ranks."""
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
        ),
        BarChart("Loss over that of FSDP2 in float32", "loss_over_fp32", "×", reference=1.0),
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
