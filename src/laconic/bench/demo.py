"""`laconic demo`: schemes on one gradient, then training with some of them; what runs it, and what is shown of it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from laconic.bench.ddp import PARTS as DDP
from laconic.bench.ddp import DDPOptions, ddp_rows
from laconic.bench.glm import suite as glm
from laconic.bench.protocol import one_thread
from laconic.bench.suite import document, row_fields
from laconic.bench.survey import Scheme, digits_gradient, findings, survey
from laconic.bench.survey import schemes as all_schemes
from laconic.data import load_digits
from laconic.measure import Environment
from laconic.report import Axis, BarChart, Column, LineChart, Presentation, Table, Text, text
from laconic.report.values import Row, number_in, plain, rows_in
from laconic.training import SimulatedWorkers

LABELS = ("fp32", "qsgd-4", "nuqsgd-4", "qsgdinf-4", "ef-sign")
PROBLEM = "digits"
N_WORKERS, BATCH_SIZE, WIDTH = 4, 32, 128
LEARNING_RATE = 0.5
EVERY = 2
"""Steps between two points of a curve."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What to run.

    schemes   on the gradient; some of them also in training
    training  a network on local ranks, if there are any
    fit       a generalised linear model on the same ranks
    """

    schemes: Sequence[Scheme]
    n_streams: int
    n_steps: int
    seed: int
    training: DDPOptions | None
    fit: glm.GLMOptions | None

    @classmethod
    def of(cls, bucket_size: int, streams: int, seed: int, ranks: int, steps: int) -> "Demo":
        """From the command's options; with ranks 0, no training on ranks."""
        schemes = [scheme for scheme in all_schemes(bucket_size) if scheme.name != "sign"]
        if not ranks:
            return cls(schemes, streams, steps, seed, None, None)
        training = DDPOptions(ranks=ranks, problem="digits", repeats=steps, codecs=["nuqsgd-4"])
        fit = glm.GLMOptions(
            problem=["susy"], scale=0.002, ranks=ranks, s=(32,), recipes=("C",), iterations=64, repeats=5
        )
        return cls(schemes, streams, steps, seed, training, fit)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        on_ranks = sum(part.n_parts for part in (self.training, self.fit) if part)
        return 1 + len(self.schemes) + len(_trained(self.schemes)) + on_ranks

    def run(self, progress: Callable[[str], None]) -> dict[str, Any] | None:
        """The document of all parts; None on a rank of torchrun other than the first."""
        progress("training")
        snapshot = digits_gradient(seed=self.seed)
        rows = []
        for scheme in self.schemes:
            progress(scheme.label)
            rows.append(survey(scheme, snapshot.gradient, n_streams=self.n_streams))
        curves = curve_rows(self.schemes, self.n_steps, self.seed, progress)
        trained = ddp_rows(self.training, progress) if self.training else []
        fitted = glm.glm_rows(self.fit, progress) if self.fit else []
        if trained is None or fitted is None:
            return None
        return document(
            "demo",
            [*rows, *trained],
            Environment.here(),
            gradient={**{k: v for k, v in asdict(snapshot).items() if k != "gradient"}, "n": rows[0].n},
            findings=findings(rows),
            curves=[asdict(row) for row in curves],
            glm=[row_fields(row) for row in fitted],
        )


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One scheme's training.

    curve  points with iteration, seconds (of all workers, one after another), bytes (that one worker sent), loss (over
           all images) and, of unbiased schemes, variance ‖Q(v) − v‖² / ‖v‖² (of the workers' gradients in that step)
    """

    problem: str
    contender: str
    n_workers: int
    curve: list[dict[str, Any]]


@one_thread()
def curve_rows(schemes: Sequence[Scheme], steps: int, seed: int, progress: Callable[[str], None]) -> list[CurveRow]:
    """The same network on the same batches with each of the schemes in `LABELS`."""
    rows = []
    for scheme in _trained(schemes):
        progress(f"train with {scheme.label}")
        rows.append(CurveRow(PROBLEM, scheme.label, N_WORKERS, _curve(scheme, steps, seed)))
    return rows


def _trained(schemes: Sequence[Scheme]) -> list[Scheme]:
    """The schemes that a network is trained with."""
    return [scheme for scheme in schemes if scheme.label in LABELS]


def _curve(scheme: Scheme, steps: int, seed: int) -> list[dict[str, Any]]:
    images, labels = load_digits()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(images.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
        batches = torch.randint(len(images), (steps, N_WORKERS, BATCH_SIZE))
    workers = SimulatedWorkers(net, scheme.quantizer, N_WORKERS, seed=seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE)
    seconds, sent, measured = 0.0, 0.0, scheme.quantizer.unbiased
    points = [_point(0, 0.0, 0.0, _loss(net, images, labels).item(), None)]
    for step, parts in enumerate(batches, 1):
        start = time.perf_counter()
        workers.backward([partial(_loss, net, images[part], labels[part]) for part in parts])
        optimizer.step()
        seconds += time.perf_counter() - start
        sent += workers.last.bytes_sent / N_WORKERS
        if step % EVERY == 0 or step == steps:
            variance = workers.last.nmse if measured else None
            points.append(_point(step, seconds, sent, _loss(net, images, labels).item(), variance))
    return points


def _loss(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(net(images), labels)


def _point(step: int, seconds: float, sent: float, loss: float, variance: float | None) -> dict[str, Any]:
    exact = variance is None or not variance or not math.isfinite(variance)
    return {
        "iteration": step,
        "seconds": seconds,
        "bytes": sent,
        "loss": loss if math.isfinite(loss) else None,
        "variance": None if exact else variance,
    }


CODERS = ("fixed", "elias", "huffman", "rans")


def _findings(document: Row) -> list[str]:
    said = document.get("findings")
    return [plain(line) for line in said] if isinstance(said, list) else []


def _schemes(rows: list[Row]) -> list[Row]:
    """Rows of schemes, with their bits by coder at the top."""
    found = [row for row in rows if "scheme" in row]
    return [{**row, **(coded if isinstance(coded := row.get("coded_bits"), Mapping) else {})} for row in found]


def _contenders(of: str) -> Callable[[Row], list[Row]]:
    """A document with the contenders among the rows under a key."""
    return lambda document: [{"rows": [row for row in rows_in(document, of) if "contender" in row]}]


def _gradient(document: Row) -> str:
    """What the gradient is of."""
    given = document.get("gradient")
    n, steps, first, last, right = (number_in(given, k) for k in ("n", "n_steps", "first_loss", "loss", "accuracy"))
    if n is None or steps is None or first is None or last is None or right is None:
        return ""
    return (
        f"A network of {n:,.0f} parameters after {steps:.0f} steps of SGD on handwritten digits: loss {first:.2f} → "
        f"{last:.2f}, {100 * right:.0f} % right. v is its gradient."
    )


def _ends(rows: list[Row]) -> list[Row]:
    """The first and the last point of each curve."""
    curves = [(row, rows_in(row, "curve")) for row in rows]
    return [{**row, **curve[-1], "first_loss": curve[0].get("loss")} for row, curve in curves if curve]


PRESENTATION = (
    Presentation(
        "Every scheme on a real gradient",
        [
            Table(
                "What is lost",
                [
                    text("scheme", "scheme"),
                    Column("bits", "bits", "n"),
                    text("unbiased", "unbiased"),
                    Column("variance", "variance"),
                    Column("bound", "bound"),
                    Column("variance ÷ bound", "over_bound", digits=2),
                ],
                "variance: E‖Q(v) − v‖² / ‖v‖², a mean over streams of random numbers. ef-sign: of its first message; "
                "error feedback sends the rest later.",
                rows=_schemes,
            ),
            Table(
                "What is sent, in bits per coordinate",
                [
                    text("scheme", "scheme"),
                    Column("entropy", "entropy"),
                    *(Column(coder, coder) for coder in CODERS),
                    Column("total", "total_bits"),
                    Column("encode, GB/s", "encode_gb_per_second"),
                    Column("decode, GB/s", "decode_gb_per_second"),
                ],
                "total: the shortest of the four with norms and header. GB/s of float32 values, encoded and decoded at "
                "fixed width.",
                rows=_schemes,
            ),
            Text(_findings, listed=True),
            BarChart(
                "Variance E‖Q(v) − v‖² / ‖v‖²",
                "variance",
                label="scheme",
                log=True,
                limit=("bound", "proved bound"),
                rows=lambda rows: [row for row in _schemes(rows) if row.get("variance")],
            ),
            BarChart("Bits per coordinate, all told", "total_bits", "bits", label="scheme", rows=_schemes),
        ],
        _gradient,
        all_rows=False,
    ),
    Presentation(
        "Training with each scheme",
        [
            Table(
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
        split=_contenders("curves"),
        all_rows=False,
    ),
    Presentation(
        "A network trained by local ranks",
        DDP,
        "Over loopback compression does not pay; `laconic bench ddp --rate 1gbit` emulates a link.",
        split=_contenders("rows"),
        all_rows=False,
    ),
    Presentation(
        "A logistic regression by the same ranks",
        [glm.PER_ITERATION, glm.SPEEDUPS],
        "SGD sends a message in every iteration, CA-SGD one in s.",
        split=_contenders("glm"),
        all_rows=False,
    ),
)
