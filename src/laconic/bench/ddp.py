"""The suite `ddp`: steps of data-parallel training, beside plain DDP and PyTorch's own hooks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from laconic.bench.exchange import PHASES, WHERE_THE_TIME_GOES
from laconic.bench.ranks import (
    EVERY,
    PAPERS_BUCKET,
    CodecOptions,
    RankRow,
    columns_of,
    compared,
    digest,
    noise,
    scheme_of,
)
from laconic.bench.suite import Progress, Suite, no_progress
from laconic.bench.training import PROBLEMS, NetworkProblem, TrainingRun, Trial, interleave
from laconic.codec import make_codec
from laconic.exchange import Communicator
from laconic.options import check_names, option
from laconic.report import BarChart, Column, Part, Presentation, RowTable, Text, speedups, text, where
from laconic.training import Policy, compress

BASELINES = ("DDP fp32", "DDP bf16 hook")
ONE_BUCKET_MB = 2**14
"""DDP bucket size for PyTorch's PowerSGD hook, so large that there is one bucket: over Gloo, with several buckets, it
crashes or hangs (torch 2.13); it seems to start all-reduces from callbacks, whose order differs from rank to rank."""


LOW_RANK = {"DDP PowerSGD hook": "powersgd", "DDP PowerSGD hook, rank 32": "powersgd-32"}
"""PowerSGD hooks: label to name. The rank is 2 unless the name ends in another."""
HOOKS = {BASELINES[0]: "fp32", BASELINES[1]: "bf16", **LOW_RANK}
"""PyTorch's hooks: label to the name for --codec; "fp32" is plain DDP."""
CODECS = ("bf16", "nuqsgd-4", "nuqsgd-4/512", "nuqsgd-4-rans", "qsgdinf-8", "ef-sign", "nothing")
WIDTHS = ("nuqsgd-2", "nuqsgd-8", "qsgd-4", "rotated-2", "rotated-3", "rotated-4")
ERRORS = ("dithered-1", "dithered-0.3", "dithered-0.1")
VERIFIED, IN_METRIC = "+verify", "@metric"
"""Suffixes of a codec's name: compare the replicas at every step (`Policy(verify_every=1)`); quantize in the metric of
the optimizer."""
MORE = (*WIDTHS, *ERRORS, "nuqsgd-4-huffman", "nuqsgd-4-elias", "qsgdinf-8-rans", "nuqsgd-4" + VERIFIED)
"""laconic's contenders, by names of `codec.make_codec`; "nothing" exchanges nothing. MORE are trained only if asked for
by name, or by "every"."""
ASKED_BY: dict[str, tuple[str, ...]] = {label: (name,) for label, name in HOOKS.items()}
ASKED_BY["DDP PowerSGD hook, rank 32"] = (EVERY, "powersgd-32")
ASKED_BY |= {name: (scheme_of(name), name, EVERY) for name in CODECS} | {name: (EVERY, name) for name in MORE}


@dataclass(frozen=True, slots=True)
class DDPOptions(CodecOptions):
    """Options of the suite `ddp`; ranks are processes.

    problem  "clusters" (synthetic, a perceptron), "digits" (handwritten digits, a small convolutional network), or
             "text" (synthetic, a transformer)

    >>> DDPOptions(codecs=["nuqsgd-4"]).labels
    ['DDP fp32', 'DDP bf16 hook', 'nuqsgd-4']
    """

    problem: str = option("clusters", "clusters (a perceptron), digits (a small network) or text (a transformer).")
    size: int = option(2**22, "Parameters of perceptron or transformer, at least.")
    batch_size: int = option(16, "Samples per rank and step.")
    repeats: int = option(30, "Timed steps.")
    seeds: int = option(1, "Do it all so many times over: one loss is mostly luck.")

    function: ClassVar[str] = "laconic.bench.ddp:ddp_on_rank"
    baselines: ClassVar[tuple[str, str]] = BASELINES
    native: ClassVar[Mapping[str, str]] = HOOKS
    asked_by: ClassVar[Mapping[str, Sequence[str]]] = ASKED_BY

    def __post_init__(self) -> None:
        CodecOptions.__post_init__(self)
        check_names([self.problem], PROBLEMS, "problem")

    @property
    def n_parts(self) -> int:
        return self.seeds * self.trial.n_steps

    @property
    def trial(self) -> Trial:
        """The training that every contender runs."""
        return Trial(self.problem, self.size, self.batch_size, self.repeats, device=self.device or "cpu")

    @property
    def asked(self) -> dict[str, Any]:
        return {"labels": self.labels, "trial": asdict(self.trial), "seeds": self.seeds}


