"""Write the tables of README.md from the files in benchmarks/results, and draw the picture above them."""

from collections.abc import Callable

from benchmarks.pages.common import link, load, table
from benchmarks.pages.papers import claims_table, from_precision
from benchmarks.pages.summary import digits, times
from benchmarks.pages.svg import BLUE, GREEN, GREY, ORANGE, PURPLE, bars

CLAIMS = ("speed of recipe C", "loss of recipe C", "full precision − NUQSGD")
"""Claims quoted in the README."""
CODECS = ("dithered-0.1@metric", "nuqsgd-4/512", "rotated-4")
"""Of suite `lm`."""
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
    """The headline figures: the time of a step, and three lines of the claims table."""
    ours = next(row for row in load("ddp-16-cores")["rows"] if row["contender"] == "nuqsgd-4/512")
    faster = " / ".join(f"{digits(ours[f'speedup_over_{name}']['median'])}×" for name in ("fp32", "bf16"))
    step = "1 Gbit/s: step of nuqsgd-4/512 over"
    shared = times("ddp-1gbit", f"{step} fp32", f"{step} the bf16 hook")
    points = [
        "Links are emulated: hosts are network namespaces of one machine.",
        f"A **training step** of 4.2 M parameters on 4 ranks at 1 Gbit/s, with NUQSGD in 4 bits, is {faster} as fast "
        f"as DDP in float32 / with PyTorch's bf16 hook where each rank has 4 cores, and {shared} where all share two.",
        _language_model(),
        "**The papers' claims**, three of those in [docs/papers.md](docs/papers.md): recipe C is mixed-precision "
        "CA-SGD, NUQSGD the quantiser of Ramezani-Kebrya et al. (2021). Of recipe C's speed, precision alone brings "
        f"{from_precision()}, and `s` the rest; its rows are synthetic, with the published numbers of columns.",
    ]
    return "\n".join(f"- {point}" for point in points) + f"\n\n{claims_table(CLAIMS)}"


def _language_model() -> str:
    """Speedup of a language model's time to the float32 loss, with our codecs and with PyTorch's best hook."""
    made = load("lm")
    millions = made["rows"][0]["n"] / 1e6
    by = {(row["way"], row["rate"], row["contender"]): row for row in made["rows"]}

    def at_10(*names: str) -> str:
        return f"{digits(max(by['DDP', '10gbit', name]['speedup'] for name in names))}×"

    def sooner(name: str, way: str = "DDP") -> str:
        row = by[way, "1gbit", name]
        return " / ".join(f"{digits(row[key])}×" for key in ("speedup", "speedup_over_bf16"))

    return (
        f"A **language model** of {millions:.0f} M parameters on 4 NCCL ranks at 1 Gbit/s reaches the "
        f"loss of float32's {made['options']['steps']} steps sooner than DDP in float32 / with the bf16 hook: "
        f"{sooner('dithered-0.1@metric')} with `Dithered(0.1)`, {sooner('nuqsgd-4/512')} with NUQSGD in 4 bits. "
        f"PyTorch's own PowerSGD of rank 32 has {sooner('powersgd-32')}. At 10 Gbit/s PowerSGD "
        f"({at_10('powersgd-32')}) and the bf16 hook ({at_10('bf16')}) are ahead of every codec here (at most "
        f"{at_10(*CODECS)}). **FSDP2** at 1 Gbit/s, over float32 / over gradients in bf16: "
        f"{sooner('nuqsgd-4/512+differences-8', 'FSDP2')} with NUQSGD and weights sent as differences, of which each "
        f"rank then keeps a full copy; {sooner('bf16+bf16', 'FSDP2')} with weights and gradients in bf16. Ranks share "
        f"one GPU; the loss by step is that of simulated workers, with two seeds."
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
