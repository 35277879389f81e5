"""Bits against validation loss: networks trained by simulated workers under every member."""
