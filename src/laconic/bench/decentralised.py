"""The suite `decentralised`: training with neighbours only, beside all-reduce; on ranks, or simulated on any number."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from laconic.bench.checks import WrongResult
from laconic.bench.ddp import perceptron_width
from laconic.bench.network import bits_per_second
from laconic.bench.options import require_at_least, require_known, require_network
from laconic.bench.protocol import Spread, speedup
from laconic.bench.ranks import on_ranks, slowest
from laconic.codec import codec as make_codec
from laconic.exchange.topology import TOPOLOGIES
from laconic.exchange.topology import by_name as topology_by_name
from laconic.training.decentralised.stability import held_at, noise_limit
from laconic.training.decentralised.trial import MEMBERS, VARIANTS, Plan, simulate
from laconic.training.problems import PROBLEMS

RANK_FUNCTION = "laconic.training.decentralised.trial:trial_on_rank"
FP32, SCATTER = "DDP fp32", "nuqsgd-4 scatter_reduce"
WARMUP_STEPS = 3
KINDS = (*MEMBERS, *VARIANTS)
CODECS: dict[str, tuple[str, dict[str, Any]]] = {
    "nuqsgd-4": ("nuqsgd", {"bits": 4, "bucket_size": 512}),
    "nuqsgd-8": ("nuqsgd", {"bits": 8, "bucket_size": 512}),
    "qsgd-4": ("qsgd", {"bits": 4, "bucket_size": 64}),
    "qsgd-8": ("qsgd", {"bits": 8, "bucket_size": 512}),
}
"""Buckets small enough for the noise that rings and tori bear: 0.5 and 0.25 of ‖v‖² at t = 2, 1.7 and 0.9 at best.
NUQSGD at 4 bits loses at most 0.16 in buckets of 512; QSGD at 4 bits 3.2 in those and 1.1 in buckets of 64."""
LARGE = 2**20


@dataclass(frozen=True, slots=True)
class DecentralisedOptions:
    """What to run.

    ranks       how many; each is a process with one thread, or a simulated node
    simulated   whether all nodes are simulated in this process: no seconds, any number of nodes
    rate        of every host's link, such as "1gbit"; None for loopback, unlimited
    slow_rate   of the last host's link; None for that of the others
    topologies  names of graphs
    members     of the family: dpsgd, dcd, ecd, and variants of the last: ecd-paper, ecd-running, ecd-restart
    codecs      for all members but dpsgd
    problem     "clusters" (synthetic, a perceptron) or "digits" (handwritten digits, a small convolutional network)
    size        least number of parameters of the perceptron
    batch_size  samples a rank and step
    repeats     timed steps
    """

    ranks: int = 4
    simulated: bool = False
    rate: str | None = None
    slow_rate: str | None = None
    topologies: Sequence[str] = ("ring", "star")
    members: Sequence[str] = ("dpsgd", "ecd", "dcd")
    codecs: Sequence[str] = ("nuqsgd-4", "nuqsgd-8")
    problem: str = "clusters"
    size: int = 2**20
    batch_size: int = 16
    repeats: int = 30

    def __post_init__(self) -> None:
        require_at_least(1, self, "size", "batch_size", "repeats")
        require_known([self.problem], PROBLEMS, "problem")
        require_known(self.topologies, list(TOPOLOGIES), "topology")
        require_known(self.members, KINDS, "member")
        require_known(self.codecs, list(CODECS), "codec")
        require_network(self.ranks, self.rate)
        if self.slow_rate is not None:
            bits_per_second(self.slow_rate)
            if self.rate is None:
                raise ValueError("a slow link is one among faster ones: give --rate, too, such as --rate 1gbit")
        if self.simulated and self.rate is not None:
            raise ValueError("simulated nodes use no network; leave --rate out")

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(plans(self)) if self.simulated else self.repeats + WARMUP_STEPS

    @property
    def width(self) -> int:
        """Of the hidden layers of the perceptron."""
        return perceptron_width(self.size)


@dataclass(frozen=True, slots=True)
class DecentralisedRow:
    """One way to train.

    simulated           whether the nodes were simulated; then there are no seconds
    slow_rate           of the last host's link, if it has its own
    seconds             of one step, forward to update: the slowest rank's
    speedup_over_fp32   seconds of a step of DDP as it is over its own, step by step
    speedup_over_scatter  the same for laconic's nuqsgd-4 by scatter_reduce under DDP
    bytes_sent          a step, by the rank that sends most
    slow_bytes_sent     a step, by the last rank
    losses              of the average model on the training set, at a few moments; None once it is no number
    loss                the last of them
    loss_over_fp32      that over the loss of AllReduce training: 1.02 is 2 % worse
    distance            √(1/n Σ ‖x_i − x̄‖²) at the end
    """

    contender: str
    topology: str | None
    config: str
    n: int
    ranks: int
    simulated: bool
    rate: str | None
    slow_rate: str | None
    n_steps: int
    bytes_sent: float
    losses: list[float | None]
    loss: float | None
    loss_over_fp32: float | None
    seconds: Spread | None = None
    speedup_over_fp32: Spread | None = None
    speedup_over_scatter: Spread | None = None
    slow_bytes_sent: float | None = None
    distance: float | None = None


def plans(options: DecentralisedOptions) -> dict[str, Plan]:
    """AllReduce in fp32 and by scatter_reduce, and every member on every graph that it can work on.

    >>> list(plans(DecentralisedOptions(topologies=["ring"], members=["ecd"], codecs=["nuqsgd-4"])))
    ['DDP fp32', 'nuqsgd-4 scatter_reduce', 'ecd nuqsgd-4 ring']
    """
    found = {FP32: Plan("all_reduce")}
    if not options.simulated:
        found[SCATTER] = Plan("all_reduce", "nuqsgd", {"bits": 4})
    for topology in options.topologies:
        for member in options.members:
            if member == "dpsgd":
                found[f"dpsgd {topology}"] = Plan("dpsgd", topology=topology)
                continue
            for name in options.codecs:
                plan = Plan(member, *CODECS[name], topology=topology)
                if bearable(plan, options.ranks):
                    found[f"{member} {name} {topology}"] = plan
    return found


def bearable(plan: Plan, n_nodes: int) -> bool:
    """Whether the member takes this codec on this graph: the proved bound of the noise is what counts.

    >>> bearable(Plan("dcd", "qsgd", {"bits": 4, "bucket_size": 64}, "ring"), 4)
    False
    """
    mixing = topology_by_name(plan.topology).mixing(n_nodes)
    omega = make_codec(plan.scheme, **plan.options).quantizer.variance_bound(LARGE)
    if plan.member == "dcd":
        return omega < noise_limit(mixing)
    return plan.member in VARIANTS or held_at(mixing, omega) is not None


def decentralised_rows(
    options: DecentralisedOptions, tell: Callable[[str], None] = lambda label: None
) -> list[DecentralisedRow] | None:
    """Run the suite; None on the ranks of torchrun other than the first."""
    if options.simulated:
        return list(_simulated(options, tell))
    chosen = plans(options)
    results = _on_ranks(options, chosen, tell)
    if results is None:
        return None
    _check_losses(results)
    rounds = {label: slowest([result[label] for result in results]) for label in chosen}
    fp32 = results[0][FP32]["losses"][-1]
    return [_row(label, plan, options, results, rounds, fp32) for label, plan in chosen.items()]


def _on_ranks(
    options: DecentralisedOptions, chosen: dict[str, Plan], tell: Callable[[str], None]
) -> list[dict[str, Any]] | None:
    arguments = {
        "plans": {label: asdict(plan) for label, plan in chosen.items()},
        "steps": options.repeats,
        "warmup_steps": WARMUP_STEPS,
        "problem_name": options.problem,
        "width": options.width,
        "batch_size": options.batch_size,
    }
    slow = {} if options.slow_rate is None else {options.ranks - 1: options.slow_rate}
    return on_ranks(RANK_FUNCTION, arguments, options.ranks, options.rate, tell, rates=slow)


def _check_losses(results: Sequence[dict[str, Any]]) -> None:
    """All ranks must see the same average model."""
    for label in results[0]:
        if len({tuple(result[label]["losses"]) for result in results}) > 1:
            raise WrongResult(f"{label}: the ranks do not see the same loss of the average model")


def _row(
    label: str,
    plan: Plan,
    options: DecentralisedOptions,
    results: Sequence[dict[str, Any]],
    rounds: dict[str, list[float]],
    fp32: float,
) -> DecentralisedRow:
    ranks = [result[label] for result in results]
    return DecentralisedRow(
        contender=label,
        topology=plan.topology or None,
        config=repr(plan),
        n=ranks[0]["n_parameters"],
        ranks=len(ranks),
        simulated=False,
        rate=options.rate,
        slow_rate=options.slow_rate,
        n_steps=WARMUP_STEPS + options.repeats,
        bytes_sent=max(rank["bytes_sent"] for rank in ranks),
        losses=[_finite(loss) for loss in ranks[0]["losses"]],
        loss=_finite(ranks[0]["losses"][-1]),
        loss_over_fp32=_finite(ranks[0]["losses"][-1] / fp32),
        seconds=Spread.of(rounds[label]),
        speedup_over_fp32=speedup(rounds[FP32], rounds[label]),
        speedup_over_scatter=speedup(rounds[SCATTER], rounds[label]),
        slow_bytes_sent=ranks[-1]["bytes_sent"],
        distance=_finite(ranks[0]["distance"]) if "distance" in ranks[0] else None,
    )


def _simulated(options: DecentralisedOptions, tell: Callable[[str], None]) -> Iterator[DecentralisedRow]:
    fp32 = None
    for label, plan in plans(options).items():
        tell(label)
        losses, n_bytes, distance, n = simulate(
            plan, options.ranks, options.repeats, options.problem, options.width, options.batch_size
        )
        fp32 = losses[-1] if fp32 is None else fp32
        yield DecentralisedRow(
            contender=label,
            topology=plan.topology or None,
            config=repr(plan),
            n=n,
            ranks=options.ranks,
            simulated=True,
            rate=None,
            slow_rate=None,
            n_steps=options.repeats,
            bytes_sent=n_bytes,
            losses=[_finite(loss) for loss in losses],
            loss=_finite(losses[-1]),
            loss_over_fp32=_finite(losses[-1] / fp32),
            distance=_finite(distance),
        )


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
