"""Write the three figures of README.md from the files in benchmarks/results, and draw the picture above them."""

from collections.abc import Callable

from benchmarks.pages.common import link, load, table
from benchmarks.pages.summary import SEEDS, over_seeds, paper_speeds, times, worst_gap
from benchmarks.pages.svg import BLUE, GREY, ORANGE, bars

RATES = ("20mbit", "100mbit", "1gbit", "unlimited")


def three_figures() -> str:
    """One figure each for the time of a step, the accuracy that is left, and the messages saved."""
    faster = times("ddp-1gbit", "1 Gbit/s: step of nuqsgd-4 over fp32", "1 Gbit/s: step of nuqsgd-4 over the bf16 hook")
    fp32, ours = (f"{100 * x:.1f} %" for x in over_seeds("accuracy", "fp32", "nuqsgd"))
    rows = [
        ["a training step of 4.2 M parameters on 4 ranks at 1 Gbit/s, in 4 bits: speed-up over DDP in float32 / with "
         "PyTorch's bf16 hook", faster],
        ["test accuracy of ResNet-20 on CIFAR-10 after 10 epochs, 4 simulated workers: float32 / 4 bits, mean of "
         f"{len(SEEDS)} seeds", f"{fp32} / {ours}"],
        ["CA-SGD in bfloat16 on five problems of its paper, on an H200: speed-up over float32 SGD in a CUDA graph "
         f"(the paper: 5.1 to 6.8); the loss is within {worst_gap('papers-ca-sgd-h200')}", paper_speeds()],
    ]  # fmt: skip
    return table(["what", "measured"], rows)


def _exchange_speed() -> str:
    """Speed of averaging a gradient on links from 20 Mbit/s to loopback, relative to a float32 all-reduce."""
    groups = []
    for rate in RATES:
        made = load(f"exchange-{rate}")
        speeds = {row["contender"]: row["speedup_over_fp32"]["median"] for row in made["rows"]}
        ours = max(speeds[name] for name in ("nuqsgd-4 scatter_reduce", "nuqsgd-4-rans scatter_reduce"))
        groups.append((link(made["options"]["rate"]), [1.0, speeds["bf16 all_reduce"], ours]))
    names = [("float32", GREY), ("bfloat16", ORANGE), ("laconic, 4 bits", BLUE)]
    return bars("Average of a gradient over 4 ranks", "speed, × float32 all-reduce", groups, names)


def figures() -> dict[str, str]:
    """The picture's file, and the drawing."""
    return {"exchange-speed.svg": _exchange_speed()}


WRITERS: dict[str, Callable[[], str]] = {"three figures": three_figures}
