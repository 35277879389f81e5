"""Which option to take, and at which rate of the link another becomes the better one. Pure formulas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from laconic.planner import glm, network
from laconic.planner.cluster import Cluster
from laconic.planner.terms import Cost

Job = glm.GlmJob | network.NetworkJob
AnyOption = glm.GlmOption | network.NetworkOption

GLM_BASELINES = (glm.GlmOption("sgd", "fp32"), glm.GlmOption("sgd", "C"))
NETWORK_BASELINES = (network.NETWORK_OPTIONS[0], network.NETWORK_OPTIONS[1])
SAME, MOST_SAME = 1.03, 1.15
"""Options within 3 % of the fastest count as fast, for predictions are no better, and of those the plainest is taken;
for another precision up to 15 %, where the calibration cannot tell less apart."""
PAYS, MOST_PAYS = 1.10, 1.5
"""Compression adds variance, and so must be predicted to be 10 % faster than what everybody has to be recommended; more
where the calibration cannot tell as little as 10 % apart."""
SLOWEST_LINK, FASTEST_LINK = 1e5, 1e13
"""Bits a second between which crossovers are looked for."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The rate of the links, in bits a second, below (or else above) which saying less pays."""

    bits_per_second: float
    below: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """An option, its predicted cost, and what a rank must hold."""

    option: AnyOption
    cost: Cost
    memory_bytes: float

    @property
    def seconds(self) -> float:
        """Of one iteration, or step."""
        return self.cost.seconds


def choices(job: Job, cluster: Cluster, s: int | None = None) -> list[Choice]:
    """All options that can be run, the plainest first, then baselines that cannot; `Impossible` if none can."""
    if isinstance(job, glm.GlmJob):
        fits = glm.options(job, cluster, s)
        fits += [option for option in GLM_BASELINES if option not in fits]
        return [Choice(o, glm.cost(job, o, cluster), glm.counts(job, o, cluster.n_ranks).memory_bytes) for o in fits]
    averages = network.options(job, cluster)
    averages += [option for option in NETWORK_BASELINES if option not in averages]
    return [Choice(o, network.cost(job, o, cluster), network.memory_bytes(job, o, cluster)) for o in averages]


def baselines(job: Job) -> tuple[AnyOption, AnyOption]:
    """The usual choices without laconic, in float32 and in bfloat16."""
    return GLM_BASELINES if isinstance(job, glm.GlmJob) else NETWORK_BASELINES


def margin(cluster: Cluster) -> float:
    """How much faster compression must be predicted to be.

    >>> from laconic.planner import DEFAULT
    >>> margin(DEFAULT)
    1.1
    """
    return min(MOST_PAYS, max(PAYS, 1 + cluster.uncertainty))


def recommend(job: Job, found: Sequence[Choice], cluster: Cluster, s: int | None = None) -> Choice:
    """1. leave out what the job or the memory does not allow; 2. codecs must beat float32 and bfloat16 all-reduce by
    the margin; 3. take the plainest precision whose best is as fast as the fastest, and of its options the plainest
    that is."""
    allowed = [choice for choice in found if _allowed(job, choice, cluster, s)]
    if isinstance(job, network.NetworkJob):
        wide = min((choice.seconds for choice in allowed if not is_compressed(choice.option)), default=inf)
        allowed = [c for c in allowed if not is_compressed(c.option) or c.seconds * margin(cluster) <= wide]
    by_precision: dict[str, list[Choice]] = {}
    for choice in allowed:
        by_precision.setdefault(precision(choice.option), []).append(choice)
    best = {name: min(choice.seconds for choice in group) for name, group in by_precision.items()}
    same = min(MOST_SAME, max(SAME, 1 + cluster.uncertainty / 2))
    name = next(name for name in by_precision if best[name] <= same * min(best.values()))
    return next(choice for choice in by_precision[name] if choice.seconds <= SAME * best[name])


def precision(option: AnyOption) -> str:
    """What it rounds to: a recipe, or a codec."""
    return option.codec if isinstance(option, network.NetworkOption) else option.recipe


def is_compressed(option: AnyOption) -> bool:
    """Whether it says less: fewer bits, or fewer messages."""
    return option.compressed if isinstance(option, network.NetworkOption) else option.s > 1


def _allowed(job: Job, choice: Choice, cluster: Cluster, s: int | None = None) -> bool:
    option = choice.option
    if cluster.memory_bytes is not None and choice.memory_bytes > cluster.memory_bytes:
        return False
    if isinstance(job, network.NetworkJob) or isinstance(option, network.NetworkOption):
        return True
    return glm.LOSS_GAPS[option.recipe] <= job.loss_gap and (s is None or option.s == s)


def crossover(job: Job, cluster: Cluster) -> Crossover | None:
    """The rate of the links at which saying less begins or ceases to pay.

    None where it pays at every rate, or at none. Only the rate is changed; latency and the machine's rates stay. Fewer
    bits pay below a rate; fewer messages, which carry more bytes, pay above one, where latency is what counts.
    """
    gain = _gain(job, cluster)
    low, high = SLOWEST_LINK, FASTEST_LINK
    below = gain(low) > 1
    if below == (gain(high) > 1):
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if (gain(middle) > 1) == below else (low, middle)
    return Crossover(low, below)


def _gain(job: Job, cluster: Cluster) -> Callable[[float], float]:
    """By rate: the best time of those that say all, over the best of those that say less."""

    def gain(bits_per_second: float) -> float:
        there = cluster.what_if(bits_per_second=bits_per_second)
        found = [choice for choice in choices(job, there) if _allowed(job, choice, there)]
        less = [choice.seconds for choice in found if is_compressed(choice.option)]
        plain = [choice.seconds for choice in found if not is_compressed(choice.option)]
        needed = margin(cluster) if isinstance(job, network.NetworkJob) else 1.0
        return min(plain, default=inf) / (needed * min(less)) if less else 0.0

    return gain


def pays_anywhere(job: Job, cluster: Cluster) -> bool:
    """Whether saying less pays on the slowest of links; where there is no crossover, it then does on all."""
    return _gain(job, cluster)(SLOWEST_LINK) > 1
