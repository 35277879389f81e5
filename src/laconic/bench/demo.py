"""`laconic demo`: a little of every suite, and training with some of the schemes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from laconic import coders
from laconic.bench import codec, ddp
from laconic.bench.glm import suite as glm
from laconic.bench.glm.runs import glm_on_rank
from laconic.bench.protocol import one_thread
from laconic.bench.ranks import n_ranks, on_ranks, run_share
from laconic.bench.suite import Progress, Suite, row_fields
from laconic.bench.training import GRADIENT_STEPS, NetworkProblem, batch_rows, digits_gradient
from laconic.data import load_digits
from laconic.glm import FitOptions
from laconic.glm.problem import ALONE
from laconic.kernels import Stream, select
from laconic.measure.solvers import Contender, SolverRun, noise_problem
from laconic.options import check_counts, option
from laconic.quantizers import Quantizer
from laconic.report import Axis, Column, LineChart, Presentation, RowTable, text
from laconic.report.values import Row, finite, number_in, rows_in
from laconic.training import SimulatedWorkers

LABELS = ("fp32", "qsgd-4", "nuqsgd-4", "qsgdinf-4", "ef-sign", "dithered-1")
"""Schemes that a network is trained with."""
PROBLEM = "digits"
N_WORKERS, BATCH_SIZE = 4, 32
EVERY = 2
"""Training steps between two points of a curve."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `laconic demo`."""

    bucket_size: int = option(8192, "Values that share one norm.")
    repeats: int = option(5, "Timed rounds of each operation.")
    seed: int = option(0, "Seed of the network and its mini-batches.", least=0)
    ranks: int | None = option(
        None, "Ranks that train a small network: 4 local ones if not given, torchrun's under it; 0 for none.", least=0
    )
    steps: int = option(40, "Steps of training.")

    def __post_init__(self) -> None:
        check_counts(self)
        if self.ranks != 0:
            object.__setattr__(self, "ranks", n_ranks(self.ranks, None))
        self.on_ranks  # noqa: B018 (raises if there cannot be so many)

    @property
    def on_gradient(self) -> codec.CodecOptions:
        """All schemes and coders on the gradient of a network."""
        return codec.CodecOptions(2**20, self.bucket_size, self.repeats, PROBLEM)

    @property
    def trained(self) -> dict[str, Quantizer]:
        """The schemes that a network is trained with, by label."""
        return {label: scheme for label, scheme in codec.schemes(self.bucket_size).items() if label in LABELS}

    @property
    def on_ranks(self) -> tuple[ddp.DDPOptions, glm.GLMOptions] | None:
        """A network to train and a generalised linear model to fit on local ranks, if there are any."""
        if not self.ranks:
            return None
        sizes: dict[str, Any] = {"scale": 0.002, "s": (32,), "recipes": ("C",), "iterations": 64, "repeats": 5}
        return (
            ddp.DDPOptions(ranks=self.ranks, problem="digits", repeats=self.steps, codecs=["nuqsgd-4"]),
            glm.GLMOptions(problem=["susy"], ranks=self.ranks, **sizes),
        )

    @property
    def n_parts(self) -> int:
        on_ranks = sum((1, *(part.n_parts for part in self.on_ranks))) if self.on_ranks else 0
        return on_ranks + 1 + self.on_gradient.n_parts + len(self.trained)


def run_demo(options: DemoOptions, progress: Progress) -> dict[str, Any] | None:
    """The fields of the document, from all parts; None on the ranks of torchrun other than the first.

    Ranks run first, since they share the compilation of all kernels.
    """
    found: dict[str, list[Any]] = {"ddp": [], "glm": []}
    if options.on_ranks:
        training, fit = options.on_ranks
        asked = {"network": training.asked, "model": fit.asked}
        results = on_ranks("laconic.bench.demo:demo_on_rank", asked, training.ranks, None, progress)
        if results is None:
            return None
        networks, models = zip(*results, strict=True)
        found = {"ddp": ddp.rows_of(training, networks), "glm": glm.rows_of(fit, models)}
    progress("training")
    rows = codec.rows_of(digits_gradient(seed=options.seed), options.on_gradient, progress)
    curves = curve_rows(options, progress)
    return {"rows": rows, "curves": curves, **{key: [row_fields(row) for row in rows] for key, rows in found.items()}}


def demo_on_rank(progress: Progress, *, network: dict[str, Any], model: dict[str, Any]) -> tuple[Any, Any]:
    """Compile this rank's share of the kernels, train the network and fit the model; returns the last two's results."""
    progress("compiling kernels")
    run_share(compilations())
    return ddp.ddp_on_rank(progress, **network), glm_on_rank(progress, **model)


def compilations() -> list[Callable[[], object]]:
    """Calls on few values that compile all kernels of the demo, each for some seconds.

    Numba caches the kernels on disk for other ranks and later runs.
    """
    n, v = 64, torch.ones(64)

    def code(scheme: str) -> None:
        for label, quantizer in codec.schemes(n, [scheme]).items():
            codec.scheme_rows(label, quantizer, codec.CodecOptions(n, n, repeats=1), v, torch.zeros(n))

    def code_symbols() -> None:
        symbols, shape, kernels = v.to(torch.uint8), coders.Shape(n, 4, n), select("auto", v.device)
        for coder in map(coders.by_name, ("elias", "huffman", "rans")):
            coder.decode(coder.encode(symbols, shape, kernels), shape, kernels)

    def solve() -> None:
        FitOptions().order(n, 0)
        run, _ = SolverRun.of(Contender("ca_sgd", "C", n), noise_problem(n, n), 1, ALONE).rounds()
        run()

    return [code_symbols, *(partial(code, scheme) for scheme in ("nuqsgd", "dithered", "rotated")), solve]


