"""Write the tables of docs/decentralised.md from the files benchmarks/results/decentralised-*.json.

`python -m benchmarks pages` rewrites what stands between the page's markers; a test checks that it is up
to date.
"""

import textwrap

import laconic
from benchmarks.pages import tables
from benchmarks.pages.tables import DOCS, link, load, number, origin, spread, table

PAGE = DOCS / "decentralised.md"
MEMBERS = {
    "dpsgd": "`DPSGD`",
    "ecd": "`ECDPSGD`",
    "dcd": "`DCDPSGD`",
    "ecd-paper": "ECD-PSGD as in the paper",
    "ecd-running": "`ECDPSGD`, clock never held",
    "ecd-restart": "`ECDPSGD`, clock restarted after 20",
}
"""What the benchmark calls the members of the family and its variants, in the page's words."""


def member_and_codec(row: dict) -> list[str]:
    """`ecd nuqsgd-4 ring` without its graph."""
    if row["topology"] is None:
        codec, *_ = row["contender"].removeprefix("DDP ").split()
        return ["all\N{NON-BREAKING HYPHEN}reduce", f"`{codec}`"]
    member, *codec = row["contender"].removesuffix(row["topology"]).split()
    return [MEMBERS[member], f"`{' '.join(codec) or 'fp32'}`"]


def graphs(n_nodes: int = 16) -> str:
    rows = []
    for graph in (laconic.Ring(), laconic.Torus(), laconic.Exponential(), laconic.Star(), laconic.Complete()):
        mixing = graph.mixing(n_nodes)
        name = type(graph).__name__
        rows.append([f"`{name}`", str(len(mixing.neighbours(1))), number(mixing.spectral_gap)])
    return table([f"{n_nodes} nodes", "neighbours of node 1", "spectral gap"], rows)


def command(name: str) -> str:
    """What made the file."""
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
    """Times and bytes of a step on emulated links."""
    options, found = load(name)["options"], load(name)["rows"]
    rows = [
        [
            *member_and_codec(row),
            row["topology"] or "–",
            number(1e3 * row["seconds"]["median"]),
            spread(row["speedup_over_fp32"]),
            spread(row["speedup_over_scatter"]),
            f"{row['bytes_sent'] / 1e6:.2f}",
            f"{row['slow_bytes_sent'] / 1e6:.2f}",
        ]
        for row in found
    ]
    headings = ["member", "codec", "graph", "ms a step", "× fp32", "× scatter_reduce", "MB", "MB, last host"]
    slow = f", but {link(options['slow_rate'])} to and from the last" if options["slow_rate"] else ""
    shape = (
        f"{options['ranks']} hosts on links of {link(options['rate'])}{slow}; {found[0]['n']:,} weights, "
        f"{options['repeats']} timed steps:"
    )
    return "\n\n".join([shape, table(headings, rows), command(name), origin(name)])


def losses(name: str) -> str:
    """Loss of the average model over all-reduce's, of simulated nodes."""
    options, found = load(name)["options"], load(name)["rows"]
    rows = [
        [
            *member_and_codec(row),
            f"{row['loss_over_fp32']:.3f}",
            number(row["distance"]),
            number(row["bytes_sent"] / 1e3),
        ]
        for row in found
    ]
    first = found[0]
    (graph,) = options["topologies"]
    shape = f"{graph.capitalize()} of {first['ranks']} nodes, {first['n']:,} weights, {first['n_steps']} steps:"
    headings = ["member", "codec", "loss ÷ all-reduce's", "consensus distance", "kB sent a step"]
    return "\n\n".join([shape, table(headings, rows), command(name), origin(name)])


SECTIONS = {
    "graphs": graphs,
    "slow link": lambda: steps("decentralised-slow-link"),
    "even links": lambda: steps("decentralised-1gbit"),
    "ring": lambda: losses("decentralised-ring-16"),
    "torus": lambda: losses("decentralised-torus-16"),
    "digits": lambda: losses("decentralised-digits-8"),
}


def rendered(page: str) -> str:
    """The page with every section made anew."""
    return tables.rendered(page, SECTIONS)
