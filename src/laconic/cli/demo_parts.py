"""What `laconic demo` runs, part by part, and what comes of it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from laconic import bench
from laconic.bench.ddp import DDPOptions, DDPRow, ddp_rows
from laconic.bench.glm import suite as glm
from laconic.bench.suite import row_fields
from laconic.cli.demo_curves import CurveRow, chosen, curve_rows
from laconic.measure import Environment


@dataclass(frozen=True, slots=True)
class Parts:
    """What to run.

    schemes   on the gradient; some of them also in training
    training  a network on local ranks, if there are any
    fit       a generalised linear model on the same
    """

    schemes: Sequence[bench.Scheme]
    n_streams: int
    n_steps: int
    seed: int
    training: DDPOptions | None
    fit: glm.GLMOptions | None

    @classmethod
    def of(cls, bucket_size: int, streams: int, seed: int, ranks: int, steps: int) -> "Parts":
        """From the command's options; ranks 0 trains on none."""
        schemes = [scheme for scheme in bench.schemes(bucket_size) if scheme.name != "sign"]
        training = DDPOptions(ranks=ranks, problem="digits", repeats=steps, codecs=["nuqsgd-4"]) if ranks else None
        return cls(schemes, streams, steps, seed, training, _fit(ranks) if ranks else None)

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        on_ranks = sum(part.n_parts for part in (self.training, self.fit) if part)
        return 1 + len(self.schemes) + len(chosen(self.schemes)) + on_ranks

    def run(self, begin: Callable[[str], None]) -> "Found | None":
        """Everything in turn; None on a rank of torchrun other than the first."""
        begin("training")
        snapshot = bench.digits_gradient(seed=self.seed)
        rows = []
        for scheme in self.schemes:
            begin(scheme.label)
            rows.append(bench.survey(scheme, snapshot.gradient, n_streams=self.n_streams))
        curves = curve_rows(self.schemes, self.n_steps, self.seed, begin)
        trained = ddp_rows(self.training, begin) if self.training else []
        fitted = glm.glm_rows(self.fit, begin) if self.fit else []
        return None if trained is None or fitted is None else Found(snapshot, rows, curves, trained, fitted)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it."""

    snapshot: bench.Snapshot
    schemes: list[bench.Finding]
    curves: list[CurveRow]
    trained: list[DDPRow]
    fitted: list[glm.GLMRow]

    def document(self) -> dict[str, Any]:
        """As JSON values, with the machine and the versions."""
        return bench.document(
            "demo",
            [*self.schemes, *self.trained],
            Environment.here(),
            gradient={**{k: v for k, v in asdict(self.snapshot).items() if k != "gradient"}, "n": self.schemes[0].n},
            findings=bench.findings(self.schemes),
            curves=[asdict(row) for row in self.curves],
            glm=[row_fields(row) for row in self.fitted],
        )


def _fit(ranks: int) -> glm.GLMOptions:
    """A small logistic regression of SUSY's shape, by SGD and by CA-SGD with s = 32."""
    return glm.GLMOptions(problem=["susy"], scale=0.002, ranks=ranks, s=(32,), recipes=("C",), iterations=64, repeats=5)
