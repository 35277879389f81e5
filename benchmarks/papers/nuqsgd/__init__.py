"""Residual networks trained with quantised gradients, as in the paper on NUQSGD."""
