"""The suite `codec`: how fast gradients become bytes, and how few bytes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from laconic.bench.codec.coding import CODERS, cases, coding_steps
from laconic.bench.codec.row import Row, Step
from laconic.bench.codec.transport import transport_step
from laconic.bench.gradient import digits_gradient
from laconic.bench.options import require_at_least, require_known
from laconic.bench.protocol import compare, measure
from laconic.bench.schemes import NAMES, schemes

PROBLEMS = ("normal", "digits")
BYTES_A_VALUE = 16
"""Of memory: the values, their copy, a payload as large as they are, an error memory."""

__all__ = ["CODERS", "NAMES", "PROBLEMS", "Options", "codec_rows", "steps"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    problem      "normal": independent normal values; "digits": a network's gradient, repeated
    size         number of float32 values
    bucket_size  values that share a norm
    repeats      timed rounds
    schemes      names of schemes to run
    coders       names of coders to run
    """

    problem: str = "normal"
    size: int = 2**26
    bucket_size: int = 8192
    repeats: int = 11
    schemes: Sequence[str] = field(default=NAMES)
    coders: Sequence[str] = field(default=CODERS)

    def __post_init__(self) -> None:
        require_known([self.problem], PROBLEMS, "problem")
        require_known(self.coders, CODERS, "coder")
        require_at_least(1, self, "size", "bucket_size", "repeats")
        schemes(self.bucket_size, self.schemes)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.size * BYTES_A_VALUE > memory:
            raise ValueError(
                f"size {self.size} needs about {self.size * BYTES_A_VALUE / 1e9:.1f} GB, this machine has "
                f"{memory / 1e9:.1f} GB; {memory // BYTES_A_VALUE} values would fit"
            )

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return 1 + len(schemes(self.bucket_size, self.schemes)) + len(cases(self.bucket_size, self.coders))


def codec_rows(options: Options, tell: Callable[[str], None] = lambda label: None) -> list[Row]:
    """Run the suite and check every result."""
    rows = []
    for step in steps(options):
        tell(step.label)
        rows += step.run()
    return rows


def steps(options: Options) -> list[Step]:
    """The suite, part by part: baselines, then codecs and bare kernels, then coders on one core."""
    contenders = schemes(options.bucket_size, options.schemes)
    v = values(options.problem, options.size)
    scratch = torch.zeros_like(v)
    return [
        Step("baselines", lambda: baselines(options, v, scratch)),
        *(transport_step(scheme, options.problem, v, scratch, options.repeats) for scheme in contenders),
        *coding_steps(options.problem, v, options.bucket_size, options.coders, options.repeats),
    ]


def values(problem: str, n: int) -> torch.Tensor:
    """The values (n,) of a problem, the same each time."""
    if problem == "normal":
        return torch.randn(n, generator=torch.Generator().manual_seed(0))
    gradient = digits_gradient().gradient
    return gradient.repeat(-(-n // gradient.numel()))[:n]


def baselines(options: Options, v: torch.Tensor, scratch: torch.Tensor) -> list[Row]:
    """Nothing at all, a copy (against itself: the noise of the machine), and the 16-bit float everybody has."""
    n, n_threads, repeats = v.numel(), torch.get_num_threads(), options.repeats
    half = torch.empty_like(v, dtype=torch.bfloat16)
    runs = {
        ("copy_ fp32", "copy"): lambda: scratch.copy_(v),
        ("cast bf16", "encode"): lambda: half.copy_(v),
        ("cast bf16", "decode + add"): lambda: scratch.add_(half),
    }
    nothing = measure(lambda: None, repeats=repeats)
    rows = [Row(options.problem, n, "do nothing", "lambda: None", "torch", "nothing", n_threads, nothing)]
    for (contender, operation), run in runs.items():
        rows.append(
            Row.timed(
                compare(run, lambda: scratch.copy_(v), repeats=repeats),
                n=n,
                value_bytes=4,
                problem=options.problem,
                contender=contender,
                config="preallocated",
                via="torch",
                operation=operation,
                n_threads=n_threads,
                bits_per_coordinate=16.0 if "bf16" in contender else 32.0,
            )
        )
    return rows
