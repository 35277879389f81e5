"""Generalised linear models: iterations on ranks, on a GPU, and the race to an objective."""
