"""How many bytes a second the GPU kernels move, next to a copy on the same GPU."""