@dataclass(frozen=True, slots=True, kw_only=True)
class DDPRow(RankRow):
    """One contender; seconds and bytes are those of a step, forward to update.

    n_seeds         number of trials: seconds are of all of them, the rest are means
    loss            on the training set after all steps; None if not finite: a codec's noise can be too much for the
                    step size, which is that of float32
    loss_over_fp32  loss over that of plain DDP: 1.02 is 2 % worse
    encode_seconds, wire_seconds, decode_seconds  summed over groups, of the slowest rank; groups overlap
    weight_bytes_sent  of a sharded network's weights, by the rank that sends most
    """

    config: str
    n: int
    n_steps: int
    loss: float | None
    loss_over_fp32: float | None
    encode_seconds: float | None = None
    decode_seconds: float | None = None
    weight_bytes_sent: float | None = None
    n_seeds: int = 1


def ddp_rows(options: DDPOptions, progress: Progress = no_progress) -> list[DDPRow] | None:
    """Run the suite and check every result; None on the ranks of torchrun other than the first."""
    results = options.results(progress)
    return None if results is None else rows_of(options, results)


def rows_of(options: DDPOptions, results: Sequence[Any]) -> list[DDPRow]:
    """One row per contender from the results of the ranks."""
    found = compared(options, results)
    losses = {label: fmean(rank["loss"] for rank in ranks) for label, (ranks, _) in found.items()}
    plain = losses[options.baselines[0]]
    return [
        DDPRow(
            **common,
            config=options.native.get(label) or f"laconic {label}",
            n=ranks[0]["n_parameters"],
            n_steps=options.trial.n_steps,
            loss=losses[label] if math.isfinite(losses[label]) else None,
            loss_over_fp32=losses[label] / plain if math.isfinite(losses[label] / plain) else None,
            n_seeds=options.seeds,
        )
        for label, (ranks, common) in found.items()
    ]


def train_on_rank(
    new_run: Callable[[str, NetworkProblem, int], TrainingRun],
    progress: Progress,
    *,
    labels: Sequence[str],
    trial: Mapping[str, Any],
    seeds: int,
) -> dict[str, dict[str, Any]]:
    """For each contender: seconds of each timed step, training loss at the end, bytes per step, digest of the weights.

    new_run  makes a contender from its label, a problem and a seed
    seeds    repetitions, each with other weights, batches and random numbers; seconds are of all, the rest are means
    """
    asked = Trial(**trial)
    problem, results = asked.network_problem(), []
    for seed in range(seeds):
        runs = {label: new_run(label, problem, seed) for label in labels}
        interleave(runs.values(), problem, asked, progress, seed=seed)
        results.append({label: _result(run, problem) for label, run in runs.items()})
        for run in runs.values():
            run.close()
    return {label: _merged([result[label] for result in results]) for label in labels}


