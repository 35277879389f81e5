"""Bits against validation loss: networks trained by simulated workers with every member."""
