"""Families: the loss of a margin, and all that is true of it."""

from laconic.glm.families import registry
from laconic.glm.families.base import Family
from laconic.glm.families.registry import *  # noqa: F403 (each is listed there, and only there)
from laconic.glm.families.registry import ALL, FAMILIES

__all__ = ["ALL", "FAMILIES", "Family"]
__all__ += registry.__all__
