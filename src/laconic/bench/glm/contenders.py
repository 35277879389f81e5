"""Who takes part in the suite `glm`."""

from collections.abc import Sequence

from laconic.glm import recipe
from laconic.measure.solvers import ALPHA as ALPHA
from laconic.measure.solvers import Contender as Contender

FP32, BF16 = "sgd fp32", "sgd C"
"""The baselines: SGD with everything in float32, and with bfloat16 data and margins."""
FLOOR_RECIPE = "C"


def require_contenders(problems: Sequence[object], recipes: Sequence[str], s: Sequence[int], n: int = 0) -> None:
    """A ValueError if there is nothing to run, no such recipe, or an s that n iterations are no multiple of."""
    if not problems or not s or not recipes:
        raise ValueError("there must be at least one problem, one s and one recipe")
    for block in s:
        if block < 1 or n % block:
            raise ValueError(f"iterations must be a multiple of every s, got {n} and s = {block}")
    for name in recipes:
        recipe(name)


def contenders(recipes: Sequence[str], s: Sequence[int]) -> list[Contender]:
    """The baselines, CA-SGD with every recipe and s, and the floors.

    >>> [c.label for c in contenders(["C"], [8])]
    ['sgd fp32', 'sgd C', 'ca_sgd C s=8', 'sgd fp32, no messages', 'ca_sgd C s=8, no messages']
    """
    ours = [Contender("ca_sgd", name, block) for name in recipes for block in s]
    floor = FLOOR_RECIPE if FLOOR_RECIPE in recipes else recipes[0]
    floors = [Contender("ca_sgd", floor, block, silent=True) for block in s]
    return [Contender("sgd", "fp32"), Contender("sgd", "C"), *ours, Contender("sgd", "fp32", silent=True), *floors]
