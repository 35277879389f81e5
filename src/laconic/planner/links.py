"""α and β of the actual process group, from messages of several sizes."""

from collections.abc import Callable, Mapping, Sequence

import torch

from laconic.planner.cluster import Link
from laconic.planner.collectives import all_reduce, all_to_all
from laconic.planner.fit import Fit, fit
from laconic.planner.timing import Stopwatch, Timing

SIZES = (64, 2**14, 2**17, 2**20, 2**22, 2**24)
QUICK_SIZES = (64, 2**17, 2**21)
LONGEST_SECONDS = 0.25
"""Messages that would take longer are not tried: on slow links the rate is plain long before."""
ROUNDS = 3
UNIT, NOTHING = Link(1.0, 1.0), Link(0.0, 0.0)
DTYPES = {"all_reduce": torch.float32, "narrow": torch.bfloat16}

Samples = Mapping[int, Timing]
"""By bytes."""


def sample_link(clock: Stopwatch, name: str, sizes: Sequence[int] = SIZES) -> Samples:
    """Time messages of growing size: the process group's all-reduce ("all_reduce", "narrow"), or "all_to_all"."""
    found: dict[int, Timing] = {}
    for size in sizes if clock.comm.size > 1 else ():
        if found and _expected(found, size) > LONGEST_SECONDS:
            break
        found[size] = clock.time(_call(clock, name, size), rounds=ROUNDS)
    return found


def merge(one: Samples, other: Samples) -> Samples:
    """Samples of two occasions as one; sizes that only one of them has are left out, so that neither counts more.

    >>> merge({8: Timing((1.0,)), 64: Timing((5.0,))}, {8: Timing((3.0,))})
    {8: Timing(rounds=(1.0, 3.0))}
    """
    return {size: one[size] + other[size] for size in one if size in other}


def fit_link(name: str, samples: Samples, n_ranks: int) -> tuple[Link, Fit]:
    """α and β of a message between two ranks, by the formula of the collective; nothing for one rank."""
    if not samples:
        return NOTHING, Fit((), ())
    terms = {
        size: all_to_all("", size, UNIT, n_ranks) if name == "all_to_all" else all_reduce(size, UNIT, n_ranks)
        for size in samples
    }
    counts = [[term.count for term in terms[size]] for size in samples]
    fitted = fit(counts, [timing.median for timing in samples.values()])
    return Link(*fitted.coefficients), fitted


def _call(clock: Stopwatch, name: str, size: int) -> Callable[[], object]:
    comm = clock.comm
    if name == "all_to_all":
        message = torch.zeros(size, dtype=torch.uint8, device=clock.device)
        return lambda: comm.all_to_all([message] * comm.size, [size] * comm.size, phase=0).wait()
    v = torch.zeros(size // DTYPES[name].itemsize, dtype=DTYPES[name], device=clock.device)
    return lambda: comm.all_reduce(v)()


def _expected(found: Samples, size: int) -> float:
    """Seconds of the next size, if what the last took more than the first is for its bytes."""
    (_, first), *_, (last_size, last) = [*found.items(), *found.items()]
    return first.median + max(0.0, last.median - first.median) * size / last_size