def _new_run(label: str, problem: NetworkProblem, seed: int) -> TrainingRun:
    """Plain DDP, or DDP with a hook of PyTorch or laconic."""
    network, hook, compressor = problem.new_network(seed), HOOKS.get(label), None
    model = DistributedDataParallel(network, bucket_cap_mb=ONE_BUCKET_MB if label in LOW_RANK else None)
    optimizer = problem.new_optimizer(model.parameters())
    if label in LOW_RANK:
        rank = int(LOW_RANK[label].partition("-")[2] or 2)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, _bf16)
    elif hook is None:
        name = label.removesuffix(VERIFIED).removesuffix(IN_METRIC)
        name, exchange = ("fp32", label) if label == "nothing" else (name, "auto")
        compressor = compress(
            model, make_codec(name, PAPERS_BUCKET), exchange=exchange,
            policy=Policy(verify_every=int(label.endswith(VERIFIED))),
            seed=seed, error_every=0, optimizer=optimizer if label.endswith(IN_METRIC) else None,
        )  # fmt: skip
    return TrainingRun(model, optimizer, compressor)


ddp_on_rank = partial(train_on_rank, _new_run)


def _bf16(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """PyTorch's bf16 hook, wrapped since DDP refuses it by name without NCCL, though Gloo sums bfloat16 as well."""
    future: torch.futures.Future[torch.Tensor] = default_hooks.bf16_compress_hook(group, bucket)
    return future


def _result(run: TrainingRun, problem: NetworkProblem) -> dict[str, Any]:
    """This rank's results: seconds, bytes, its share of the training loss, and a digest of the weights."""
    comm, weights = Communicator.over(), getattr(run.sender, "weights", None)
    return {
        **run.per_step("bytes_sent", *PHASES),
        **({"weight_bytes_sent": weights.totals.bytes_sent / len(run.seconds)} if weights and weights.units else {}),
        "seconds": run.seconds,
        "loss": problem.loss(run.network, slice(comm.rank, None, comm.size)),
        "digest": digest(getattr(p, "full_tensor", lambda p=p: p)() for p in run.model.parameters()),
        "n_parameters": run.n_parameters,
    }


def _merged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The results of all seeds in one."""
    numbers = [key for key in results[0] if key not in ("seconds", "digest", "n_parameters")]
    return {key: fmean(result[key] for result in results) for key in numbers} | {
        "seconds": [seconds for result in results for seconds in result["seconds"]],
        "digest": " ".join(result["digest"] for result in results),
        "n_parameters": results[0]["n_parameters"],
    }


LOSSES = "The loss after all steps"


def parts(plain: str, bf16: str, *more: Column) -> tuple[Part, ...]:
    """Parts of the presentation of a suite with these two baselines; `more` are columns of bytes."""
    return (
        RowTable(
            "A step of training",
            columns_of(Column("ms per step", "seconds", "ms"), Column("MB sent", "bytes_sent", "MB"), *more),
            f"ms: the slowest rank's, forward to update. × fp32: speed over {plain}; × bf16: over {bf16}. MB sent by a "
            "rank, where laconic sent them.",
        ),
        RowTable(
            LOSSES,
            [
                text("contender", "contender"),
                Column("steps", "n_steps", "n"),
                Column("loss", "loss", digits=4),
                Column("÷ fp32", "loss_over_fp32", digits=4),
            ],
            f"On the training set; ÷ fp32: over that of {plain}. After a few steps it says little.",
        ),
        speedups(plain),
        speedups(bf16, "speedup_over_bf16"),
        BarChart("Bytes that a rank sends in a step", "bytes_sent", "B"),
        WHERE_THE_TIME_GOES,
    )


PARTS = parts("DDP in float32", "DDP with the bf16 hook")
PRESENTATION = Presentation(
    lambda document: f"Training a network on {where(document)}",
    [Text(noise), *PARTS],
    "DistributedDataParallel, the contenders step by step in turn.",
)
SUITE = Suite(
    "ddp",
    DDPOptions,
    ddp_rows,
    """Steps of data-parallel training, next to DDP as it is and to PyTorch's own hooks.

    Every contender trains the same network on the same batches. Under torchrun, uses its ranks.
    """,
)