@one_thread()
def curve_rows(options: DemoOptions, progress: Progress) -> list[dict[str, Any]]:
    """One row per scheme in `LABELS`, of training the same network on the same batches.

    curve  points with iteration, seconds (of all workers, one after another), bytes (that one worker sent), loss (over
           all images) and, for unbiased schemes, variance ‖Q(v) − v‖² / ‖v‖² (of the workers' gradients in that step)
    """
    rows = []
    for label, scheme in options.trained.items():
        progress(f"train with {label}")
        curve = list(_curve(scheme, options.steps, options.seed))
        rows.append({"problem": PROBLEM, "contender": label, "n_workers": N_WORKERS, "curve": curve})
    return rows


def _curve(scheme: Quantizer, steps: int, seed: int) -> Iterator[dict[str, Any]]:
    x, y = load_digits()
    problem = NetworkProblem(x, y, lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), 0.05)
    net = problem.new_network(seed)
    workers, optimizer = SimulatedWorkers(net, scheme, N_WORKERS, seed=seed), problem.new_optimizer(net.parameters())

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(net(x[rows]), y[rows])

    seconds = sent = 0.0
    yield {"iteration": 0, "seconds": 0.0, "bytes": 0.0, "loss": finite(problem.loss(net)), "variance": None}
    for step in range(1, steps + 1):
        batches = [batch_rows(len(x), BATCH_SIZE, Stream(seed, rank, step)) for rank in range(N_WORKERS)]
        start = time.perf_counter()
        workers.backward([partial(loss, rows) for rows in batches])
        optimizer.step()
        seconds += time.perf_counter() - start
        sent += workers.last.bytes_sent / N_WORKERS
        if step % EVERY == 0 or step == steps:
            variance = finite(workers.last.nmse) or None if scheme.unbiased else None
            point = {"iteration": step, "seconds": seconds, "bytes": sent, "loss": finite(problem.loss(net))}
            yield {**point, "variance": variance}


def _gradient(document: Row) -> str:
    """A sentence on which gradient was used."""
    n = max((number_in(row, "n") or 0.0 for row in rows_in(document)), default=0.0)
    return f"v is the gradient of a network of {n:,.0f} parameters after {GRADIENT_STEPS} steps on handwritten digits."


def _ends(rows: list[Row]) -> list[Row]:
    """The first and the last point of each curve."""
    curves = [(row, rows_in(row, "curve")) for row in rows]
    return [{**row, **curve[-1], "first_loss": curve[0].get("loss")} for row, curve in curves if curve]


PRESENTATION = (
    Presentation(
        "Every scheme on a real gradient",
        [
            RowTable(
                "What is sent, and what is lost",
                [
                    text("scheme", "contender"),
                    Column("bits", "bits_per_coordinate"),
                    Column("error", "error"),
                    Column("bound", "bound"),
                    Column("encode, GB/s", "encode GB/s"),
                    Column("decode + add, GB/s", "decode + add GB/s"),
                ],
                "bits: per coordinate, norms and header included. error: ‖Q(v) − v‖² / ‖v‖², whose mean the bound is "
                "proved for. GB/s of float32 values.",
                rows=codec.speeds,
            ),
            *codec.PRESENTATION.parts[2:],
        ],
        _gradient,
        all_rows=False,
    ),
    Presentation(
        "Training with each scheme",
        [
            RowTable(
                "The loss over all images",
                [
                    text("scheme", "contender"),
                    Column("first loss", "first_loss", digits=4),
                    Column("last loss", "loss", digits=4),
                    Column("kB sent per worker", "bytes", "kB"),
                    Column("variance", "variance"),
                ],
                "variance: of the last step's gradients.",
                rows=_ends,
            ),
            LineChart(Axis("loss", "training loss"), by="problem"),
            LineChart(Axis("variance", "variance ‖Q(v) − v‖² / ‖v‖²"), by="problem", log=True),
        ],
        "Simulated workers on one device, the same batches for every scheme; seconds include encoding, no network.",
        split=lambda document: [{"rows": rows_in(document, "curves")}],
        all_rows=False,
    ),
    Presentation(
        "A network trained by local ranks",
        ddp.PARTS,
        "Over loopback compression does not pay; `laconic bench ddp --rate 1gbit` emulates a link.",
        split=lambda document: [{"rows": rows_in(document, "ddp")}],
        all_rows=False,
    ),
    Presentation(
        "A logistic regression by the same ranks",
        [glm.PER_ITERATION, glm.SPEEDUPS],
        "SGD sends a message in every iteration, CA-SGD one in s.",
        split=lambda document: [{"rows": rows_in(document, "glm")}],
        all_rows=False,
    ),
)
SUITE = Suite(
    "demo",
    DemoOptions,
    run_demo,
    """Compress a real gradient with every scheme, then train with some: error, bytes and speed.

    Trains a small network on scikit-learn's digits for a moment and compresses its gradient; trains another with some
    of the schemes; then four local ranks train a small convolutional network with fp32, bf16 and 4-bit gradients, and
    fit a logistic regression with a message every iteration, then every 32. Writes a page of charts, as `laconic
    report` does, to laconic-demo.html. Takes about a minute; the first run also compiles the kernels.
    """,
    page="laconic-demo.html",
)
