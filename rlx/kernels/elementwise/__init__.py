"""Kernels of pointwise programs, and dense copies."""
