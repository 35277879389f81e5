"""SGD and CA-SGD over blocks of columns: counts of operations, and the time they predict. Pure formulas.

m rows, n columns with a share `density` of non-zeros, P ranks with n_p = density · n / P values of a row each, batches
of b rows, s iterations that share a message, k = s b sampled rows, C outputs, T = b² s (s − 1) / 2 entries of the
strictly lower block triangle of the Gram matrix:

                    SGD (s = 1)      CA-SGD, s iterations
    gather          b n_p            k n_p                     values
    GEMV            4 C b n_p        8 C k n_p                 flops: Y x and Yᵀ r; CA-SGD carries three vectors back
    GEMM            –                2 T n_p                   flops
    pairs           –                T C                       entries met by the recurrence
    AllReduce       w C b            w (C k + T)               bytes, w per number
    messages        1                1                         all-reduces

Per iteration, in orders: CA-SGD has b s times the flops of SGD (b² s n_p against b n_p) and b s times its words (b² s
against b), but one message where SGD has s: the trade-off published by Devarakonda and Demmel (arXiv 2011.08281).
"""

from dataclasses import MISSING, dataclass, replace
from math import ceil, inf
from typing import ClassVar

from laconic.errors import Option
from laconic.options import option
from laconic.planner.cluster import ONE_PROCESS, Cluster, Impossible, rates_of
from laconic.planner.terms import WIRE, Cost, CostTerm, all_reduce, all_to_all, doublings

WIRE_BYTES = {"fp32": 4, "C": 4, "D": 2}
"""Bytes per number in the AllReduce, by recipe."""
DATA_BYTES = {"fp32": 4, "C": 2, "D": 2}
LOSS_GAPS = {"fp32": 0.0, "C": 0.005, "D": 0.02}
"""Relative loss above that of float32 SGD: the paper's limit for C, and ours for D, for which it only says more."""
WORK_BYTES = 4
"""Arithmetic runs in float32."""
AVERAGING_SHARE = 0.1
"""Share of a fit's time that averages between teams may take."""
GATHER_LIMIT_BYTES = 2**20
"""Bytes up to which a rank gathers the weights of all teams, intercept included, instead of summing them."""
MOST_S = 256
"""Iterations that share a message, at most."""


