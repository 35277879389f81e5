"""Families: the loss of a margin, its derivative, the inverse link, the deviance."""

from laconic.glm.families.base import Family
from laconic.glm.families.bernoulli import Bernoulli
from laconic.glm.families.gaussian import Gaussian
from laconic.glm.families.multinomial import Multinomial
from laconic.glm.families.poisson import Poisson

__all__ = ["Bernoulli", "Family", "Gaussian", "Multinomial", "Poisson"]
