"""Every family of models, listed once: a new one is a file beside this one, and its name in `ALL` and `__all__`."""

from collections.abc import Mapping
from typing import Any

from laconic.errors import InvalidOption, Option
from laconic.glm.families.base import Family
from laconic.glm.families.bernoulli import Bernoulli
from laconic.glm.families.gaussian import Gaussian
from laconic.glm.families.multinomial import Multinomial
from laconic.glm.families.power import Gamma, Poisson, Tweedie

__all__ = ["Bernoulli", "Gamma", "Gaussian", "Multinomial", "Poisson", "Tweedie"]

ALL: tuple[type[Family], ...] = (Bernoulli, Multinomial, Gaussian, Poisson, Gamma, Tweedie)
FAMILIES: dict[str, type[Family]] = {family.option: family for family in ALL}
"""By the word of `laconic fit --family` and of model files."""


def family_named(name: str, n_classes: int = 2, options: Mapping[str, Any] | None = None) -> Family:
    """The family that a user's word stands for; raises `InvalidOption` for no family.

    n_classes  of the targets, where they are classes
    options    of the fit, for what the family needs of them

    >>> family_named("linear").name
    'gaussian'
    """
    if name not in FAMILIES:
        raise InvalidOption("unknown ", Option("family", name), f"; choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name].of(n_classes, options)
