"""A plan: every option with its predicted time, the recommended one, and the link rate at which another is better."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from laconic.options import check_int
from laconic.planner import glm, network
from laconic.planner.cluster import Cluster
from laconic.planner.glm import MOST_S, GlmJob, GlmOption
from laconic.planner.network import NetworkJob, NetworkOption
from laconic.planner.terms import Cost
from laconic.units import shown

VERSION = 1
Job = GlmJob | NetworkJob
JOBS: dict[str, type[GlmJob] | type[NetworkJob]] = {job.kind: job for job in (GlmJob, NetworkJob)}
TIE, MAX_TIE = 1.03, 1.15
"""Options within 3 % of the fastest count as equally fast, since predictions are no better, and the plainest of them is
taken; between precisions up to 15 %, if the calibration is that uncertain."""
SLOWEST_LINK, FASTEST_LINK = 1e5, 1e13
"""Range of link rates, in bits per second, in which crossovers are searched."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """An option, its predicted cost, and the memory that a rank needs.

    allowed  whether it can be run and is as precise as the job requires; baselines are predicted in any case
    """

    option: GlmOption | NetworkOption
    cost: Cost
    memory_bytes: float
    allowed: bool = True

    @property
    def seconds(self) -> float:
        return self.cost.seconds


@dataclass(frozen=True, slots=True)
class Crossover:
    """The link rate, in bits per second, below (or else above) which compression or fewer messages pay."""

    bits_per_second: float
    below: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The predictions for a job on a cluster, and the recommended option.

    predictions  of every option
    fp32, bf16   the uncompressed baselines; for a GLM, SGD in recipes fp32 and C
    crossover    link rate at which compression or fewer messages begin to pay; None where there is no such rate
    s            the only number of iterations per message that was considered; None for any number
    """

    job: Job
    cluster: Cluster
    predictions: tuple[Prediction, ...]
    recommended: Prediction
    fp32: Prediction
    bf16: Prediction
    crossover: Crossover | None
    s: int | None = None

    @property
    def compresses(self) -> bool:
        return self.recommended.option.compressed

    @property
    def speedup_over_fp32(self) -> float:
        return self.speedup_over(self.fp32)

    @property
    def speedup_over_bf16(self) -> float:
        return self.speedup_over(self.bf16)

    @property
    def one_process(self) -> Prediction | None:
        """The fastest option in one process, allowed or not; None if there is none."""
        return min((one for one in self.predictions if one.option.alone), key=lambda one: one.seconds, default=None)

    def speedup_over(self, other: Prediction) -> float:
        """Speedup of the recommended option over another prediction."""
        return other.seconds / self.recommended.seconds if self.recommended.seconds else 1.0

    def verdict(self) -> str:
        """One sentence: the recommendation, and its speedup over one process and each baseline."""
        said = [f"{self.recommended.option.advice}; {shown(self.recommended.seconds, 's')} {self.job.unit}"]
        for name, other in self._others():
            if other.option != self.recommended.option:
                what = "that" if len(said) > 1 else "the speed"
                said.append(f"{self.speedup_over(other):.2f}× {what} of {name}")
        return ", ".join(said)

    def _others(self) -> Iterator[tuple[str, Prediction]]:
        """Names and predictions to compare the recommendation with; for one process, only the best option on ranks."""
        if self.recommended.option.alone:
            best = min((o for o in self.predictions if o.allowed and not o.option.alone), key=lambda one: one.seconds)
            yield f"{self.cluster.n_ranks} ranks with {best.option.label}", best
            return
        if self.one_process is not None:
            yield "one process", self.one_process
        for one in (self.fp32, self.bf16):
            name = one.option.codec if isinstance(one.option, NetworkOption) else one.option.series
            yield name.replace(" ", " in recipe "), one

    def crossing(self) -> str:
        """One sentence on the link rate at which compression or fewer messages pay."""
        if self.cluster.n_ranks == 1:
            return "one rank sends nothing"
        if self.crossover is not None:
            side = "below" if self.crossover.below else "above"
            return f"{side} {shown(self.crossover.bits_per_second, 'bit/s', 2)} {self.job.saving}"
        always = gain(self.job, self.cluster, SLOWEST_LINK) > 1
        why = ": each message's latency is what it saves" if always and isinstance(self.job, GlmJob) else ""
        return f"{self.job.saving} at {'every' if always else 'no'} rate of the link{why}"

    def explain(self) -> str:
        """The plan as text: the recommendation, each term of its time and of the baselines', and all options."""
        compared = [("recommended", self.recommended), *(("compared with", one) for _, one in self._others())]
        parts = [self.verdict(), self.crossing(), ""]
        for i, (name, one) in enumerate(compared):
            if one not in [earlier for _, earlier in compared[:i]]:
                parts += [f"{name}: {one.option.label}", *(f"  {line}" for line in one.cost.lines()), ""]
        parts.append("all options, by predicted time")
        for one in sorted(self.predictions, key=lambda one: one.seconds):
            seconds, gigabytes = shown(one.seconds, "s"), one.memory_bytes / 1e9
            parts.append(f"  {one.option.label:26} {seconds:>9}  {gigabytes:.3g} GB per rank")
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values; `from_json` needs only the job, the cluster and s, and recomputes the rest."""
        return {
            "laconic_plan": VERSION,
            "kind": self.job.kind,
            "job": asdict(self.job),
            "cluster": self.cluster.to_json(),
            "s": self.s,
            "recommended": self.recommended.option.label,
            "compresses": self.compresses,
            "seconds": self.recommended.seconds,
            "speedup_over_fp32": self.speedup_over_fp32,
            "speedup_over_bf16": self.speedup_over_bf16,
            "one_process_seconds": self.one_process and self.one_process.seconds,
            "crossover": None if self.crossover is None else asdict(self.crossover),
            "verdict": self.verdict(),
            "crossing": self.crossing(),
            "options": [self._option_json(one) for one in self.predictions],
            "curves": curves(self),
        }

    def _option_json(self, one: Prediction) -> dict[str, Any]:
        cost, seconds = one.cost, one.seconds
        codec = self.cluster.codecs[one.option.codec] if isinstance(one.option, NetworkOption) else None
        return {
            "label": one.option.label,
            **asdict(one.option),
            **({"bits": codec.bits, "error": codec.error} if codec else {}),
            "recommended": one.option == self.recommended.option,
            "seconds": seconds,
            "speedup_over_fp32": self.fp32.seconds / seconds if seconds else None,
            "speedup_over_bf16": self.bf16.seconds / seconds if seconds else None,
            "work_seconds": cost.work_seconds,
            "wire_seconds": cost.wire_seconds,
            "hidden_seconds": cost.hidden,
            "iterations": cost.iterations,
            "memory_bytes": one.memory_bytes,
            "terms": [{**asdict(term), "seconds": term.seconds} for term in cost.terms],
        }


def plan(job: Job, cluster: Cluster, s: int | None = None) -> Plan:
    """Predict every option of a job on a cluster and recommend one; `Impossible` where there is none.

    >>> from laconic.planner import DEFAULT, GlmJob
    >>> plan(GlmJob(50_000, 20), DEFAULT).recommended.option.label
    'sgd fp32, one process'
    """
    if s is not None:
        check_int("s", s, 1)
    cluster = cluster.alone() if cluster.n_ranks == 1 else cluster
    found = predict(job, cluster, s)
    by_option = {one.option: one for one in found}
    fp32, bf16 = (by_option[option] for option in job.baselines)
    crossing = crossover(job, cluster) if cluster.n_ranks > 1 else None
    return Plan(job, cluster, tuple(found), recommend(job, found, cluster), fp32, bf16, crossing, s)


def predict(job: Job, cluster: Cluster, s: int | None = None) -> list[Prediction]:
    """All options that can run, the plainest first, then baselines that cannot; raises `Impossible` if none can."""
    of: Any = glm if isinstance(job, GlmJob) else network
    found = of.options(job, cluster, s)
    return [
        Prediction(one, of.cost(job, one, cluster), of.memory_bytes(job, one, cluster), one in found)
        for one in dict.fromkeys((*found, *job.baselines))
    ]


def recommend(job: Job, found: Sequence[Prediction], cluster: Cluster) -> Prediction:
    """1. Drop options that are not allowed. 2. If the job's margin is above 1, drop compressed options that do not beat
    the best uncompressed one by it. 3. Take the first (plainest) precision whose best option is about as fast as the
    fastest, and of its options the first that is as fast as its best."""
    allowed, margin = [one for one in found if one.allowed], job.margin(cluster)
    if margin > 1:
        wide = min((one.seconds for one in allowed if not one.option.compressed), default=inf)
        allowed = [one for one in allowed if not one.option.compressed or one.seconds * margin <= wide]
    by_precision: dict[str, list[Prediction]] = {}
    for one in allowed:
        by_precision.setdefault(one.option.precision, []).append(one)
    best = {name: min(one.seconds for one in group) for name, group in by_precision.items()}
    same = min(MAX_TIE, max(TIE, 1 + cluster.uncertainty / 2))
    name = next(name for name in by_precision if best[name] <= same * min(best.values()))
    return next(one for one in by_precision[name] if one.seconds <= TIE * best[name])


def crossover(job: Job, cluster: Cluster) -> Crossover | None:
    """The link rate at which compression or fewer messages begin or cease to pay.

    None where they pay at every rate, or at none. Only the rate is varied; latency and the machine's rates stay. Fewer
    bits pay below a rate; fewer messages, which carry more bytes, pay above one, where latency dominates.
    """
    low, high = SLOWEST_LINK, FASTEST_LINK
    below = gain(job, cluster, low) > 1
    if below == (gain(job, cluster, high) > 1):
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if (gain(job, cluster, middle) > 1) == below else (low, middle)
    return Crossover(low, below)


def gain(job: Job, cluster: Cluster, bits_per_second: float) -> float:
    """Best uncompressed time ÷ (margin · best compressed time) at a link rate; above 1, compression pays."""
    found = [one for one in predict(job, cluster.what_if(bits_per_second=bits_per_second)) if one.allowed]
    less = [one.seconds for one in found if one.option.compressed]
    plain = [one.seconds for one in found if not one.option.compressed]
    return min(plain, default=inf) / (job.margin(cluster) * min(less)) if less else 0.0


def from_json(values: Mapping[str, Any]) -> Plan:
    """The inverse of `Plan.to_json`; everything but the job, the cluster and s is recomputed."""
    if not isinstance(values, Mapping) or values.get("laconic_plan") != VERSION:
        raise ValueError(f"not a plan of version {VERSION}; write one with laconic plan --output plan.json")
    try:
        job = JOBS[values["kind"]](**values["job"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the plan's job cannot be read: {error}") from error
    return plan(job, Cluster.from_json(values.get("cluster", {})), values.get("s"))


def best_s(job: GlmJob, cluster: Cluster, recipe: str = "fp32", most: int = MOST_S) -> int:
    """The s of CA-SGD with the least predicted time, a power of two; 1 where SGD is faster.

    Among those within 3 % of the fastest, the smallest is taken, which rounds least.
    """
    options = [GlmOption("sgd", recipe)] if recipe != "D" else []
    options += [GlmOption("ca_sgd", recipe, block) for block in job.blocks(most)]
    seconds = {option: glm.cost(job, option, cluster).seconds for option in options}
    return next(option.s for option in options if seconds[option] <= TIE * min(seconds.values()))


RATES = tuple(10 ** (7 + i / 4) for i in range(17))
"""Link rates in charts: from 10 Mbit/s to 100 Gbit/s."""


def curves(made: Plan) -> list[dict[str, Any]]:
    """Curves per option of seconds against s (GLMs only) and against the link rate (for GLMs with the best s)."""
    job, cluster = made.job, made.cluster
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    if isinstance(job, GlmJob):
        options = [one.option for one in made.predictions if isinstance(one.option, GlmOption)]
        for name, one in {option.series: option for option in options}.items():
            some = [(s, replace(one, s=s if one.solver == "ca_sgd" else 1)) for s in job.blocks()]
            found["s", name] = [{"s": s, "seconds": glm.cost(job, option, cluster).seconds} for s, option in some]
    for bits in RATES if cluster.n_ranks > 1 else ():
        best: dict[str, float] = {}
        for prediction in predict(job, cluster.what_if(bits_per_second=bits), made.s):
            name, seconds = prediction.option.series, prediction.seconds
            best[name] = min(seconds, best.get(name, inf))
        for name, seconds in best.items():
            found.setdefault(("rate", name), []).append({"rate": bits, "seconds": seconds})
    return [{"against": axis, "option": name, "curve": curve} for (axis, name), curve in found.items()]
