"""A plan: every option with its predicted time, the one to take, and why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from laconic.checks import check_int
from laconic.planner import choice as c
from laconic.planner.cluster import Cluster
from laconic.planner.glm import MOST_S, GlmJob, GlmOption
from laconic.planner.glm import cost as glm_cost
from laconic.planner.network import NetworkJob, NetworkOption
from laconic.planner.terms import duration, rate

VERSION = 1
JOBS: dict[str, type[GlmJob] | type[NetworkJob]] = {"glm": GlmJob, "network": NetworkJob}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is predicted for a job on a cluster.

    choices      every option
    recommended  the one to take
    fp32, bf16   what everybody has; of a model SGD, in recipes fp32 and C
    crossover    rate of the links at which saying less begins to pay; None where there is no such rate
    s            iterations that were asked to share a message; None for any number
    """

    job: c.Job
    cluster: Cluster
    choices: tuple[c.Choice, ...]
    recommended: c.Choice
    fp32: c.Choice
    bf16: c.Choice
    crossover: c.Crossover | None
    s: int | None = None

    @property
    def kind(self) -> str:
        """ "glm" or "network"."""
        return "glm" if isinstance(self.job, GlmJob) else "network"

    @property
    def compresses(self) -> bool:
        """Whether saying less is recommended."""
        return c.is_compressed(self.recommended.option)

    @property
    def speedup_over_fp32(self) -> float:
        """Of the recommended option."""
        return self.fp32.seconds / self.recommended.seconds if self.recommended.seconds else 1.0

    @property
    def speedup_over_bf16(self) -> float:
        """Of the recommended option."""
        return self.bf16.seconds / self.recommended.seconds if self.recommended.seconds else 1.0

    def verdict(self) -> str:
        """What to do, in a sentence."""
        option, unit = self.recommended.option, "an iteration" if self.kind == "glm" else "a step"
        if isinstance(option, NetworkOption):
            what = f"use {option.codec} by {option.exchange}"
            advice = what if self.compresses else f"do not compress: {what}"
        else:
            advice = f"{option.solver} in recipe {option.recipe}"
            advice = f"use {advice}, s = {option.s}" if option.s > 1 else f"a message every iteration: use {advice}"
        return ", ".join([f"{advice}; {duration(self.recommended.seconds)} {unit}", *self._compared()])

    def _compared(self) -> list[str]:
        """The speedup over each baseline that is not itself recommended."""
        found: list[str] = []
        for baseline, speedup in ((self.fp32, self.speedup_over_fp32), (self.bf16, self.speedup_over_bf16)):
            option = baseline.option
            name = option.codec if isinstance(option, NetworkOption) else f"{option.solver} in recipe {option.recipe}"
            if option != self.recommended.option:
                found.append(f"{speedup:.2f}× {'that' if found else 'the speed'} of {name}")
        return found

    def crossing(self) -> str:
        """From which link on it pays, in a sentence."""
        less, pay = ("compression", "pays") if self.kind == "network" else ("fewer messages", "pay")
        if self.cluster.n_ranks == 1:
            return "one rank sends nothing"
        if self.crossover is not None:
            side = "below" if self.crossover.below else "above"
            return f"{side} {rate(self.crossover.bits_per_second)} {less} {pay}"
        always = c.pays_anywhere(self.job, self.cluster)
        why = ": each message's latency is what it saves" if always and self.kind == "glm" else ""
        return f"{less} {pay} at {'every' if always else 'no'} rate of the link{why}"

    def explain(self) -> str:
        """All of it, as text: the recommendation, and each term of its time and of the baselines'."""
        shown = [("recommended", self.recommended), ("baseline", self.fp32), ("baseline", self.bf16)]
        parts = [self.verdict(), self.crossing(), ""]
        printed: set[str] = set()
        for name, choice in shown:
            if choice.option.label not in printed:
                printed.add(choice.option.label)
                parts += [f"{name}: {choice.option.label}", *(f"  {line}" for line in choice.cost.lines()), ""]
        order = sorted(self.choices, key=lambda choice: choice.seconds)
        parts.append("all options, by predicted time")
        parts += [
            f"  {choice.option.label:26} {duration(choice.seconds):>9}  {choice.memory_bytes / 1e9:.3g} GB a rank"
            for choice in order
        ]
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """As plain values; `from_json` needs the job and the cluster only, and works the rest out again."""
        return {
            "laconic_plan": VERSION,
            "kind": self.kind,
            "job": asdict(self.job),
            "cluster": self.cluster.to_json(),
            "s": self.s,
            "recommended": self.recommended.option.label,
            "compresses": self.compresses,
            "seconds": self.recommended.seconds,
            "speedup_over_fp32": self.speedup_over_fp32,
            "speedup_over_bf16": self.speedup_over_bf16,
            "crossover": None if self.crossover is None else asdict(self.crossover),
            "verdict": self.verdict(),
            "crossing": self.crossing(),
            "options": [self._choice_json(choice) for choice in self.choices],
        }

    def _choice_json(self, choice: c.Choice) -> dict[str, Any]:
        cost, seconds = choice.cost, choice.seconds
        return {
            "label": choice.option.label,
            **asdict(choice.option),
            "recommended": choice.option == self.recommended.option,
            "seconds": seconds,
            "speedup_over_fp32": self.fp32.seconds / seconds if seconds else None,
            "speedup_over_bf16": self.bf16.seconds / seconds if seconds else None,
            "work_seconds": cost.work_seconds,
            "wire_seconds": cost.wire_seconds,
            "hidden_seconds": cost.hidden,
            "iterations": cost.iterations,
            "memory_bytes": choice.memory_bytes,
            "terms": [{**asdict(term), "seconds": term.seconds} for term in cost.terms],
        }


