"""Selection of row-wise kernels."""
