"""Kernels of matrix products, and of packing their operands."""
