"""Try other sizes for the GPU kernels: GB/s and ratio to a device copy for each configuration.

`python benchmarks/sweep_kernels.py` sweeps NUQSGD at 4 bits; `--schemes` takes others, `--size` a smaller problem and
`--suite FILE.json` runs the whole suite `kernels` first and writes its rows. Needs a CUDA GPU, torch and Triton only.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import torch

from laconic.bench import document
from laconic.bench import kernels as suite
from laconic.bench.kernel_goals import kernel_outcomes
from laconic.kernels.gpu.launch import FEW, TUNING

PACK = {"pack_values_a_thread": (16, 32, 64), "pack_max_warps": (4, 8, 16)}
SUM = {"values_a_thread": (8, 16, 32), "warps": (2, 4, 8)}


def grid_of(contender: suite.Contender) -> dict[str, tuple[int, ...]]:
    """The sizes that concern a contender."""
    if contender.operation == suite.PACK:
        return PACK
    kind = "sum_few" if contender.n_payloads < FEW else "sum"
    return {f"{kind}_{name}": values for name, values in SUM.items()}


def configurations(grid: dict[str, tuple[int, ...]]) -> list[dict[str, int]]:
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(row: suite.KernelRow, what: str) -> str:
    payloads = f"P={row.n_payloads}" if row.n_payloads else ""
    ratio = row.ratio_to_copy
    return (
        f"{row.contender:16} {row.operation:26} {payloads:4} {1e3 * row.seconds.median:8.4f} ms "
        f"{row.gb_per_second:7.0f} GB/s  ÷copy {ratio.median:.3f} ({ratio.p20:.3f}-{ratio.p80:.3f})  {what}"
    )


def sweep(options: suite.KernelOptions, labels: list[str], payloads: list[int]) -> None:
    """One line a configuration, of every kernel it concerns; the best is said last."""
    before = dict(TUNING)
    with suite.arrays(options) as (v, out):
        yardstick = suite.fastest_copy(v, out, options.repeats)
        for contender in suite.contenders(options, v, out):
            if contender.label not in labels or (contender.n_payloads and contender.n_payloads not in payloads):
                continue
            best = None
            for changed in configurations(grid_of(contender)):
                TUNING.update(changed)
                try:
                    contender.call()
                    contender.check()
                    timed = suite.compare(suite.Timed(contender.call), yardstick, options.repeats)
                except Exception as error:  # noqa: BLE001 (one that does not compile must not end the sweep)
                    say(f"{contender.label} {contender.operation} {changed}: {type(error).__name__}: {error}"[:300])
                    continue
                finally:
                    TUNING.update(before)
                row = suite.row(contender, timed, v.numel())
                say(line(row, str(changed)))
                if best is None or row.ratio_to_copy.median > best[0]:
                    best = (row.ratio_to_copy.median, changed)
            say(f"best: {contender.label} {contender.operation} {contender.n_payloads} {best}")


def whole_suite(options: suite.KernelOptions, path: Path, commit: str | None) -> None:
    rows = suite.kernel_rows(options)
    for row in rows:
        say(line(row, ""))
    outcomes = kernel_outcomes(rows)
    for outcome in outcomes:
        say(f"{outcome.verdict:7} {outcome.value.median:.3f} {outcome.floor} {outcome.aim} {outcome.name}")
    made = document("kernels", rows, suite.GPUEnvironment.here(options.device, commit))
    path.write_text(json.dumps(made, indent=2, allow_nan=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemes", default="nuqsgd", help="names, separated by commas")
    parser.add_argument("--labels", default="nuqsgd-4", help="which of their rows, separated by commas")
    parser.add_argument("--payloads", default="1,4,8", help="numbers of payloads to add up")
    parser.add_argument("--size", type=int, default=2**28)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--suite", type=Path, metavar="FILE.json", help="run the whole suite, and write its rows here")
    parser.add_argument("--commit", help="commit of this copy, where it has no history of its own")
    parser.add_argument("--no-sweep", action="store_true")
    arguments = parser.parse_args()
    if arguments.suite:
        options = suite.KernelOptions(size=arguments.size, repeats=arguments.repeats)
        whole_suite(options, arguments.suite, arguments.commit)
    torch.cuda.empty_cache()
    if not arguments.no_sweep:
        options = suite.KernelOptions(
            size=arguments.size, repeats=arguments.repeats, schemes=arguments.schemes.split(",")
        )
        sweep(options, arguments.labels.split(","), [int(p) for p in arguments.payloads.split(",")])


if __name__ == "__main__":
    main()
