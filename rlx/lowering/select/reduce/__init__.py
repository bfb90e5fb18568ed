"""Selection of the kernels of reductions."""
