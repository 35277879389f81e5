"""Every family of models, listed once: a new one is a file beside this one, and its name in `ALL` and `__all__`."""

from laconic.glm.families.base import Family
from laconic.glm.families.bernoulli import Bernoulli
from laconic.glm.families.gaussian import Gaussian
from laconic.glm.families.multinomial import Multinomial, OneVsRest
from laconic.glm.families.power import Gamma, NegativeBinomial, Poisson, Tweedie

__all__ = ["Bernoulli", "Gamma", "Gaussian", "Multinomial", "NegativeBinomial", "OneVsRest", "Poisson", "Tweedie"]

ALL: tuple[type[Family], ...] = (Bernoulli, Multinomial, OneVsRest, Gaussian, Poisson, Gamma, Tweedie, NegativeBinomial)
FAMILIES: dict[str, type[Family]] = {family.option: family for family in ALL}
"""By the word of `laconic fit --family` and of model files."""
