"""Predictions of `laconic plan` beside measurements."""
