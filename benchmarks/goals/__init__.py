"""Targets of the suites, and whether a run reaches them."""
