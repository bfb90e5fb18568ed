"""Kernels of attention and its derivatives."""
