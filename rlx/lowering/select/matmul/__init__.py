"""Selection of the kernels of matrix products."""
