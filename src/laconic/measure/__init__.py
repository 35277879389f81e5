"""Measure this machine: what it is, how fast its ranks talk, encode and solve. What `laconic plan` calibrates with."""

from laconic.measure.calibrate import calibrate_here
from laconic.measure.environment import Environment

__all__ = ["Environment", "calibrate_here"]
