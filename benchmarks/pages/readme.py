"""Write the tables of README.md from the files in benchmarks/results, and draw the picture above them."""

from collections.abc import Callable

from benchmarks.pages.common import link, load, table
from benchmarks.pages.papers import claims_table, from_precision
from benchmarks.pages.summary import digits, times
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, bars

CLAIMS = ("speed of recipe C", "loss of recipe C", "full precision − NUQSGD")
"""Claims quoted in the README."""
SENT = {
    "bf16": "gradients in bf16 (PyTorch's own)",
    "bf16+bf16": "gradients and weights in bf16",
    "powersgd-32": "PowerSGD of rank 32 (PyTorch's own)",
    "nuqsgd-4/512": "`NUQSGD(bits=4)`",
    "nuqsgd-4/512+differences-8": "`NUQSGD(bits=4)`, weights as 8-bit differences",
    "dithered-0.1@metric": "`Dithered(error=0.1)` with `optimizer=`",
}
"""Contenders of suite `lm`, and what each sends."""
RATES = ("20mbit", "100mbit", "1gbit", "unlimited")
TASKS = ("cnn-sgd", "lm-adamw")
ADVICE = [
    ("SGD", "`Dithered(error=0.3)`", TASKS[:1], "dithered-0.3", "dithered-0.3 scatter_reduce"),
    ("Adam and its like", "`Dithered(error=0.1)` with `optimizer=`", TASKS[1:], "dithered-0.1@metric",
     "dithered-0.1 scatter_reduce"),
    ("the same, without `optimizer=`", "`Rotated(bits=4)`", TASKS[1:], "rotated-4", "rotated-4 scatter_reduce"),
    ("any optimizer; of these the fastest at 1 Gbit/s", "`NUQSGD(bits=4, bucket_size=512)`", TASKS,
     "nuqsgd-4/512", "nuqsgd-4/512 scatter_reduce"),
    ("any optimizer, as a baseline", "`\"bf16\"`", TASKS, "bf16", "bf16 all_reduce"),
]  # fmt: skip
"""Use case of a codec, its spelling, its tasks and member of suite `training`, its contender of suite `exchange`."""


def which_codec() -> str:
    """The table of recommended codecs: bits and loss in training, and the speed of an average by link."""
    trained = {(row["task"], row["contender"]): row for row in load("training")["rows"] if row["workers"] == 4}
    links = {rate: {row["contender"]: row for row in load(f"exchange-{rate}")["rows"]} for rate in RATES[:3]}
    rows = []
    for user, codec, tasks, member, contender in ADVICE:
        run = max((trained[task, member] for task in tasks), key=lambda row: row["loss_over_fp32"])
        speeds = " / ".join(f"{digits(rows[contender]['speedup_over_fp32']['median'])}×" for rows in links.values())
        bits = run["bits_uncoded"] or run["bits"]  # symbols of fixed width are sent uncoded
        rows.append([user, codec, f"{bits:.2g}", f"{run['loss_over_fp32']:.3f}", speeds])
    speed = " / ".join(link(rate) for rate in RATES[:3])
    return table(["you train with", "codec", "bits per value", "loss ÷ float32's", f"average at {speed}"], rows)


def three_figures() -> str:
    """The headline figures: time to a loss, the time of a step, and three lines of the claims table."""
    ours = next(row for row in load("ddp-16-cores")["rows"] if row["contender"] == "nuqsgd-4/512")
    faster = " / ".join(f"{digits(ours[f'speedup_over_{name}']['median'])}×" for name in ("fp32", "bf16"))
    step = "1 Gbit/s: step of nuqsgd-4/512 over"
    shared = times("ddp-1gbit", f"{step} fp32", f"{step} the bf16 hook")
    parts = [
        _language_model(),
        f"**A training step** of 4.2 M parameters on 4 ranks at 1 Gbit/s, with NUQSGD in 4 bits, is {faster} as fast "
        f"as DDP in float32 / with PyTorch's bf16 hook where each rank has 4 cores, and {shared} where all share two.",
        "**The papers' claims**, three of those in [docs/papers.md](docs/papers.md): recipe C is mixed-precision "
        "CA-SGD, NUQSGD the quantiser of Ramezani-Kebrya et al. (2021). Of recipe C's speed, precision alone brings "
        f"{from_precision()}, and `s` the rest; its rows are synthetic, with the published numbers of columns.",
        claims_table(CLAIMS),
    ]
    return "\n\n".join(parts)


def _language_model() -> str:
    """How much sooner a language model reaches the float32 loss, by link and by what is sent; the best in bold."""
    made = load("lm")
    first, speed = made["rows"][0], {(r["way"], r["rate"], r["contender"]): r["speedup"] for r in made["rows"]}
    columns = [(way, rate) for way in ("DDP", "FSDP2") for rate in ("1gbit", "10gbit")]
    best = {where: max(speed.get((*where, name)) or 0.0 for name in SENT) for where in columns}

    def cell(where: tuple[str, str], name: str) -> str:
        found = speed.get((*where, name))
        return "–" if found is None else f"**{digits(found)}×**" if found == best[where] else f"{digits(found)}×"

    return (
        f"**Time to a loss.** A language model of {first['n'] / 1e6:.0f} M parameters, AdamW, 4 NCCL ranks: how many "
        f"times sooner than with float32 it reaches the loss of float32's {made['options']['steps']} steps. Links are "
        "emulated, and the ranks share one GPU; the loss by step is that of simulated workers, with "
        f"{first['n_seeds']} seeds.\n\n"
        + table(
            ["sent", *(f"{way}, {link(rate)}" for way, rate in columns)],
            [[said, *(cell(where, name) for where in columns)] for name, said in SENT.items()],
        )
        + "\n\nAt 10 Gbit/s bf16 and PowerSGD are ahead of every codec here. For differences each rank keeps a copy of "
        "all weights."
    )


def _exchange_speed() -> str:
    """Figure: speed of averaging a gradient on links from 20 Mbit/s to loopback, relative to a float32 all-reduce."""
    groups = []
    for rate in RATES:
        made = load(f"exchange-{rate}")
        speeds = {row["contender"]: row["speedup_over_fp32"]["median"] for row in made["rows"]}
        ours = [speeds[f"{codec} scatter_reduce"] for codec in ("nuqsgd-4/512", "dithered-0.1", "dithered-1")]
        groups.append((link(made["options"]["rate"]), [1.0, speeds["bf16 all_reduce"], *ours]))
    names = [("float32", GREY), ("bfloat16", ORANGE), ("4 bits", GREEN), ("error 0.1", BLUE), ("error 1", PURPLE)]
    return bars("Average of a gradient over 4 ranks", "speed, × float32 all-reduce", groups, names)


def figures() -> dict[str, str]:
    """The README's figure by file name, as SVG."""
    return {"exchange-speed.svg": _exchange_speed()}


WRITERS: dict[str, Callable[[], str]] = {"three figures": three_figures, "which codec": which_codec}
