"""Data that is at hand: nothing is downloaded."""

from laconic.data.digits import load_digits

__all__ = ["load_digits"]
