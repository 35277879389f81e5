"""The objective of a fit, and the measure of convergence that every solver is held to: the Newton decrement.

F(θ) = (1/m) Σ w φ(z) + ½ Σ_j λ_j x_j², θ = (x, b). The decrement ½ gᵀH⁻¹g is what F falls by where its second-order
model holds: an estimate of how far F lies above its minimum, whatever the units of columns and loss.
"""

from collections.abc import Callable, Generator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import starmap
from typing import Any, TypeVar, cast

import numpy as np
import torch

from laconic.glm.columns import Columns, DenseColumns, SparseColumns, is_wide
from laconic.glm.options import DIRECT, MOST_PRODUCTS, SEVERAL, FitOptions
from laconic.glm.problem import Problem
from laconic.glm.ranks import Wire
from laconic.glm.rows import CHAIN, SYMMETRIC, DenseRows, RoughRows, SampledRows, array_product, outer_products
from laconic.glm.scaling import moments
from laconic.glm.solvers.state import Segment, State

DENSE_VALUES, SHORT_ROW = 2**22, 64
"""The Hessian of a sparse X is formed where it has no more values, zeros included, or so few in the rows of most."""
PRODUCTS = 2**26
"""Products for a Hessian of several outputs up to which it is formed however many weights there are."""
BLOCK_VALUES = 2**19
"""Values of X that are taken at a time, so that they stay in cache."""
LARGE_BLOCK, BLOCK_SHARE, PER_OUTPUT = 2**26, 1 / 64, 32
"""Values of X that are taken at a time where few launches matter more; on a GPU, with so many values for each output
of a row, up to that share of its memory."""
NULL_ROWS = 2**16
"""Rows whose loss at the null model is computed at a time."""
SAMPLE_FROM = 2**22
"""Values of X from which on it is first fitted to a part of its rows, and does not go as near to the optimum."""
ONCE = 2**18
"""Values of a dense X up to which F is computed of all rows at once: NumPy's calls cost less than torch's."""
DESCEND = 128
"""Weights from which on a fit begins with L-BFGS, where Hessians are not cheap."""
NOISE = 1e-12
"""Of the longest direction of a basis: shorter ones are rounding errors."""
MOST_DIRECT = 2048
"""Weights up to which a fit that conjugate gradients do not end goes on with Hessians."""
FEW, FEW_OUTPUTS, CHEAP = 16, 4, 2**22
"""A Hessian is formed at every step of a small X with up to so many weights for each of up to so many outputs, or with
up to so many products for it."""
WIDTH = 16
"""Columns per output of a dense X up to which its Gram matrix preconditions conjugate gradients."""
SMALL_TARGET, LARGE_TARGET = 1e-12, 1e-5
"""Relative decrement at which Newton's method ends, if `tol` is not smaller: up to 2²² values; above, and by CG."""

OUTLYING, TYPICAL, LEAST_SAMPLE, MOST_SAMPLE, SAMPLE_VALUES = 3.0, 0.75, 31, 255, 2**20
"""A column has outliers where the root mean square of its distances from the median is more than three times their
third quartile. Median and quartile are of a sample of rows: so many, by the values that they have together."""

T = TypeVar("T")
Bend = Callable[[slice, SampledRows, torch.Tensor], tuple[torch.Tensor, Any]]
"""Places of some rows, the rows, and their margins (k, C): the factors (k, C) with which the rows are added up, and
what else was found in them. Rows of several places may be bent at once."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A request for a pass over all rows a: the mean of bend(a · v) a, (C, n + 1), or of bend a² where `squared`.

    v    (C, n + 1), the intercept last
    add  called with what else was found, block after block
    rough  whether products in float32 will do, where X has no more digits
    out  where to write the answer, if there is such a place
    """

    objective: "Objective"
    v: torch.Tensor
    bend: Bend
    add: Callable[[Any], object] = lambda found: None
    squared: bool = False
    rough: bool = False
    out: torch.Tensor | None = None


