"""Benchmarks of generalised linear models: iterations of SGD and CA-SGD on ranks, or on a GPU."""
