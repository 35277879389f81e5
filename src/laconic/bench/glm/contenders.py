"""Who takes part in the suite `glm`."""

from collections.abc import Sequence
from dataclasses import dataclass

from laconic.glm import Constant, Penalty, Sampling, Settings, recipe

FP32, BF16 = "sgd fp32", "sgd C"
"""The baselines: SGD with everything in float32, and with bfloat16 data and margins."""
FLOOR_RECIPE = "C"
ALPHA = 1e-4


@dataclass(frozen=True, slots=True)
class Contender:
    """A solver with its precision.

    silent  the same work without a message: each rank keeps to its own columns. No solver of this kind can be faster
    """

    solver: str
    recipe: str
    s: int = 1
    silent: bool = False

    @property
    def label(self) -> str:
        """Its name in tables.

        >>> Contender("ca_sgd", "C", 32, silent=True).label
        'ca_sgd C s=32, no messages'
        """
        name = f"{self.solver} {self.recipe}" + (f" s={self.s}" if self.solver == "ca_sgd" else "")
        return f"{name}, no messages" if self.silent else name

    def settings(self, eta0: float, batch_size: int, seed: int = 0) -> Settings:
        """As the solver takes them."""
        return Settings(
            solver=self.solver,
            s=self.s,
            sampling=Sampling(batch_size=batch_size, seed=seed),
            schedule=Constant(eta0),
            penalty=Penalty(ALPHA),
            precision=recipe(self.recipe),
            tol=None,
        )


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
