"""What to run in the suite `decentralised`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.decentralised.ways import CODECS, KINDS, Way
from laconic.bench.network import bits_per_second
from laconic.bench.options import require_at_least, require_known, require_network
from laconic.bench.training import PROBLEMS, WARMUP_STEPS, Trial, perceptron_width
from laconic.exchange.topology import TOPOLOGIES

FP32, SCATTER = "DDP fp32", "nuqsgd-4 scatter_reduce"


@dataclass(frozen=True, slots=True)
class DecentralisedOptions:
    """What to run.

    ranks       how many; each is a process with one thread, or a simulated node
    simulated   whether all nodes are simulated in this process: no seconds, any number of nodes
    rate        of every host's link, such as "1gbit"; None for loopback, unlimited
    slow_rate   of the last host's link; None for that of the others
    topologies  names of graphs
    members     of the family: dpsgd, dcd, ecd, and variants of the last: ecd-paper, ecd-running, ecd-restart
    codecs      for all members but dpsgd
    problem     "clusters" (synthetic, a perceptron) or "digits" (handwritten digits, a small convolutional network)
    size        least number of parameters of the perceptron
    batch_size  samples a rank and step
    repeats     timed steps
    """

    ranks: int = 4
    simulated: bool = False
    rate: str | None = None
    slow_rate: str | None = None
    topologies: Sequence[str] = ("ring", "star")
    members: Sequence[str] = ("dpsgd", "ecd", "dcd")
    codecs: Sequence[str] = ("nuqsgd-4", "nuqsgd-8")
    problem: str = "clusters"
    size: int = 2**20
    batch_size: int = 16
    repeats: int = 30

    def __post_init__(self) -> None:
        require_at_least(1, self, "size", "batch_size", "repeats")
        require_known([self.problem], PROBLEMS, "problem")
        require_known(self.topologies, list(TOPOLOGIES), "topology")
        require_known(self.members, KINDS, "member")
        require_known(self.codecs, list(CODECS), "codec")
        require_network(self.ranks, self.rate)
        if self.slow_rate is not None:
            bits_per_second(self.slow_rate)
            if self.rate is None:
                raise ValueError("a slow link is one among faster ones: give --rate, too, such as --rate 1gbit")
        if self.simulated and self.rate is not None:
            raise ValueError("simulated nodes use no network; leave --rate out")

    @property
    def n_parts(self) -> int:
        """Steps of a progress bar."""
        return len(self.ways()) if self.simulated else self.trial.n_steps

    @property
    def width(self) -> int:
        """Of the hidden layers of the perceptron."""
        return perceptron_width(self.size)

    @property
    def trial(self) -> Trial:
        """What every way trains on, and for how long; nothing is timed, so nothing warms up, on simulated nodes."""
        warmup_steps = 0 if self.simulated else WARMUP_STEPS
        return Trial(self.problem, self.width, self.batch_size, self.repeats, warmup_steps)

    def ways(self) -> dict[str, Way]:
        """AllReduce in fp32 and by scatter_reduce, and every member on every graph that it can work on.

        >>> list(DecentralisedOptions(topologies=["ring"], members=["ecd"], codecs=["nuqsgd-4"]).ways())
        ['DDP fp32', 'nuqsgd-4 scatter_reduce', 'ecd nuqsgd-4 ring']
        """
        found = {FP32: Way("all_reduce")}
        if not self.simulated:
            found[SCATTER] = Way("all_reduce", "nuqsgd", {"bits": 4})
        for topology, member in product(self.topologies, self.members):
            if member == "dpsgd":
                found[f"dpsgd {topology}"] = Way("dpsgd", topology=topology)
                continue
            for name in self.codecs:
                way = Way(member, *CODECS[name], topology=topology)
                if way.bearable(self.ranks):
                    found[f"{member} {name} {topology}"] = way
        return found
