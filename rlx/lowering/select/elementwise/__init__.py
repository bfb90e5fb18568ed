"""Selection of pointwise kernels and copies."""
