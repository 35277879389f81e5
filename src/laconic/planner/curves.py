"""Predicted time against s, and against the rate of the links. Pure formulas."""

from laconic.planner import choice as c
from laconic.planner.glm import GlmJob, GlmOption, cost
from laconic.planner.plan import Plan

Curves = dict[str, tuple[list[float], list[float]]]
"""By name, x and seconds."""

RATES = tuple(10 ** (7 + i / 4) for i in range(17))
"""From 10 Mbit/s to 100 Gbit/s."""
MOST_S = 256


def against_s(made: Plan) -> Curves:
    """Of CA-SGD in each recipe the job allows, and of SGD, which does not depend on s."""
    job = made.job
    if not isinstance(job, GlmJob):
        return {}
    blocks = [2**i for i in range(MOST_S.bit_length()) if 2**i <= min(MOST_S, job.batches)]
    found: Curves = {}
    for name in dict.fromkeys(
        choice.option.rates_name for choice in made.choices if isinstance(choice.option, GlmOption)
    ):
        solver, recipe = name.split(" ")
        ways = [GlmOption(solver, recipe, s if solver == "ca_sgd" else 1) for s in blocks]
        found[name] = ([float(s) for s in blocks], [cost(job, way, made.cluster).seconds for way in ways])
    return found


def against_rate(made: Plan) -> Curves:
    """Of every codec and exchange; of models, the best s in each recipe. Latency and the machine's rates stay."""
    found: Curves = {}
    for bits in RATES:
        best: dict[str, float] = {}
        for choice in c.choices(made.job, made.cluster.what_if(bits_per_second=bits), made.s):
            option = choice.option
            name = option.rates_name if isinstance(option, GlmOption) else option.label
            best[name] = min(choice.seconds, best.get(name, float("inf")))
        for name, seconds in best.items():
            xs, ys = found.setdefault(name, ([], []))
            xs.append(bits)
            ys.append(seconds)
    return found
