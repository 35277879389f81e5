"""Measure this machine for `laconic plan`: its hardware, its links, and the speed of codecs and solvers."""

from laconic.measure.calibrate import calibrate_here
from laconic.measure.environment import Environment

__all__ = ["Environment", "calibrate_here"]