Bent = Callable[[torch.Tensor], torch.Tensor]
Advance = Callable[[Segment], float]
"""Steps through a segment, changing the state's weights; returns Σ w φ."""
Requests = Generator[Pass | Segment, Any, T]
"""A computation that asks for passes over all rows, and for steps through segments. Who runs it sends the answers: one
by one (`serve_alone`), or those of several models together (`glm.sweep`)."""


def serve_alone(requests: Requests[T], advance: Advance | None = None) -> T:
    """What a computation returns, each of its requests answered by itself."""
    answer: Any = None
    while True:
        try:
            asked = requests.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        answer = asked.objective.passes([asked])[0] if isinstance(asked, Pass) else cast(Advance, advance)(asked)


@dataclass(frozen=True, slots=True)
class Point:
    """The objective at θ (C, n + 1), this rank's columns and the intercept last.

    z        margins (m, C), offset included; (0, C) where they were not asked for
    loss     mean of φ by weight
    value    F
    slope    g (C, n + 1), 0 for an intercept that is not fitted; where F has absolute values the shortest subgradient
    smooth   the slope without absolute values
    hessian  of all C (n + 1) weights, where it was asked for
    """

    theta: torch.Tensor
    z: torch.Tensor
    loss: float
    value: float
    slope: torch.Tensor
    hessian: torch.Tensor | None = None
    smooth: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Weights x of wide columns as x = B v, where the rows of X B are as long as they are many, and ‖v‖ is x's penalty.

    X D^-½ = L Qᵀ, D the penalties of columns over alpha: x = D^-½ Q v is the shortest of all x with the margins L v.

    problem  that of v: the rows to train on, with columns L
    back     B = D^-½ Q, (n, m)
    onto     D^½ Q, so that v = x onto for such an x
    """

    problem: Problem
    back: torch.Tensor
    onto: torch.Tensor

    @classmethod
    def of(cls, problem: Problem, options: FitOptions) -> "Basis":
        rows = np.arange(problem.columns.m) if problem.rows is None else problem.rows
        X, scaling, index = problem.columns.take(rows, torch.float64).dense(), problem.scaling, torch.from_numpy(rows)
        root = 1 / scaling.deviation if scaling is not None and options.penalises_given else None
        Q, R = torch.linalg.qr((X if root is None else X / root).T)
        sizes = R.norm(dim=1)
        real = sizes > NOISE * sizes.max()  # of rows that depend on each other, as centred ones do, rounding is left
        if not bool(real.all()):
            Q, R = Q * real, R * real[:, None]
        w, offset = problem.weights, problem.offset
        own = Problem(
            DenseColumns(R.T.contiguous()),
            problem.family,
            problem.y[index],
            None if w is None else w[index],
            None if offset is None else offset[index],
            mean_weight=problem.mean_weight,
        )
        return cls(own, Q, Q) if root is None else cls(own, Q / root[:, None], Q * root[:, None])


class Objective:
    """F of a problem, by passes over all rows: float64 on the CPU; on a GPU, what a fit computes in.

    Every rank calls the same methods. Margins are summed over ranks, one message per block of rows; teams of ranks,
    which have rows of their own, add up their slopes.

    narrow    where X has more columns than rows, take weights of an orthonormal basis of the rows for θ
    basis     that basis, if it was taken
    direct    whether the Hessian is formed, and
    slow_direct  whether it is where conjugate gradients do not end
    gram      Σ w φ'' a aᵀ, which is kept where φ is quadratic: the same at every θ
    rough     whether products with H are computed in float32: of a large X that has no more digits
    descends  whether a fit is to begin with L-BFGS
    apart     whether blocks of rows may be taken by several threads at once
    few       whether all rows are so few that passes take them at once, and
    once      whether the Hessian does so, too
    rows      these, with a column for the intercept
    squares   the means of φ'' a² and of φ'' (C,), as measured last, and
    earlier   those of a larger penalty
    second    the mean of a aᵀ, where it preconditions, and
    spectrum  its eigenvalues and eigenvectors relative to the penalty
    outlying  distances of outliers, once they were asked for
    sample    the same of a part of the rows, while fits that share passes begin with it
    """

    def __init__(self, problem: Problem, options: FitOptions, wire: Wire, *, narrow: bool = False) -> None:
        alone = wire.comm.whole.size == 1
        wide = narrow and alone and not options.l1_ratio and is_wide(problem.columns, problem.n_train)
        self.basis = Basis.of(problem, options) if wide else None
        problem = problem if self.basis is None else self.basis.problem
        self.problem, self.wire, self.fit_intercept = problem, wire, options.fit_intercept
        self.columns, self.family, self.n = problem.columns, problem.family, problem.columns.n
        on_cpu = self.columns.device.type == "cpu"
        self.carrier = options.precision.carrier
        self.dtype = torch.float64 if on_cpu else self.carrier
        dense = isinstance(self.columns, DenseColumns)
        own = -(-problem.n_features // wire.comm.size) + 1 if dense else self.family.n_outputs
        self.apart = on_cpu and wire.comm.size == 1  # otherwise blocks are summed over ranks, one after another
        own = max(own, self.columns.row_values) if self.apart else own
        suits = self.family.n_outputs == 1 if on_cpu else self.dtype == torch.float32
        self.taken = None if self.columns.in_place and suits else self.dtype
        once = on_cpu and self.dtype == self.columns.dtype and problem.n_train * own < SAMPLE_FROM
        large = on_cpu and dense and self.taken is not None and problem.n_train * own >= SAMPLE_FROM
        self.rough = large and self.columns.dtype != torch.float64
        block = LARGE_BLOCK if once or not on_cpu else BLOCK_VALUES * (2 if self.rough else 1)
        self.step = max(1, block // max(1, own))
        if self.columns.device.type == "cuda":
            most = BLOCK_SHARE * torch.cuda.get_device_properties(self.columns.device).total_memory
            row = max(own, PER_OUTPUT * self.family.n_outputs) * self.dtype.itemsize
            self.step = max(self.step, int(most // row)) // CHAIN * CHAIN or self.step
        rows = slice(None) if problem.rows is None else torch.from_numpy(problem.rows)
        self.y, self.w = problem.y[rows].to(self.dtype), problem.weights_as(self.dtype)[rows]
        self.offset = None if problem.offset is None else problem.offset_as(self.dtype)[rows]
        self.l1, self.l2 = self.penalty(options)
        self.gram: torch.Tensor | None = None
        size = (self.n + 1) * self.family.n_outputs
        few = self.family.n_outputs == 1 or size <= SEVERAL or problem.n_train * size * size <= PRODUCTS
        formed = alone and (dense or self.columns.m * self.n <= DENSE_VALUES or _has_short_rows(self.columns))
        bearable = size <= MOST_DIRECT and (problem.n_train + size) * size * size <= MOST_PRODUCTS
        self.direct, self.slow_direct = formed and few and size <= DIRECT, formed and on_cpu and bearable
        small = problem.n_train * self.n < SAMPLE_FROM
        cheap = size <= FEW * min(self.family.n_outputs, FEW_OUTPUTS) or problem.n_train * size * size <= CHEAP
        if self.needs_hessian(options):
            self.direct, cheap, small = True, True, True
        self.eager = self.direct and cheap and small and not self.family.quadratic
        self.spectral = alone and on_cpu and dense and not self.direct and self.n <= WIDTH * self.family.n_outputs
        curved = not self.family.quadratic and self.l1 is None
        self.descends = curved and size > DESCEND and not self.eager and not self.spectral
        self.few = alone and on_cpu and dense and problem.n_train * self.n <= ONCE
        self.once = self.few and self.direct
        self.rows: np.ndarray | None = None
        self.sample: list[Objective] = []
        self.second: torch.Tensor | None = None
        self.spectrum: tuple[torch.Tensor, torch.Tensor] | None = None
        self.outlying: torch.Tensor | None = None
        self.squares: tuple[torch.Tensor, torch.Tensor] | None = None
        self.earlier: tuple[torch.Tensor, torch.Tensor] | None = None
        self.target = SMALL_TARGET if self.direct and small else LARGE_TARGET
        weight = float(self.w.sum(dtype=torch.float64))
        self.m, self.weight, loss = wire.sum_over_teams(problem.n_train, weight, self._null_loss())
        self.null = loss / self.m

    def penalised(self, options: FitOptions, wire: Wire) -> "Objective":
        """The same with the penalty of other options, and a wire of its own."""
        own = copy(self)
        (own.l1, own.l2), own.wire, own.spectrum = self.penalty(options), wire, None
        own.earlier = self.squares if self.earlier is None else self.earlier
        if own.needs_hessian(options):
            own.direct, own.eager = True, not own.family.quadratic
        return own

    def needs_hessian(self, options: FitOptions) -> bool:
        """Whether Newton's steps are to minimise with absolute values, which they do by the Hessian alone."""
        return self.l1 is not None and (options.solver == "newton" or options.polish is True)

    def penalty(self, options: FitOptions) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Factors (n + 1,) of absolute values, None without any, and of squares, λ_j: 0 for the intercept, and λ = 1
        for one that is not fitted, so that it stays. Of columns as given where scaling was ours to choose and Newton's
        steps are the last."""
        l2 = torch.full((self.n + 1,), options.l2, dtype=self.dtype, device=self.columns.device)
        l1, scaling = torch.full_like(l2, options.l1), self.problem.scaling
        l1[-1], l2[-1] = 0.0, float(not self.fit_intercept)
        if scaling is not None and options.penalises_given:
            l1[:-1] /= scaling.deviation.to(l1)
            l2[:-1] /= scaling.deviation.to(l2).square()
        return l1 if options.l1 else None, l2

    def _null_loss(self) -> float:
        """Σ w φ of the best constant: what a fit gains is counted from there."""
        y, offset = self.y.double(), None if self.offset is None else self.offset.double()
        c = self.problem.null if self.fit_intercept else y.new_zeros(self.family.n_outputs)
        total, step = y.new_zeros(()), NULL_ROWS if self.columns.device.type == "cpu" else max(NULL_ROWS, self.step)
        for first in range(0, len(y), step):
            rows = slice(first, first + step)
            z = c.expand(len(y[rows]), -1) if offset is None else offset[rows] + c
            total += self.weigh(self.family.loss(z, y[rows]), rows).sum(dtype=torch.float64)
        return float(total)

    def theta(self, state: State) -> torch.Tensor:
        """Weights of a state, as one matrix."""
        x = state.coef if self.basis is None else state.coef.to(self.dtype) @ self.basis.onto
        return torch.cat([x.T.to(self.dtype), state.intercept[None].to(self.dtype)]).T

    def put(self, theta: torch.Tensor, state: State) -> None:
        """Change the weights of a state."""
        x = theta[:, :-1]
        state.weights.x.copy_(x if self.basis is None else x @ self.basis.back.T)
        state.weights.intercept.value.copy_(theta[:, -1])

    def kept(self, theta: torch.Tensor) -> torch.Tensor:
        """θ with the digits that a state keeps of it, so that F is known where the next epoch begins; where a Hessian
        is factorised, whose steps are many per epoch, θ itself."""
        return theta if self.direct or self.basis is not None else theta.to(self.carrier).to(self.dtype)

    def at(self, theta: torch.Tensor, *, curved: bool = False, margins: bool = True) -> Requests[Point]:
        """F and its slope at θ, in one pass; `curved` for the Hessian too, `margins` to keep those of all rows."""
        if self.once and not margins:
            return self._at_once(theta, curved=curved)
        C, n = theta.shape[0], self.n
        z = torch.empty(len(self.y) if margins else 0, C, dtype=self.dtype, device=theta.device)
        hessian = theta.new_zeros(C, n + 1, C, n + 1) if curved and self.gram is None else None
        loss = z.new_zeros((), dtype=torch.float64)

        def bend(rows: slice, Y: SampledRows, u: torch.Tensor) -> tuple[torch.Tensor, Any]:
            y, part = self.y[rows], u if self.offset is None else u + self.offset[rows]
            if margins:
                z[rows] = part
            losses, slopes, bent = self.family.expand(part, y, curved=hessian is not None)
            own, gram = self.weigh(losses, rows).sum(dtype=torch.float64), None
            if hessian is not None and bent is not None:
                gram = torch.zeros_like(hessian)
                self.add_hessian(gram, Y, bent, rows)
            return self.weigh(slopes, rows), (own, gram)

        def add(found: tuple[torch.Tensor, torch.Tensor | None]) -> None:
            loss.add_(found[0])
            if hessian is not None and found[1] is not None:
                hessian.add_(found[1])

        slope = yield Pass(self, theta, bend, add)
        if hessian is not None and not self.fit_intercept:
            hessian[:, -1], hessian[..., -1] = 0, 0
        if self.family.quadratic and hessian is not None:
            self.gram = hessian
        hessian = (self.gram if hessian is None else hessian) if curved else None
        penalty = self.l2 * theta
        slope += penalty
        own = penalty.T.reshape(-1) @ theta.T.reshape(-1) / 2
        if self.l1 is not None:
            own += (self.l1 * theta.abs()).sum()
        total, of_weights = torch.cat([loss.reshape(1), self.wire.all_reduce(own.double().reshape(1))]).tolist()
        (total,) = self.wire.sum_over_teams(total)
        value = total / self.m + of_weights
        if hessian is not None:
            hessian = hessian.view(self.l2.numel() * C, -1) / self.m
            hessian.diagonal().add_(self.l2.expand(C, -1).reshape(-1))
        return Point(theta, z, total / max(self.weight, 1e-300), value, self._subgradient(theta, slope), hessian, slope)

    def _at_once(self, theta: torch.Tensor, *, curved: bool) -> Point:
        """The same of few rows A, in one process: with 1 for the intercept, or 0 for one that is not fitted."""
        A, x, C, every = self._all_rows(), theta.numpy(), len(theta), slice(None)
        with np.errstate(all="ignore"):
            z = self._margins_at_once(theta)
            z = z if self.offset is None else z + self.offset
            losses, slopes, bent = self.family.expand(z, self.y, curved=curved and self.gram is None)
            loss = float(self.weigh(losses, every).sum())
            penalty = self.l2.numpy() * x
            slope = array_product(self.weigh(slopes, every).numpy().T, A) / self.m + penalty
            if curved and bent is not None:
                gram = self._gram_at_once(A, bent)
                self.gram = gram if self.family.quadratic else None
            value = loss / self.m + float(np.vdot(penalty, x)) / 2
            if self.l1 is not None:
                value += float((self.l1 * theta.abs()).sum())
        hessian = None
        if curved:
            hessian = (gram if self.gram is None else self.gram).view(A.shape[1] * C, -1) / self.m
            hessian.diagonal().add_(self.l2.expand(C, -1).reshape(-1))
        none, smooth = theta.new_empty(0, C), torch.from_numpy(slope)
        shortest = self._subgradient(theta, smooth)
        return Point(theta, none, loss / max(self.weight, 1e-300), value, shortest, hessian, smooth)

    def _gram_at_once(self, A: np.ndarray, bent: torch.Tensor) -> torch.Tensor:
        """Σ w ∂²φ/∂z² a aᵀ, as `add_hessian` adds it, of the rows of `_all_rows`."""
        C, size, every = bent.shape[1], A.shape[1], slice(None)
        if self.family.redundant:
            return _of_softmax(outer_products(torch.from_numpy(A), self.weigh(bent, every, root=True)))
        sums = torch.zeros(C, size, C, size, dtype=torch.float64)
        for c, h in enumerate(self.weigh(bent, every).numpy().T[:, :, None]):
            B, D = (np.sqrt(h) * A,) * 2 if size > SYMMETRIC and h.min() >= 0 else (A, h * A)
            sums[c, :, c] = torch.from_numpy(array_product(B.T, D))
        return sums

    def _all_rows(self) -> np.ndarray:
        """(m, n + 1): few rows, with a column for the intercept."""
        if self.rows is None:
            ((_, Y),) = self.columns.blocks(self.problem.rows, self.dtype, len(self.y))
            ones = np.full((len(self.y), 1), float(self.fit_intercept))
            self.rows = np.concatenate([Y.dense().numpy(), ones], 1)
        return self.rows

    def _margins_at_once(self, v: torch.Tensor) -> torch.Tensor:
        own = array_product(self._all_rows(), v.numpy().T)
        return torch.from_numpy(own if self.fit_intercept else own + v[:, -1].numpy())

    def _pass_at_once(self, asked: Pass) -> torch.Tensor:
        """The answer to a request of few rows, in one process."""
        A = self._all_rows()
        with np.errstate(all="ignore"):
            Y, every = DenseRows(torch.from_numpy(A[:, :-1])), slice(0, len(A))
            factors, found = asked.bend(every, Y, self._margins_at_once(asked.v))
            asked.add(found)
            return torch.from_numpy(array_product(A.T, factors.numpy()) / self.m).T

    def outliers(self) -> torch.Tensor:
        """How far values of each column can lie from typical ones, (n + 1,): 0 for columns without outliers."""
        if self.outlying is None:
            self.outlying, m = self.l2.new_zeros(self.n + 1), len(self.y)
            rows = np.arange(self.columns.m) if self.problem.rows is None else self.problem.rows
            k = min(m, max(LEAST_SAMPLE, min(MOST_SAMPLE, SAMPLE_VALUES // max(1, self.n))))
            if m and self.n:
                sample = self.columns.take(rows[np.linspace(0, m - 1, k).astype(int)], self.dtype).dense()
                middle = sample.median(0).values
                spread = torch.quantile((sample - middle).abs(), TYPICAL, dim=0)
                mean, deviation = (t.to(spread) for t in moments(self.columns))
                size = torch.hypot(mean - middle, deviation)
                self.outlying[:-1] = torch.where((spread > 0) & (size > OUTLYING * spread), m**0.5 * size, 0.0)
        return self.outlying

    def weigh(self, t: torch.Tensor, rows: slice, *, root: bool = False) -> torch.Tensor:
        """Times the weights, or their roots; a row of weight 0 counts for nothing, even where its loss is infinite."""
        if self.problem.weights is None:
            return t
        w = self.w[rows].view(-1, *[1] * (t.dim() - 1))
        return torch.where(w > 0, (w.sqrt() if root else w) * t, 0.0)

    def add_hessian(self, total: torch.Tensor, Y: SampledRows, bent: torch.Tensor, rows: slice) -> None:
        """Add Σ w ∂²φ/∂z² a aᵀ to total (C, n + 1, C, n + 1), with `bent` (k, C) as `Family.expand` returns it."""
        if not self.family.redundant:
            Y.add_gram(self.weigh(bent, rows), total)
            return
        outer = torch.zeros_like(total)
        Y.add_outer(self.weigh(bent, rows, root=True), outer)
        total += _of_softmax(outer)

    def _subgradient(self, theta: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """The shortest subgradient of F with its absolute values."""
        if self.l1 is None:
            return slope
        at_zero = torch.sign(slope) * (slope.abs() - self.l1).clamp(min=0)
        return torch.where(theta != 0, slope + self.l1 * torch.sign(theta), at_zero)

    def passes(self, asked: Sequence[Pass]) -> list[torch.Tensor]:
        """The answers to several requests, all squared or none: rows are widened once, margins are one product, one
        message. In one process blocks of rows are shared among threads, and their sums added in order."""
        if self.few and len(asked) == 1 and not asked[0].squared:
            return [self._pass_at_once(asked[0])]
        v = asked[0].v if len(asked) == 1 else torch.cat([one.v.T for one in asked], 1).T
        C, out = len(asked[0].v), asked[0].out
        fits = out is not None and len(asked) == 1 and out.dtype == torch.float64
        total = cast(torch.Tensor, out) if fits else v.new_empty(v.shape[1], len(v), dtype=torch.float64).T
        total.zero_()
        apart = self.apart and v.numel() <= BLOCK_VALUES
        rough = self.rough and apart and all(one.rough for one in asked)
        taken = torch.float32 if rough else self.taken
        x = v[:, :-1].to(taken or v.dtype)

        def work(rows: slice, Y: SampledRows) -> tuple[torch.Tensor, list[Any]]:
            Y = RoughRows(Y.dense()) if rough else Y
            if asked[0].squared:  # the factors do not depend on margins
                Y, u = Y.squared(), v.new_zeros(rows.stop - rows.start, len(v))
            else:
                u = self.wire.all_reduce(Y.margins(x)) + v[:, -1]
            bent = [one.bend(rows, Y, part) for one, part in zip(asked, torch.split(u, C, 1), strict=True)]
            p = bent[0][0] if len(asked) == 1 else torch.cat([factors for factors, _ in bent], 1)
            sums = v.new_zeros(v.shape, dtype=torch.float64) if apart else total
            Y.add_combination(p.T.to(x.dtype), None, sums[:, :-1])
            if self.fit_intercept:
                sums[:, -1] += p.sum(0)
            return sums, [found for _, found in bent]

        how = self.problem.rows, taken, self.step
        for sums, found in self.columns.map_blocks(work, *how) if apart else starmap(work, self.columns.blocks(*how)):
            if apart:
                total += sums
            for one, own in zip(asked, found, strict=True):
                one.add(own)
        total /= self.m
        if self.wire.comm.peers.size > 1:  # teams, which have other rows
            self.wire.comm.peers.all_reduce(total)()
        total = total.to(self.dtype)
        return [total] if len(asked) == 1 else list(torch.split(total, C))

    def dot(self, a: torch.Tensor, b: torch.Tensor) -> float:
        """Σ a b over the weights of all ranks; the intercept, which all of them have, counts once."""
        if self.dtype == torch.float64 and self.wire.comm.size == 1:
            return float(a.T.reshape(-1) @ b.T.reshape(-1))
        x, y = a[:, :-1].T.reshape(-1), b[:, :-1].T.reshape(-1)
        own = x @ y if self.dtype == torch.float64 else (x * y).sum(dtype=torch.float64)
        if self.wire.comm.size == 1:
            return float(own + a[:, -1] @ b[:, -1])
        return float(self.wire.all_reduce(own.double().reshape(1))) + float(a[:, -1] @ b[:, -1])


def _of_softmax(outer: torch.Tensor) -> torch.Tensor:
    """Σ (diag(p) − p pᵀ) ⊗ a aᵀ from Σ (p ⊗ a)(p ⊗ a)ᵀ, in its place: p_c (1 − p_c) as the sum of all other p_c p_d,
    which keeps its digits where p_c is nearly 1."""
    diagonal = outer.diagonal(dim1=0, dim2=2)
    diagonal.zero_()
    sums = outer.sum(2)
    outer.neg_()
    diagonal.copy_(sums.permute(1, 2, 0))
    return outer


def _has_short_rows(columns: Columns) -> bool:
    """Whether values of a sparse X have few neighbours in their rows, on average."""
    lengths = columns.matrix[2].diff().double() if isinstance(columns, SparseColumns) else torch.ones(0)
    return bool(lengths.square().sum() <= SHORT_ROW * lengths.sum())
