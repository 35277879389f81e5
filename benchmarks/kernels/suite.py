"""The suite `kernels`: GPU kernels next to a copy on the same GPU, in bytes moved a second.

Times are of one replay of a CUDA graph that holds one call, between two events, with everything the call touches far
larger than the second-level cache; the copy and the contender take turns, so that a ratio is of neighbours in time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from benchmarks.kernels.contenders import PAYLOADS, Contender, coded, copies, kernel_copy
from benchmarks.kernels.row import KernelRow, row
from benchmarks.kernels.timing import Timed, compare
from laconic.bench.options import require_at_least, require_known
from laconic.bench.survey import schemes
from laconic.kernels import select

NAMES = ("nuqsgd", "qsgd", "qsgdinf", "sign")
SETTING = "one H200, 2**28 float32 values, buckets of 8192; ÷ copy is bytes moved a second over the fastest copy's"


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """What to run.

    device       "cuda", or "cuda:1" and so on
    size         number of values
    bucket_size  values that share a norm
    repeats      timed rounds
    schemes      names of schemes to run
    """

    device: str = "cuda"
    size: int = 2**28
    bucket_size: int = 8192
    repeats: int = 21
    schemes: Sequence[str] = field(default=NAMES)

    def __post_init__(self) -> None:
        require_known(self.schemes, NAMES, "scheme")
        require_at_least(1, self, "size", "bucket_size", "repeats")
        schemes(self.bucket_size, self.schemes)
        if not self.device.startswith("cuda"):
            raise ValueError(f"bench kernels runs on a CUDA GPU, such as --device cuda; got {self.device!r}")
        if not torch.cuda.is_available():
            raise ValueError("bench kernels needs a CUDA GPU, and torch sees none here")
        select("gpu", torch.device(self.device))

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar, one a row."""
        return 4 + len(schemes(self.bucket_size, self.schemes)) * (1 + len(PAYLOADS))


def kernel_rows(options: KernelOptions, begin: Callable[[str], None] = lambda label: None) -> list[KernelRow]:
    """Every contender, checked and then timed; `begin` is called with a label before each."""
    with arrays(options) as (v, out):
        yardstick = fastest_copy(v, out, options.repeats)
        rows = []
        for contender in contenders(options, v, out):
            begin(f"{contender.label} {contender.operation}")
            contender.call()
            contender.check()
            rows.append(row(contender, compare(Timed(contender.call), yardstick, options.repeats), v.numel()))
    return rows


def fastest_copy(v: torch.Tensor, out: torch.Tensor, repeats: int) -> Timed:
    """The yardstick: the driver's copy or our own kernel's, whichever is faster on this GPU."""
    driver, ours = Timed(partial(out.copy_, v)), Timed(kernel_copy(v, out))
    return ours if compare(ours, driver, repeats).ratio.median > 1 else driver


@contextmanager
def arrays(options: KernelOptions) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Normal values (n,) and somewhere to write as many, both float32, on the device."""
    device = torch.device(options.device)
    with torch.cuda.device(device):
        v = torch.randn(options.size, device=device, generator=torch.Generator(device).manual_seed(0))
        yield v, torch.empty_like(v)


def contenders(options: KernelOptions, v: torch.Tensor, out: torch.Tensor) -> Iterator[Contender]:
    """Copies, then for each scheme its two kernels."""
    yield from copies(v, out)
    for scheme in schemes(options.bucket_size, options.schemes):
        yield from coded(scheme, v, out)