@dataclass(frozen=True, slots=True)
class GlmJob:
    """A generalised linear model to fit: m rows, n features, C outputs (1 unless multinomial), batches of b rows.
    Recipes that may exceed the loss gap are excluded."""

    n_rows: int = option(MISSING, "Rows of a model's data.", flag="--rows")
    n_features: int = option(MISSING, "Columns of a model's data.", flag="--features")
    density: float = option(1.0, "Share of the entries that are not zero; by default 1.")
    family: str = option("logistic", "As for `laconic fit`; by default logistic.")
    n_outputs: int = option(1, "Classes of a multinomial model.", flag="--outputs")
    batch_size: int = option(32, "Rows of a batch; by default 32.")
    loss_gap: float = option(
        0.005, "How far above fp32 SGD's the loss may end: by default 0.005, which allows C; 0.02 allows D."
    )

    kind: ClassVar = "glm"
    unit: ClassVar = "an iteration"
    saving: ClassVar = "fewer messages pay"

    def __post_init__(self) -> None:
        for name in ("n_rows", "n_features", "n_outputs", "batch_size"):
            if getattr(self, name) < 1:
                raise Impossible(Option(name), f" must be at least 1, got {getattr(self, name)}")
        if not 0 < self.density <= 1:
            raise Impossible(Option("density"), f" must be above 0 and at most 1, got {self.density}")
        family, classes = Option("family", self.family), Option("n_outputs")
        if self.family == "multinomial" and self.n_outputs == 1:
            why = " has one output per class; give "
            raise Impossible(family, why, classes, ", the number of classes, 2 or more")
        if self.family != "multinomial" and self.n_outputs > 1:
            other, n = Option("family", "multinomial"), self.n_outputs
            raise Impossible(family, " has one output; leave ", classes, " out, or take ", other, f" for {n} classes")
        if self.batch_size > self.n_rows:
            raise Impossible(f"a batch of {self.batch_size} rows does not fit into {self.n_rows}; lower the batch size")
        if not 0 <= self.loss_gap < inf:
            raise Impossible(Option("loss_gap"), f" must be a number of at least 0, got {self.loss_gap}")

    @property
    def batches(self) -> int:
        """Batches per epoch; no block of CA-SGD crosses the end of an epoch."""
        return -(-self.n_rows // self.batch_size)

    def blocks(self, most: int = MOST_S) -> list[int]:
        """Values of s to choose from: powers of two up to `most` or an epoch.

        >>> GlmJob(1000, 10, batch_size=100).blocks()
        [1, 2, 4, 8]
        """
        return [2**i for i in range(most.bit_length()) if 2**i <= min(most, self.batches)]

    def margin(self, cluster: Cluster) -> float:
        """How much faster CA-SGD must be predicted to be: 1, not at all, since its iterates are those of SGD."""
        return 1.0

    @property
    def baselines(self) -> "tuple[GlmOption, GlmOption]":
        """SGD in recipes fp32 and C."""
        return GlmOption("sgd", "fp32"), GlmOption("sgd", "C")


@dataclass(frozen=True, slots=True)
class GlmOption:
    """A solver in one precision.

    alone  one process with all columns, which sends nothing, instead of all ranks
    """

    solver: str
    recipe: str
    s: int = 1
    alone: bool = False

    @property
    def label(self) -> str:
        """Its name in tables.

        >>> GlmOption("ca_sgd", "C", 32).label, GlmOption("sgd", "fp32").label
        ('ca_sgd C s=32', 'sgd fp32')
        """
        return self.series + (f" s={self.s}" if self.solver == "ca_sgd" else "")

    @property
    def series(self) -> str:
        """Its name in charts and its key in `Cluster.solvers`, the same for every s."""
        return f"{self.solver} {self.recipe}" + (ONE_PROCESS if self.alone else "")

    @property
    def precision(self) -> str:
        return self.recipe

    @property
    def compressed(self) -> bool:
        return self.s > 1

    @property
    def advice(self) -> str:
        name = f"{self.solver} in recipe {self.recipe}"
        if self.alone:
            return f"do not use ranks: take one process, {name}"
        return f"use {name}, s = {self.s}" if self.s > 1 else f"a message every iteration: use {name}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of s iterations on one rank, and the memory that a rank needs."""

    rows: int
    values: float
    gemv_flops: float
    gemm_flops: float
    pairs: int
    words: int
    messages: int
    memory_bytes: float


def counts(job: GlmJob, option: GlmOption, n_ranks: int) -> Counts:
    """The table of this module's docstring.

    >>> counts(GlmJob(1000, 100, batch_size=2), GlmOption("ca_sgd", "fp32", s=4), n_ranks=2).words
    32
    """
    C, b, s = job.n_outputs, job.batch_size, option.s
    n_ranks = 1 if option.alone else n_ranks
    n_p = job.density * job.n_features / n_ranks
    k, T = s * b, b * b * s * (s - 1) // 2
    vectors = 2 if option.solver == "sgd" else 4
    index_bytes = 4 if job.density < 1 else 0
    data = job.n_rows * n_p * (DATA_BYTES[option.recipe] + index_bytes)
    work = WORK_BYTES * (k * n_p + 2 * T + 4 * C * job.n_features / n_ranks + C * k) + 8 * job.n_rows
    return Counts(k, k * n_p, 2 * vectors * C * k * n_p, 2 * T * n_p, T * C, C * k + T, 1, data + work)


def memory_bytes(job: GlmJob, option: GlmOption, cluster: Cluster) -> float:
    """Bytes of memory that a rank needs."""
    return counts(job, option, cluster.n_ranks).memory_bytes


def cost(job: GlmJob, option: GlmOption, cluster: Cluster) -> Cost:
    """The time of s iterations, term by term."""
    if option.s > job.batches:
        raise Impossible(
            f"s = {option.s} iterations are more than the {job.batches} of an epoch of {job.n_rows} rows in batches of "
            f"{job.batch_size}; lower s to {job.batches} or the batch size"
        )
    r = rates_of(option.series, cluster.solvers)
    c, n_ranks = counts(job, option, cluster.n_ranks), 1 if option.alone else cluster.n_ranks
    terms = (
        CostTerm("outer iteration", 1, "time", r.iteration_seconds),
        CostTerm("inner steps", option.s, "steps", r.step_seconds),
        CostTerm("rows", c.rows, "rows", r.row_seconds),
        CostTerm("gather", c.values, "values", r.gather_seconds),
        CostTerm("GEMV", c.gemv_flops, "flops", r.gemv_seconds),
        CostTerm("GEMM", c.gemm_flops, "flops", r.gemm_seconds),
        CostTerm("Gram entries", c.pairs, "entries", r.pair_seconds),
        *all_reduce(c.words * WIRE_BYTES[option.recipe], cluster.all_reduce, n_ranks, cluster.algorithm),
        CostTerm("waiting for the last rank", doublings(n_ranks), "doublings", cluster.sync_seconds, WIRE),
    )
    return Cost(terms, option.s)


def average_cost(job: GlmJob, n_teams: int, cluster: Cluster) -> Cost:
    """The cost of one average of the weights of teams, each with the cluster's ranks: the overhead of an SGD iteration,
    which makes about as many calls; and a message to every other team, or for many weights an AllReduce, and the
    intercept."""
    intercept = WORK_BYTES * job.n_outputs
    n_bytes = intercept * -(-job.n_features // cluster.n_ranks)
    if (n_teams - 1) * n_bytes <= GATHER_LIMIT_BYTES:
        sent = all_to_all("average", n_bytes + intercept, cluster.all_to_all, n_teams)
    else:
        sent = all_reduce(n_bytes, cluster.all_reduce, n_teams, cluster.algorithm)
        sent += all_to_all("intercept", intercept, cluster.all_to_all, n_teams)
    terms = (
        CostTerm("average", 1, "time", rates_of("sgd fp32", cluster.solvers).iteration_seconds),
        *sent,
        CostTerm("waiting for the last team", doublings(n_teams), "doublings", cluster.sync_seconds, WIRE),
    )
    return Cost(terms)


def blocks_per_average(job: GlmJob, option: GlmOption, n_teams: int, cluster: Cluster) -> int:
    """Blocks between two averages of teams, such that averages take a tenth of the time of the blocks."""
    seconds = option.s * cost(job, replace(option, recipe="fp32"), cluster).seconds
    return max(1, ceil(average_cost(job, n_teams, cluster).seconds / (AVERAGING_SHARE * seconds)))


def options(job: GlmJob, cluster: Cluster, s: int | None = None) -> list[GlmOption]:
    """The options that fit into memory: SGD in one process, where its rates are known; on ranks SGD, and CA-SGD with
    s = 1, 2, 4, … up to 256 or an epoch; all in every recipe allowed.

    s  consider only this many iterations per message; 1 is SGD

    Memory must hold a rank's columns (in one process all columns) and a block.
    """
    allowed = [name for name, gap in LOSS_GAPS.items() if gap <= job.loss_gap]
    blocks = [s] if s else job.blocks()
    alone = [GlmOption("sgd", name, alone=True) for name in allowed]
    candidates = [one for one in alone if cluster.n_ranks > 1 and one.series in cluster.solvers]
    candidates += [GlmOption("sgd", name) for name in allowed if name != "D" and (s or 1) == 1]
    candidates += [GlmOption("ca_sgd", name, block) for name in allowed for block in blocks]
    needed = {one: memory_bytes(job, one, cluster) for one in candidates}
    rank = inf if cluster.memory_bytes is None else cluster.memory_bytes
    fitting = [one for one, n in needed.items() if n <= (cluster.machine_bytes or rank if one.alone else rank)]
    if not fitting:
        raise Impossible(
            f"a rank would need {min(needed.values()) / 1e9:.3g} GB and has {rank / 1e9:.3g} GB: "
            "a batch of this problem does not fit; use more ranks, a smaller batch or a smaller s"
        )
    return fitting
