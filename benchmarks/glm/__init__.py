"""Generalised linear models beside other people's solvers: scikit-learn on CPUs, PyTorch and JAX on a GPU."""