def plan(job: c.Job, cluster: Cluster, s: int | None = None) -> Plan:
    """Predict every option of a job on a cluster and recommend one; `Impossible` where there is none.

    >>> from laconic.planner import DEFAULT, GlmJob
    >>> plan(GlmJob(400_000, 2000, batch_size=8), DEFAULT).recommended.option.solver
    'ca_sgd'
    """
    if s is not None:
        check_int("s", s, 1)
    found = c.choices(job, cluster, s)
    by_label = {choice.option.label: choice for choice in found}
    fp32, bf16 = (by_label[option.label] for option in c.baselines(job))
    crossing = c.crossover(job, cluster) if cluster.n_ranks > 1 else None
    return Plan(job, cluster, tuple(found), c.recommend(job, found, cluster, s), fp32, bf16, crossing, s)


def from_json(values: Mapping[str, Any]) -> Plan:
    """A plan as `to_json` wrote it, worked out anew."""
    if not isinstance(values, Mapping) or values.get("laconic_plan") != VERSION:
        raise ValueError(f"not a plan of version {VERSION}; write one with laconic plan --output plan.json")
    try:
        job = JOBS[values["kind"]](**values["job"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the plan's job cannot be read: {error}") from error
    return plan(job, Cluster.from_json(values.get("cluster", {})), values.get("s"))


def best_s(job: GlmJob, cluster: Cluster, recipe: str = "fp32", most: int = MOST_S) -> int:
    """The s of CA-SGD with the least predicted time, a power of two; 1 where SGD is faster.

    Of those within 3 % of the fastest the smallest, which rounds least.
    """
    options = [GlmOption("sgd", recipe)] if recipe != "D" else []
    options += [GlmOption("ca_sgd", recipe, block) for block in job.blocks(most)]
    seconds = {option: glm_cost(job, option, cluster).seconds for option in options}
    return next(option.s for option in options if seconds[option] <= c.SAME * min(seconds.values()))


Curves = dict[str, tuple[list[float], list[float]]]
"""By name, x and seconds."""

RATES = tuple(10 ** (7 + i / 4) for i in range(17))
"""From 10 Mbit/s to 100 Gbit/s."""


def against_s(made: Plan) -> Curves:
    """Of CA-SGD in each recipe the job allows, and of SGD, which does not depend on s."""
    job = made.job
    if not isinstance(job, GlmJob):
        return {}
    blocks, found = job.blocks(), Curves()
    for name in dict.fromkeys(
        choice.option.rates_name for choice in made.choices if isinstance(choice.option, GlmOption)
    ):
        solver, recipe = name.split(" ")
        candidates = [GlmOption(solver, recipe, s if solver == "ca_sgd" else 1) for s in blocks]
        found[name] = (
            [float(s) for s in blocks],
            [glm_cost(job, option, made.cluster).seconds for option in candidates],
        )
    return found


def against_rate(made: Plan) -> Curves:
    """Of every codec and exchange; of models, the best s in each recipe. Latency and the machine's rates stay."""
    found: Curves = {}
    for bits in RATES:
        best: dict[str, float] = {}
        for choice in c.choices(made.job, made.cluster.what_if(bits_per_second=bits), made.s):
            option = choice.option
            name = option.rates_name if isinstance(option, GlmOption) else option.label
            best[name] = min(choice.seconds, best.get(name, float("inf")))
        for name, seconds in best.items():
            xs, ys = found.setdefault(name, ([], []))
            xs.append(bits)
            ys.append(seconds)
    return found
