"""Try other sizes for the GPU kernels: GB/s and ratio to a device copy for each configuration.

`python -m benchmarks.kernels_sweep` sweeps NUQSGD at 4 bits; `--schemes` takes others, `--size` a smaller problem. The
sizes in use are measured by `python -m benchmarks kernels`. Needs a CUDA GPU, torch and Triton only.
"""

import argparse
import itertools
import sys

from benchmarks import kernels as suite
from benchmarks.kernels import KernelRow, TimedGraph, compare_graphs
from benchmarks.kernels_contenders import PACK, Contender, contenders
from laconic.kernels.gpu.launch import FEW, TUNING

PACK_SIZES: dict[str, tuple[int, ...]] = {"pack_values_a_thread": (16, 32, 64), "pack_max_warps": (4, 8, 16)}
SUM_SIZES = {"values_a_thread": (8, 16, 32), "warps": (2, 4, 8)}


def grid_of(contender: Contender) -> dict[str, tuple[int, ...]]:
    """The tunable sizes of a contender."""
    if contender.operation == PACK:
        return PACK_SIZES
    kind = "sum_few" if contender.n_payloads < FEW else "sum"
    return {f"{kind}_{name}": values for name, values in SUM_SIZES.items()}


def configurations(grid: dict[str, tuple[int, ...]]) -> list[dict[str, int]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(found: KernelRow, what: str) -> str:
    payloads = f"P={found.n_payloads}" if found.n_payloads else ""
    ratio = found.ratio_to_copy
    return (
        f"{found.contender:16} {found.operation:26} {payloads:4} {1e3 * found.seconds.median:8.4f} ms "
        f"{found.gb_per_second:7.0f} GB/s  ÷copy {ratio.median:.3f} ({ratio.p20:.3f}-{ratio.p80:.3f})  {what}"
    )


def sweep(options: suite.KernelOptions, labels: list[str], payloads: list[int]) -> None:
    """Print one line per configuration for every kernel that it affects, and the best one last."""
    before = dict(TUNING)
    with suite.arrays(options) as (v, out):
        yardstick = suite.fastest_copy(v, out, options.repeats)
        for contender in contenders(options.bucket_size, options.schemes, v, out):
            if contender.label not in labels or (contender.n_payloads and contender.n_payloads not in payloads):
                continue
            best = None
            for changed in configurations(grid_of(contender)):
                TUNING.update(changed)
                try:
                    contender.call()
                    contender.check()
                    timed = compare_graphs(TimedGraph(contender.call), yardstick, options.repeats)
                except Exception as error:  # noqa: BLE001 (a configuration that does not compile must not end the sweep)
                    show(f"{contender.label} {contender.operation} {changed}: {type(error).__name__}: {error}"[:300])
                    continue
                finally:
                    TUNING.update(before)
                found = KernelRow.of(contender, timed, v.numel())
                show(line(found, str(changed)))
                if best is None or found.ratio_to_copy.median > best[0]:
                    best = (found.ratio_to_copy.median, changed)
            show(f"best: {contender.label} {contender.operation} {contender.n_payloads} {best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemes", default="nuqsgd", help="names, separated by commas")
    parser.add_argument("--labels", default="nuqsgd-4", help="which of their rows, separated by commas")
    parser.add_argument("--payloads", default="1,4,8", help="numbers of payloads to add up")
    parser.add_argument("--size", type=int, default=2**28)
    parser.add_argument("--repeats", type=int, default=11)
    arguments = parser.parse_args()
    options = suite.KernelOptions(size=arguments.size, repeats=arguments.repeats, schemes=arguments.schemes.split(","))
    sweep(options, arguments.labels.split(","), [int(p) for p in arguments.payloads.split(",")])


if __name__ == "__main__":
    main()
