"""Benchmarks of this repository: papers run again, rivals, goals, and the pages they fill.

Run as `python -m benchmarks SUITE` from the root of the repository; not part of the installed package.
"""
