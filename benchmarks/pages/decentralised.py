"""The tables of docs/decentralised.md, from the files benchmarks/results/decentralised-*.json."""

import textwrap
from collections.abc import Callable
from functools import partial

import laconic
from benchmarks.pages.common import Document, link, load, number, origin, presented, table

STEPS, LOSSES = "A step of training", "Loss of the average model"
MEMBERS = {
    "dpsgd": "`DPSGD`",
    "ecd": "`ECDPSGD`",
    "dcd": "`DCDPSGD`",
    "ecd-paper": "ECD-PSGD as in the paper",
    "ecd-running": "`ECDPSGD`, clock never stopped",
    "ecd-restart": "`ECDPSGD`, clock restarted after 20",
}
"""The benchmark's names of members and variants, and their names on the page."""


def in_words(row: Document) -> str:
    """A contender such as `ecd nuqsgd-4 ring` as named on the page."""
    if row["topology"] is None:
        codec, *_ = row["contender"].removeprefix("DDP ").split()
        return f"all-reduce, `{codec}`"
    member, *codecs = row["contender"].removesuffix(row["topology"]).split()
    return f"{MEMBERS[member]}, `{' '.join(codecs) or 'fp32'}`, {row['topology']}"


def graphs(n_nodes: int = 16) -> str:
    rows = []
    for graph in (laconic.Ring(), laconic.Torus(), laconic.Exponential(), laconic.Star(), laconic.Complete()):
        mixing = graph.mixing(n_nodes)
        name = type(graph).__name__
        rows.append([f"`{name}`", str(len(mixing.neighbours(1))), number(mixing.spectral_gap)])
    return table([f"{n_nodes} nodes", "neighbours of node 1", "spectral gap"], rows)


def command(name: str) -> str:
    """The command that made the file."""
    options = load(name)["options"]
    shown = {
        "simulate" if options["simulated"] else "ranks": options["ranks"],
        "rate": options["rate"],
        "slow": options["slow_rate"],
        "topology": ",".join(options["topologies"]),
        "member": ",".join(options["members"]),
        "codec": ",".join(options["codecs"]),
        "problem": options["problem"],
        "size": options["size"] if options["problem"] == "clusters" else None,
        "repeats": options["repeats"],
    }
    words = [
        "python -m benchmarks decentralised",
        *(f"--{key} {value}" for key, value in shown.items() if value is not None),
    ]
    lines = textwrap.wrap(" ".join(words), 78, break_on_hyphens=False)
    return "```\n" + " \\\n  ".join(lines) + "\n```"


def steps(name: str) -> str:
    """The table of times and bytes of a step on emulated links."""
    document = load(name)
    options, rows = document["options"], document["rows"]
    slow = f", but {link(options['slow_rate'])} to and from the last" if options["slow_rate"] else ""
    shape = (
        f"{options['ranks']} hosts on links of {link(options['rate'])}{slow}; {rows[0]['n']:,} weights, "
        f"{options['repeats']} timed steps:"
    )
    return _shown(name, shape, LOSSES)


def losses(name: str) -> str:
    """The table of the average model's loss over that of all-reduce, on simulated nodes."""
    document = load(name)
    first = document["rows"][0]
    (graph,) = document["options"]["topologies"]
    shape = f"{graph.capitalize()} of {first['ranks']} nodes, {first['n']:,} weights, {first['n_steps']} steps:"
    return _shown(name, shape, STEPS)


def _shown(name: str, shape: str, without: str) -> str:
    """A sentence on the run, one table of its suite's presentation, the command and the origin of the file."""
    document = load(name)
    named = {**document, "rows": [{**row, "contender": in_words(row)} for row in document["rows"]]}
    return "\n\n".join([shape, presented(named, without=[without]), command(name), origin(name)])


WRITERS: dict[str, Callable[[], str]] = {
    "graphs": graphs,
    "slow link": partial(steps, "decentralised-slow-link"),
    "even links": partial(steps, "decentralised-1gbit"),
    "ring": partial(losses, "decentralised-ring-16"),
    "torus": partial(losses, "decentralised-torus-16"),
    "digits": partial(losses, "decentralised-digits-8"),
}
